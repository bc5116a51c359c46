"""Clipping of client updates to a norm that follows a quantile of their norms."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat, tensors
from tff_drift.aggregators import wrapping

_FLOAT32 = np.finfo(np.float32)
# The state's field and the measurement.
_CLIPPING_NORM = "clipping_norm"
# What a client says about its own update: whether its norm is at most the
# clipping norm, and that it took part. Integers, so that a secure sum is exact.
_INDICATOR_TYPE = compat.to_type(
    collections.OrderedDict(unclipped=np.int32, clients=np.int32)
)


def adaptive_clipping_factory(
    inner_factory: tff.aggregators.AggregationFactory | None = None,
    *,
    initial_clipping_norm: float = 1.0,
    target_quantile: float = 0.8,
    learning_rate: float = 0.2,
    indicator_factory: tff.aggregators.UnweightedAggregationFactory | None = None,
) -> tff.aggregators.AggregationFactory:
    """Builds an aggregator that clips client updates to an adaptive norm.

    Algorithm 2 of Charles et al. (2021), On Large-Cohort Training for Federated
    Learning, https://arxiv.org/abs/2106.07820, after Andrew et al. (2021),
    Differentially Private Learning with Adaptive Clipping,
    https://arxiv.org/abs/1905.03871. With ||.|| the L2 norm over all tensors of
    an update together, in one round with clipping norm rho:

    ```
    client k:  b_k = 1 if ||Delta_k|| <= rho else 0
               sends b_k and Delta_k min(1, rho / ||Delta_k||)
    server:    Delta <- what inner_factory makes of the clipped updates
               b     <- mean of b_k, every client of positive weight counting the same
               rho   <- rho exp(-learning_rate (b - target_quantile))
    ```

    where rho starts at `initial_clipping_norm` (the paper's rho_1),
    `target_quantile` is q and `learning_rate` is eta_a. A round clips to the rho
    from before its update. The weights, if `inner_factory` takes any, reach it
    unchanged, and enter b only in that a client of weight 0 does not count: the
    zeros of a client that was rejected, or that trained on nothing, say nothing about
    the norms of updates.

    In TFF's notation, for updates V and weights W, with an inner state S, inner
    measurements M and the indicator's state I:

    ```
    initialize: ( -> <clipping_norm=float32,indicator=I,inner=S>@SERVER)
    next: (<state@SERVER,{V}@CLIENTS,{W}@CLIENTS> -> <state=...,result=V@SERVER,
           measurements=<clipping_norm=float32,clipped_count=int32,
                         clipped_fraction=float32,M...>@SERVER>)
    ```

    without `{W}@CLIENTS` if `inner_factory` is unweighted. The measurements are
    the rho that the round used, the number of clients with b_k = 0 and their
    share 1 - b. `clipping_norm` reads rho, the next round's, from the state.

    Besides the formulas:

    * An update that is not clipped passes with its bits unchanged, so that an
      unreachable `initial_clipping_norm` gives exactly the inner aggregation.
      With `learning_rate` 0 the clipping norm is constant.
    * Norms are computed in float32 for tensors of any floating types. A finite
      update whose norm overflows float32 (above about 1.8e19) is clipped to zero.
    * An update that holds NaN or infinity counts as clipped but stays
      non-finite: use `reject_non_finite_factory`, around this one or inside it.
      Around it, a rejected client does not count if `inner_factory` is weighted;
      if not, its zeros count as an unclipped update.
    * rho stays within the positive finite float32 numbers, so that it can always
      come back, and a round without clients that count leaves it as it is.

    TFF's own `tff.aggregators.clipping_factory` with a
    `tff.aggregators.PrivateQuantileEstimationProcess` follows the same formulas.
    It computes the norm in each tensor's own dtype (infinite for float16 entries
    of 256), aggregates the indicator a second time for its count, and gives
    neither the share of clipped clients nor an easy way to read rho.

    The clipping norm itself is not differentially private: where it must be, use
    `tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive`.

    Args:
      inner_factory: Aggregates the clipped updates, weighted or not. By default
        the weighted mean, zero where all weights are zero. To aggregate
        securely give it a secure factory and `indicator_factory` too.
      initial_clipping_norm: The clipping norm of the first round, positive.
      target_quantile: The share of client updates that is to pass unclipped, in
        [0, 1].
      learning_rate: How fast the clipping norm adapts: in a round it changes by
        a factor of at most exp(learning_rate). At least 0.
      indicator_factory: Sums over the clients `<unclipped=int32,clients=int32>`,
        of which each is 0 or 1. By default `tff.aggregators.SumFactory()`; for a
        secure sum, `tff.aggregators.SecureSumFactory(1, 0)`.

    Returns:
      A `tff.aggregators.WeightedAggregationFactory` if `inner_factory` is one,
      else a `tff.aggregators.UnweightedAggregationFactory`. Its `create` raises
      TypeError for tensors that are not of a floating type.

    Raises:
      TypeError: If a factory is not one of the kind asked for, if
        `indicator_factory` does not sum integers, or if another argument is not
        a number.
      ValueError: If a number is out of its range.
    """
    checks.check_positive("initial_clipping_norm", initial_clipping_norm)
    checks.check_probability("target_quantile", target_quantile)
    checks.check_non_negative("learning_rate", learning_rate)
    indicator_factory = wrapping.sum_factory_or_default(
        "indicator_factory", indicator_factory
    )
    indicator_sum = wrapping.create_sum(
        "indicator_factory", indicator_factory, _INDICATOR_TYPE
    )
    adapt = _build_adapt(target_quantile, learning_rate)

    def describe(
        inner_process: tff.templates.AggregationProcess,
        value_type: compat.Type,
        weight_type: compat.Type | None,
    ) -> wrapping.Steps:
        clip = _build_clip(value_type)
        if weight_type is not None:
            count = _build_count(weight_type)

        def initialize() -> collections.OrderedDict[str, compat.Value]:
            return collections.OrderedDict(
                clipping_norm=compat.federated_value(
                    np.float32(initial_clipping_norm), compat.SERVER
                ),
                indicator=indicator_sum.initialize(),
                inner=inner_process.initialize(),
            )

        def next_round(
            state: compat.Value, value: compat.Value, weight: compat.Value | None
        ) -> tff.templates.MeasuredProcessOutput:
            norm = state[_CLIPPING_NORM]
            clipped, indicator = compat.federated_map(
                clip, (value, compat.federated_broadcast(norm))
            )
            if weight is not None:
                indicator = compat.federated_map(count, (indicator, weight))
            inner = wrapping.call_next(inner_process, state["inner"], clipped, weight)
            sums = indicator_sum.next(state["indicator"], indicator)
            new_norm, own = compat.federated_map(adapt, (norm, sums.result))
            return tff.templates.MeasuredProcessOutput(
                state=collections.OrderedDict(
                    clipping_norm=new_norm, indicator=sums.state, inner=inner.state
                ),
                result=inner.result,
                measurements=wrapping.join_measurements(
                    collections.OrderedDict(
                        clipping_norm=norm, **wrapping.parts_of(own)
                    ),
                    inner.measurements,
                ),
            )

        return wrapping.Steps(initialize, next_round)

    return wrapping.wrap_factory(inner_factory, describe)


def _build_clip(value_type: compat.Type) -> compat.Computation:
    @compat.tf_computation(value_type, np.float32)
    def clip(value: Any, clipping_norm: tf.Tensor) -> tuple[Any, Any]:
        norm = tensors.global_norm(value)
        unclipped = norm <= clipping_norm
        clipped = tensors.selected(
            unclipped, value, tensors.scaled(value, clipping_norm / norm)
        )
        indicator = collections.OrderedDict(
            unclipped=tf.cast(unclipped, tf.int32), clients=tf.constant(1)
        )
        return clipped, indicator

    return clip


def _build_count(weight_type: compat.Type) -> compat.Computation:
    @compat.tf_computation(_INDICATOR_TYPE, weight_type)
    def count(indicator: Any, weight: tf.Tensor) -> Any:
        counts = tf.cast(weight > 0, tf.int32)
        return collections.OrderedDict(
            unclipped=indicator["unclipped"] * counts, clients=counts
        )

    return count


def _build_adapt(target_quantile: float, learning_rate: float) -> compat.Computation:
    @compat.tf_computation(np.float32, _INDICATOR_TYPE)
    def adapt(
        clipping_norm: tf.Tensor, sums: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, Any]:
        unclipped = tf.cast(sums["unclipped"], tf.float32)
        clients = tf.cast(sums["clients"], tf.float32)
        # With no client there is nothing to adapt to: b is taken as on target.
        b = tf.where(clients > 0, unclipped / clients, target_quantile)
        new_norm = clipping_norm * tf.exp(-learning_rate * (b - target_quantile))
        measurements = collections.OrderedDict(
            clipped_count=sums["clients"] - sums["unclipped"],
            clipped_fraction=tf.math.divide_no_nan(clients - unclipped, clients),
        )
        return (
            tf.clip_by_value(new_norm, _FLOAT32.tiny, _FLOAT32.max),
            measurements,
        )

    return adapt


def clipping_norm(state: Any) -> float:
    """Reads the clipping norm rho, which the next round will use, from a state.

    Args:
      state: The state of an `adaptive_clipping_factory` process, of a process
        that holds one at any depth (other factories around it), or of the
        learning process that aggregates with it.

    Returns:
      The clipping norm.

    Raises:
      ValueError: If `state` holds no adaptive clipping, or more than one.
    """
    found = list(_clipping_norms(getattr(state, "aggregator", state)))
    if len(found) != 1:
        raise ValueError(
            "state must hold the state of exactly one adaptive clipping, found "
            f"{len(found)} in a {type(state).__name__}. Pass the state of a "
            "process built with one adaptive_clipping_factory, or the part of "
            "the state that belongs to the one wanted."
        )
    return float(found[0])


def _clipping_norms(state: Any) -> Iterator[Any]:
    if isinstance(state, Mapping):
        for name, part in state.items():
            # TFF's own clipping has a field of this name, which is a structure.
            if name == _CLIPPING_NORM and not isinstance(part, (Mapping, tuple)):
                yield part
            else:
                yield from _clipping_norms(part)
    elif isinstance(state, (tuple, list)):
        for part in state:
            yield from _clipping_norms(part)
