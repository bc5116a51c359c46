"""Measurements of how alike and how large the cohort's updates are."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import compat, tensors
from tff_drift.aggregators import wrapping

_NORM_TYPE = compat.TensorType(np.float32)


def cohort_measurements_factory(
    inner_factory: tff.aggregators.AggregationFactory | None = None,
    *,
    sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
    """Builds an aggregator that measures the cohort and changes no result.

    The diagnostics of Charles et al. (2021), On Large-Cohort Training for
    Federated Learning, sections 4 and 5, https://arxiv.org/abs/2106.07820. For
    the updates Delta_1 ... Delta_M of a cohort of M clients, with the L2 norm
    over all tensors together and every client counting the same:

    * `pseudo_gradient_norm`: ||Delta||, of what `inner_factory` returns.
    * `mean_client_norm`: the mean of ||Delta_k||.
    * `mean_pairwise_cosine`: the mean of the cosine between Delta_j and Delta_k
      over all M (M - 1) / 2 pairs, in one pass over the clients:
      (||sum of u_k||^2 - Z) / (M (M - 1)) where u_k = Delta_k / ||Delta_k|| and Z
      is the number of updates that are not zero.

    The cosine between a zero update and any other is 0. With a single client
    there is no pair, and `mean_pairwise_cosine` is NaN; with none,
    `mean_client_norm` is NaN too.

    In TFF's notation, for updates V and weights W, with an inner state S and
    inner measurements M, and the sums' states D and N:

    ```
    initialize: ( -> <directions=D,norms=N,inner=S>@SERVER)
    next: (<state@SERVER,{V}@CLIENTS,{W}@CLIENTS> -> <state=...,result=V@SERVER,
           measurements=<pseudo_gradient_norm=float32,mean_client_norm=float32,
                         mean_pairwise_cosine=float32,M...>@SERVER>)
    ```

    without `{W}@CLIENTS` if `inner_factory` is unweighted. Norms and directions
    are in float32 for tensors of any floating types; norms above about 1.8e19 are
    infinite, and such an update counts as zero in the cosine. A client with NaN
    makes the measurements NaN, and one with infinity the norms infinite and the
    cosine NaN: put `reject_non_finite_factory` around this factory to measure its
    update as zeros.

    A real deployment would send one direction of the size of the update more
    per client and round: this is a tool for simulations.

    Args:
      inner_factory: Aggregates the updates, weighted or not; it sees them
        unchanged. By default the weighted mean, zero where all weights are zero.
      sum_factory: Sums float32 tensors over the clients: in one process the
        directions with two counts, all within [-1, 1], in another the norms. By
        default `tff.aggregators.SumFactory()`. A
        `tff.aggregators.SecureSumFactory` must have a bound of at least 1; a
        norm above its bound counts as the bound.

    Returns:
      A `tff.aggregators.WeightedAggregationFactory` if `inner_factory` is one,
      else a `tff.aggregators.UnweightedAggregationFactory`. Its `create` raises
      TypeError for tensors that are not of a floating type, or if `sum_factory`
      does not sum.

    Raises:
      TypeError: If a factory is not one of the kind asked for.
    """
    sum_factory = wrapping.sum_factory_or_default("sum_factory", sum_factory)

    def describe(
        inner_process: tff.templates.AggregationProcess,
        value_type: compat.Type,
        weight_type: compat.Type | None,
    ) -> wrapping.Steps:
        del weight_type  # The weights are the inner process's matter alone.
        result_type = inner_process.next.type_signature.result.result.member
        wrapping.check_floats("The result type of inner_factory", result_type)
        describe_update = _build_describe_update(value_type)
        direction_type, _ = describe_update.type_signature.result
        direction_sum = wrapping.create_sum("sum_factory", sum_factory, direction_type)
        norm_sum = wrapping.create_sum("sum_factory", sum_factory, _NORM_TYPE)
        measure = _build_measure(direction_type, result_type)

        def initialize() -> collections.OrderedDict[str, compat.Value]:
            return collections.OrderedDict(
                directions=direction_sum.initialize(),
                norms=norm_sum.initialize(),
                inner=inner_process.initialize(),
            )

        def next_round(
            state: compat.Value, value: compat.Value, weight: compat.Value | None
        ) -> tff.templates.MeasuredProcessOutput:
            inner = wrapping.call_next(inner_process, state["inner"], value, weight)
            direction, norm = compat.federated_map(describe_update, value)
            directions = direction_sum.next(state["directions"], direction)
            norms = norm_sum.next(state["norms"], norm)
            own = compat.federated_map(
                measure, (directions.result, norms.result, inner.result)
            )
            return tff.templates.MeasuredProcessOutput(
                state=collections.OrderedDict(
                    directions=directions.state, norms=norms.state, inner=inner.state
                ),
                result=inner.result,
                measurements=wrapping.join_measurements(
                    wrapping.parts_of(own), inner.measurements
                ),
            )

        return wrapping.Steps(initialize, next_round)

    return wrapping.wrap_factory(inner_factory, describe)


def _build_describe_update(value_type: compat.Type) -> compat.Computation:
    @compat.tf_computation(value_type)
    def describe_update(value: Any) -> tuple[Any, tf.Tensor]:
        norm = tensors.global_norm(value)
        direction = collections.OrderedDict(
            unit=tf.nest.map_structure(
                lambda t: tf.math.divide_no_nan(tf.cast(t, tf.float32), norm), value
            ),
            # The direction of a norm that overflows has been divided to zero.
            nonzero=tf.cast((norm > 0) & tf.math.is_finite(norm), tf.float32),
            clients=tf.constant(1.0),
        )
        return direction, norm

    return describe_update


def _build_measure(
    direction_type: compat.Type, result_type: compat.Type
) -> compat.Computation:
    @compat.tf_computation(direction_type, _NORM_TYPE, result_type)
    def measure(
        directions: Mapping[str, Any], norms: tf.Tensor, result: Any
    ) -> collections.OrderedDict[str, tf.Tensor]:
        # Whole numbers, which a secure sum gives to its quantisation only.
        clients = tf.round(directions["clients"])
        nonzero = tf.round(directions["nonzero"])
        squared_norm = tensors.global_norm(directions["unit"]) ** 2
        ordered_pairs = clients * (clients - 1)
        cosine = (squared_norm - nonzero) / ordered_pairs
        return collections.OrderedDict(
            pseudo_gradient_norm=tensors.global_norm(result),
            mean_client_norm=norms / clients,
            # The quotient's rounding errors would be infinite without a pair.
            mean_pairwise_cosine=tf.where(ordered_pairs > 0, cosine, np.nan),
        )

    return measure
