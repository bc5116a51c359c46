"""The arguments of `compose`, validated and completed by defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_drift import aggregators, checks, client_works, compat, optimizers
from tff_drift.algorithms.server_steps import (
    OptimizerStep,
    PlainOptimizerStep,
    ServerStep,
)
from tff_drift.models.example_weights import CLIENT_WEIGHT


def as_server_step(
    server_step: ServerStep | optimizers.OptimizerOrRate,
    server_rate_schedule: optimizers.Schedule | None,
    spec: client_works.ModelSpec,
    keeps_client_state: bool,
) -> ServerStep:
    """Returns the server's half, at a scheduled rate if there is a schedule.

    Args:
      server_step: A step, an optimizer, or the rate η_g of SGD.
      server_rate_schedule: See `ProcessOptions`.
      spec: The model.
      keeps_client_state: Whether clients keep a state. Without, the state of an
        optimizer is stored as TFF's own processes store it.

    Returns:
      A `ServerStep`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If a rate is not a finite number greater than 0, or there is a
        schedule and no rate.
    """
    if isinstance(server_step, type) and issubclass(server_step, ServerStep):
        checks.check_instance("server_optimizer_fn", server_step, ServerStep)
    if not isinstance(server_step, ServerStep):
        optimizer = optimizers.as_optimizer("server_optimizer_fn", server_step)
        if keeps_client_state:
            server_step = OptimizerStep(optimizer)
        else:
            like = compat.type_to_tf_tensor_specs(spec.weights_type.trainable)
            server_step = PlainOptimizerStep(optimizer, like)
    if server_rate_schedule is None:
        return server_step
    return server_step.scheduled(
        optimizers.as_schedule(server_rate_schedule, "server_rate_schedule")
    )


def build_model_distributor(
    model_distributor: Any, spec: client_works.ModelSpec
) -> tff.learning.templates.DistributionProcess:
    """Returns the process that sends the model.

    Args:
      model_distributor: The process, or None for the default of `ProcessOptions`.
      spec: The model.

    Returns:
      A `tff.learning.templates.DistributionProcess`.

    Raises:
      TypeError: If `model_distributor` is something else, or sends other weights.
    """
    if model_distributor is None:
        return tff.learning.templates.build_broadcast_process(spec.weights_type)
    kind = tff.learning.templates.DistributionProcess
    remedy = "tff.learning.templates.build_broadcast_process makes one."
    checks.check_instance("model_distributor", model_distributor, kind, remedy=remedy)
    signature: Any = model_distributor.next.type_signature
    sent, received = signature.parameter[1].member, signature.result.result.member
    for found in (sent, received):
        if not (
            found.is_assignable_from(spec.weights_type)
            and spec.weights_type.is_assignable_from(found)
        ):
            raise TypeError(
                "model_distributor must send and return the weights of the model, "
                f"{checks.shortened(spec.weights_type)}, found "
                f"{checks.shortened(found)}. Build it for them: "
                "tff.learning.models.weights_type_from_model(model_fn) is their type."
            )
    return model_distributor


def check_factory(name: str, factory: Any) -> None:
    """Raises unless a factory's processes average.

    Args:
      name: The argument that holds the factory.
      factory: A weighted or unweighted factory, or None for the default of
        `ProcessOptions`.

    Raises:
      TypeError: If `factory` is something else.
    """
    if isinstance(factory, aggregators.ControlVariateFactory):
        raise TypeError(
            f"{name} is a ControlVariateFactory, which adds up changes of a "
            "control variate and does not average updates. Pass a factory such as "
            "tff.aggregators.MeanFactory(no_nan_division=True)."
        )
    kinds = (
        tff.aggregators.UnweightedAggregationFactory,
        tff.aggregators.WeightedAggregationFactory,
    )
    if factory is not None:
        what = "a factory of tff.aggregators or tff_drift.aggregators"
        remedy = "Pass the factory itself, not the process that it creates."
        checks.check_instance(name, factory, kinds, what, remedy)


def build_weighted_aggregator(
    name: str, factory: Any, value_type: compat.Type
) -> tff.templates.AggregationProcess:
    """Creates the process that aggregates the clients' updates.

    Args:
      name: The argument that holds the factory.
      factory: What `check_factory` takes.
      value_type: The type of what one client sends.

    Returns:
      A weighted aggregation process.

    Raises:
      TypeError: If `factory` refuses values of the type, or its process returns another
        type than it takes.
    """
    if factory is None:
        factory = tff.aggregators.MeanFactory(no_nan_division=True)
    elif isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
        factory = tff.aggregators.as_weighted_aggregator(factory)
    try:
        process = factory.create(value_type, compat.to_type(np.float32))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} cannot aggregate the type {checks.shortened(value_type)}: "
            f"{checks.shortened(error)}"
        ) from error
    result_type = process.next.type_signature.result.result.member
    if not value_type.is_assignable_from(result_type):
        raise TypeError(
            f"{name} must return the type that it aggregates, "
            f"{checks.shortened(value_type)}, found {checks.shortened(result_type)}."
        )
    return process


def check_message_aggregator(
    factory: Any, weighting: tff.learning.ClientWeighting | str
) -> None:
    """Raises unless messages are averaged with the weights of the updates.

    Args:
      factory: The factory for messages; None for the weighted mean.
      weighting: How updates are weighted.

    Raises:
      ValueError: If messages would be averaged alike, and updates by examples.
    """
    is_plain = isinstance(factory, tff.aggregators.UnweightedAggregationFactory)
    if is_plain and weighting != tff.learning.ClientWeighting.UNIFORM:
        raise ValueError(
            "message_aggregator must be a weighted factory with client_weighting "
            "NUM_EXAMPLES, because updates and messages have to have the same weights, "
            f"found {checks.shown(factory)}. Give one such as "
            "tff.aggregators.MeanFactory(), or client_weighting UNIFORM."
        )


def check_given_weights(
    weighting: tff.learning.ClientWeighting | str,
    spec: client_works.ModelSpec,
    keeps_client_state: bool,
) -> None:
    """Raises if clients are to be weighted as batches say, and cannot be.

    Args:
      weighting: How clients are weighted.
      spec: The model.
      keeps_client_state: Whether clients keep a state.

    Raises:
      ValueError: If batches have no such weight, or clients keep a state.
    """
    if weighting != CLIENT_WEIGHT:
        return
    if keeps_client_state:
        raise ValueError(
            f"client_weighting {checks.shown(weighting)} is for methods whose clients "
            "keep no state: what these keep is summed by NUM_EXAMPLES or UNIFORM. "
            "Give one of these."
        )
    element = spec.data_type.element
    is_mapping = isinstance(element, compat.StructType)
    if not is_mapping or CLIENT_WEIGHT not in compat.structure_names(element):
        raise ValueError(
            f"client_weighting is {checks.shown(weighting)}, and the batches that the "
            f"model takes, {checks.shown(str(element))}, have no array of that name. "
            'Give examples as {"client_weight": ..., "x": ..., "y": ...}, as '
            "with_client_weights of ClientDatasets does, and build the model of their "
            "element_spec with tff_drift.models.from_keras2 or from_keras3."
        )


def build_metrics_aggregation(
    metrics_aggregator: Callable[[Any], Any] | None, spec: client_works.ModelSpec
) -> Any:
    """Returns the computation that aggregates the clients' training metrics.

    Args:
      metrics_aggregator: Makes it, given the model's metric finalizers; `None` sums.
      spec: The model.

    Returns:
      What `metrics_aggregator` returns.

    Raises:
      TypeError: If `metrics_aggregator` is not a function, or fails or returns none.
    """
    name = "metrics_aggregator"
    if metrics_aggregator is None:
        metrics_aggregator = tff.learning.metrics.sum_then_finalize
    what = "a function such as tff.learning.metrics.sum_then_finalize"
    checks.check_callable(name, metrics_aggregator, what)
    try:
        aggregation = metrics_aggregator(spec.metric_finalizers)
    except (NotImplementedError, TypeError) as error:
        raise TypeError(
            f"{name} must be {what}, found {checks.shown(metrics_aggregator)}, which "
            f"fails on the model's metric finalizers: {checks.shortened(error)} Give "
            "the function itself, not what a call of it returns."
        ) from error
    checks.check_callable(f"what {name} returns", aggregation, "a tff.Computation")
    return aggregation
