"""Rejection of client updates that hold NaN or infinity."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import compat, tensors
from tff_drift.aggregators import wrapping

_COUNT_TYPE = compat.TensorType(np.int32)


def reject_non_finite_factory(
    inner_factory: tff.aggregators.AggregationFactory | None = None,
    *,
    count_sum_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
    """Builds an aggregator that rejects client updates with non-finite entries.

    A client whose update, or whose weight, holds NaN or an infinity sends zeros
    in place of both. All others pass with their bits unchanged. One diverged
    client thus cannot turn the model into NaN.

    What the rejection does depends on `inner_factory`:

    * weighted: the rejected client has weight 0, so that the mean is the one of
      the other clients. If all are rejected, the default inner factory gives
      zeros; `tff.aggregators.MeanFactory()` without `no_nan_division` gives NaN.
    * unweighted: the rejected client still counts, so that a mean over M clients
      of which r are rejected is (M - r) / M of the mean of the others. The sum,
      and with it differential privacy, is as if the client had sent zeros.

    TFF's own client works send zeros with weight 0 for a non-finite update by
    themselves, and keep no count; they have nothing left to reject here. This
    aggregator is for client works that do not, for weights that are not finite,
    and for what other aggregators around it compute.

    In TFF's notation, for updates V and weights W, with an inner state S, inner
    measurements M and the count's state C:

    ```
    initialize: ( -> <count=C,inner=S>@SERVER)
    next: (<state@SERVER,{V}@CLIENTS,{W}@CLIENTS> -> <state=...,result=V@SERVER,
           measurements=<rejected_clients=int32,M...>@SERVER>)
    ```

    without `{W}@CLIENTS` if `inner_factory` is unweighted. The measurement is
    the number of clients rejected in the round.

    Args:
      inner_factory: Aggregates what is left, weighted or not. By default the
        weighted mean, zero where all weights are zero.
      count_sum_factory: Sums over the clients an int32 that is 0 or 1. By
        default `tff.aggregators.SumFactory()`; for a secure sum,
        `tff.aggregators.SecureSumFactory(1, 0)`.

    Returns:
      A `tff.aggregators.WeightedAggregationFactory` if `inner_factory` is one,
      else a `tff.aggregators.UnweightedAggregationFactory`. Its `create` raises
      TypeError for tensors that are not of a floating type.

    Raises:
      TypeError: If a factory is not one of the kind asked for, or if
        `count_sum_factory` does not sum integers.
    """
    count_sum_factory = wrapping.sum_factory_or_default(
        "count_sum_factory", count_sum_factory
    )
    count_sum = wrapping.create_sum("count_sum_factory", count_sum_factory, _COUNT_TYPE)

    def describe(
        inner_process: tff.templates.AggregationProcess,
        value_type: compat.Type,
        weight_type: compat.Type | None,
    ) -> wrapping.Steps:
        reject = _build_reject(value_type, weight_type)

        def initialize() -> collections.OrderedDict[str, compat.Value]:
            return collections.OrderedDict(
                count=count_sum.initialize(), inner=inner_process.initialize()
            )

        def next_round(
            state: compat.Value, value: compat.Value, weight: compat.Value | None
        ) -> tff.templates.MeasuredProcessOutput:
            sent = (value,) if weight is None else (value, weight)
            kept, rejected = compat.federated_map(reject, compat.federated_zip(sent))
            inner = wrapping.call_next(
                inner_process,
                state["inner"],
                kept[0],
                None if weight is None else kept[1],
            )
            count = count_sum.next(state["count"], rejected)
            return tff.templates.MeasuredProcessOutput(
                state=collections.OrderedDict(count=count.state, inner=inner.state),
                result=inner.result,
                measurements=wrapping.join_measurements(
                    collections.OrderedDict(rejected_clients=count.result),
                    inner.measurements,
                ),
            )

        return wrapping.Steps(initialize, next_round)

    return wrapping.wrap_factory(inner_factory, describe)


def _build_reject(
    value_type: compat.Type, weight_type: compat.Type | None
) -> compat.Computation:
    sent_types = (value_type,) if weight_type is None else (value_type, weight_type)

    @compat.tf_computation(compat.to_type(sent_types))
    def reject(sent: Any) -> tuple[Any, tf.Tensor]:
        # Weights may be integers, which are always finite.
        finite_ones = [
            tf.reduce_all(tf.math.is_finite(tensor))
            for tensor in tf.nest.flatten(sent)
            if tensor.dtype.is_floating
        ]
        # A structure may be empty.
        finite = tf.reduce_all(finite_ones or [True])
        zeros = tf.nest.map_structure(tf.zeros_like, sent)
        kept = tensors.selected(finite, sent, zeros)
        return kept, tf.cast(tf.logical_not(finite), tf.int32)

    return reject
