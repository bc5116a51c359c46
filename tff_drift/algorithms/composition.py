"""The composition of methods without client state."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import (
    aggregators,
    checks,
    client_works,
    compat,
    optimizers,
    tensors,
)
from tff_drift.algorithms.options import MetricsAggregator


def compose(
    model_fn: client_works.ModelFn,
    work: client_works.ClientWork,
    server_optimizer_fn: optimizers.OptimizerOrRate,
    *,
    client_rate_schedule: optimizers.Schedule | None = None,
    server_rate_schedule: optimizers.Schedule | None = None,
    model_distributor: tff.learning.templates.DistributionProcess | None = None,
    model_aggregator: Any = None,
    metrics_aggregator: MetricsAggregator | None = None,
    client_weighting: tff.learning.ClientWeighting = (
        tff.learning.ClientWeighting.NUM_EXAMPLES
    ),
    loop_implementation: tff.learning.LoopImplementation | None = None,
) -> tff.learning.templates.LearningProcess:
    """Composes a method's local work and server step into a learning process.

    One round is

    ```
    distribute x  ->  work on every client  ->  aggregate  ->  server optimizer
    ```

    A client whose update is not finite is left out, and a round whose aggregate
    is not finite changes nothing; both are counted in the metrics. So does one whose
    aggregate is exactly zero, as it is where no client carries weight.

    Args:
      model_fn: The model, see `tff_drift.client_works.build_model_spec`.
      work: The client's half of the method.
      server_optimizer_fn: The server's half, an optimizer or the rate η_g of SGD.
      client_rate_schedule: See `TrainingOptions`.
      server_rate_schedule: See `ProcessOptions`, as the others.
      model_distributor: See `ProcessOptions`.
      model_aggregator: See `ProcessOptions`.
      metrics_aggregator: See `ProcessOptions`.
      client_weighting: See `ProcessOptions`.
      loop_implementation: See `ProcessOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, or the aggregator returns
        another type than it takes.
      ValueError: If a schedule has no learning rate to act on.
    """
    server_optimizer = as_server_optimizer(server_optimizer_fn, server_rate_schedule)
    spec = client_works.build_model_spec(model_fn)
    client_work = client_works.build_client_work(
        spec,
        work,
        client_weighting=client_weighting,
        rate_schedule=client_rate_schedule,
        metrics_aggregator=metrics_aggregator,
        loop_implementation=loop_implementation,
    )
    return tff.learning.templates.compose_learning_process(
        spec.initial_weights,
        build_model_distributor(model_distributor, spec),
        client_work,
        build_model_aggregator(model_aggregator, spec.weights_type.trainable),
        tff.learning.templates.build_apply_optimizer_finalizer(
            server_optimizer, spec.weights_type, _should_reject
        ),
    )


def _should_reject(
    optimizer_state: Any, pseudo_gradient: Any
) -> tuple[tf.Tensor, collections.OrderedDict[str, tf.Tensor]]:
    """Returns whether the server takes no step, and what it reports.

    A mean that is zero in every entry is that of no client with weight: momentum and
    weight decay shall not move the model on behalf of nobody.
    """
    del optimizer_state
    leaves = tf.nest.flatten(pseudo_gradient)
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(leaf)) for leaf in leaves])
    is_zero = tf.reduce_all([tf.reduce_all(tf.equal(leaf, 0)) for leaf in leaves])
    measurements = collections.OrderedDict(
        update_non_finite=tf.cast(tf.logical_not(finite), tf.int32),
        pseudo_gradient_norm=tensors.global_norm(leaves),
    )
    return tf.logical_or(is_zero, tf.logical_not(finite)), measurements


def as_server_optimizer(
    server_optimizer_fn: optimizers.OptimizerOrRate,
    server_rate_schedule: optimizers.Schedule | None,
) -> tff.learning.optimizers.Optimizer:
    """Returns the server's optimizer, at a scheduled rate if there is a schedule.

    Args:
      server_optimizer_fn: An optimizer, or the rate η_g of SGD.
      server_rate_schedule: See `ProcessOptions`.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If a rate is not a finite number greater than 0.
    """
    optimizer = optimizers.as_optimizer("server_optimizer_fn", server_optimizer_fn)
    if server_rate_schedule is None:
        return optimizer
    return optimizers.build_scheduled(
        optimizer, optimizers.as_schedule(server_rate_schedule, "server_rate_schedule")
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
      TypeError: If `model_distributor` is something else.
    """
    if model_distributor is None:
        return tff.learning.templates.build_broadcast_process(spec.weights_type)
    checks.check_instance(
        "model_distributor",
        model_distributor,
        tff.learning.templates.DistributionProcess,
        "a tff.learning.templates.DistributionProcess such as "
        "tff.learning.templates.build_broadcast_process makes",
    )
    return model_distributor


def build_model_aggregator(
    model_aggregator: Any, update_type: compat.Type
) -> tff.templates.AggregationProcess:
    """Creates the process that aggregates the clients' updates.

    Args:
      model_aggregator: A weighted or unweighted factory, or None for the default of
        `ProcessOptions`.
      update_type: The type of one client's update.

    Returns:
      A weighted aggregation process.

    Raises:
      TypeError: If `model_aggregator` is not a factory, or its process returns
        another type than it takes.
    """
    if model_aggregator is None:
        model_aggregator = tff.aggregators.MeanFactory(no_nan_division=True)
    elif isinstance(model_aggregator, aggregators.ControlVariateFactory):
        raise TypeError(
            "model_aggregator is a ControlVariateFactory, which adds up changes of a "
            "control variate and does not average updates. Pass a factory such as "
            "tff.aggregators.MeanFactory(no_nan_division=True)."
        )
    elif isinstance(model_aggregator, tff.aggregators.UnweightedAggregationFactory):
        model_aggregator = tff.aggregators.as_weighted_aggregator(model_aggregator)
    elif not isinstance(model_aggregator, tff.aggregators.WeightedAggregationFactory):
        raise TypeError(
            "model_aggregator must be a factory of tff.aggregators or "
            f"tff_drift.aggregators, found {model_aggregator!r}. Pass the factory "
            "itself, not the process that it creates."
        )
    process = model_aggregator.create(update_type, compat.to_type(np.float32))
    result_type = process.next.type_signature.result.result.member
    if not update_type.is_assignable_from(result_type):
        raise TypeError(
            f"model_aggregator must return the type that it aggregates, {update_type}, "
            f"found {result_type}."
        )
    return process
