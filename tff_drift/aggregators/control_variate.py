"""SCAFFOLD's control variate of the server, as the state of an aggregator."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat, tensors
from tff_drift.aggregators import wrapping


class ControlVariateFactory(tff.aggregators.UnweightedAggregationFactory):
    """Keeps the server's control variate c, moved by what clients send.

    Karimireddy et al. (2020), SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning, Algorithm 1. https://arxiv.org/abs/1910.06378

    ```
    c <- c + (1/N) Σ_{i in the cohort} (c_i⁺ - c_i)
    ```

    N is the number of *all* clients, not of those in the cohort: dividing by the
    cohort's size keeps c from being the mean of all clients' variates, which shows
    only when not every client takes part in every round.

    For values of type `T`, a structure of float tensors, the process has the
    functional type signatures

    *   `initialize`: `( -> <control_variate=T,sum=S>@SERVER)`, with c = 0.
    *   `next`: `(<<control_variate=T,sum=S>@SERVER, {T}@CLIENTS> -> <state=...,
        result=T@SERVER, measurements=<control_variate_norm=float32>@SERVER>)`, whose
        result is the new c.

    With a cohort that sends zeros, c stays as it is.

    Args:
      num_clients: N, at least 1. For weighted clients, whose values come
        multiplied by their weights p_i: the sum of the weights of all clients.
      sum_factory: How the values are summed, for instance securely; by default
        `tff.aggregators.SumFactory()`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `num_clients` is not a finite number greater than 0.
    """

    def __init__(
        self,
        num_clients: float,
        sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
    ) -> None:
        checks.check_positive("num_clients", num_clients)
        self._num_clients = float(num_clients)
        self._sum_factory = wrapping.sum_factory_or_default("sum_factory", sum_factory)

    def create(self, value_type: compat.Type) -> tff.templates.AggregationProcess:
        """Creates the aggregation process for one type of values.

        Args:
          value_type: The type of what one client sends.

        Returns:
          A `tff.templates.AggregationProcess`.

        Raises:
          TypeError: If `value_type` holds anything but float tensors, or if
            `sum_factory` does not sum them.
        """
        wrapping.check_floats("value_type", value_type)
        name = "sum_factory (of build_scaffold: control_variate_sum_factory)"
        sum_process = wrapping.create_sum(name, self._sum_factory, value_type)

        @compat.tf_computation
        def zeros() -> Any:
            return tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype),
                compat.type_to_tf_tensor_specs(value_type),
            )

        @compat.tf_computation(value_type, value_type)
        def move(control_variate: Any, change: Any) -> Any:
            return tf.nest.map_structure(
                lambda c, total: c + total / tf.cast(self._num_clients, c.dtype),
                control_variate,
                change,
            )

        @compat.tf_computation(value_type)
        def norm(control_variate: Any) -> tf.Tensor:
            return tensors.global_norm(control_variate)

        @compat.federated_computation
        def initialize() -> Any:
            return compat.federated_zip(
                collections.OrderedDict(
                    control_variate=compat.federated_eval(zeros, compat.SERVER),
                    sum=sum_process.initialize(),
                )
            )

        @compat.federated_computation(
            initialize.type_signature.result,
            compat.FederatedType(value_type, compat.CLIENTS),
        )
        def next_fn(state: Any, value: Any) -> tff.templates.MeasuredProcessOutput:
            total = sum_process.next(state["sum"], value)
            control_variate = compat.federated_map(
                move, (state["control_variate"], total.result)
            )
            return tff.templates.MeasuredProcessOutput(
                state=compat.federated_zip(
                    collections.OrderedDict(
                        control_variate=control_variate, sum=total.state
                    )
                ),
                result=control_variate,
                measurements=compat.federated_zip(
                    collections.OrderedDict(
                        control_variate_norm=compat.federated_map(norm, control_variate)
                    )
                ),
            )

        return tff.templates.AggregationProcess(initialize, next_fn)
