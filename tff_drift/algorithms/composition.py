"""The composition that the methods share, and the options they share."""

from __future__ import annotations

from typing import Any, Callable, TypedDict, Union

import numpy as np
import tensorflow_federated as tff

from tff_drift import checks, client_works, compat, optimizers

ClientOptimizer = Union[tff.learning.optimizers.Optimizer, float]
MetricsAggregator = Callable[[Any], Any]


class ProcessOptions(TypedDict, total=False):
    """The options that every `build_*` function of this package accepts.

    Attributes:
      server_rate_schedule: Multiplies the server learning rate, as a function of
        the round number, which starts at 0; see `tff_drift.optimizers`. By
        default the rate is constant.
      model_distributor: How the server sends the model. By default
        `tff.learning.templates.build_broadcast_process`.
      model_aggregator: How updates are aggregated, a weighted or an unweighted
        `tff.aggregators` factory; see `tff_drift.aggregators`. By default
        `tff.aggregators.MeanFactory(no_nan_division=True)`: the weighted mean,
        and no step if no client of the cohort carries weight.
      metrics_aggregator: How the clients' training metrics are aggregated. By
        default `tff.learning.metrics.sum_then_finalize`.
      client_weighting: A client's weight p_i in the mean, a
        `tff.learning.ClientWeighting`: by default NUM_EXAMPLES, the number of
        examples it trained on; UNIFORM weighs every client 1.
      loop_implementation: How the loop over a client's batches is built, a
        `tff.learning.LoopImplementation`. The default depends on the model.
    """

    server_rate_schedule: optimizers.Schedule | None
    model_distributor: tff.learning.templates.DistributionProcess | None
    model_aggregator: tff.aggregators.WeightedAggregationFactory | None
    metrics_aggregator: MetricsAggregator | None
    client_weighting: tff.learning.ClientWeighting
    loop_implementation: tff.learning.LoopImplementation | None


class TrainingOptions(ProcessOptions, total=False):
    """`ProcessOptions`, and what methods with local steps accept besides.

    Attributes:
      client_rate_schedule: Multiplies the clients' learning rate, as a function
        of the round number, which starts at 0; see `tff_drift.optimizers`. By
        default the rate is constant.
    """

    client_rate_schedule: optimizers.Schedule | None


def as_client_optimizer(
    client_optimizer_fn: ClientOptimizer,
) -> tff.learning.optimizers.Optimizer:
    """Returns the clients' optimizer: SGD if only a learning rate is given.

    Args:
      client_optimizer_fn: An optimizer, or the learning rate η of plain SGD.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If `client_optimizer_fn` is neither.
      ValueError: If the learning rate is not a finite number greater than 0.
    """
    if isinstance(client_optimizer_fn, tff.learning.optimizers.Optimizer):
        return client_optimizer_fn
    if callable(client_optimizer_fn):
        raise TypeError(
            "client_optimizer_fn must be a learning rate or a "
            "tff.learning.optimizers.Optimizer such as "
            "tff.learning.optimizers.build_sgdm(0.1), found the function "
            f"{client_optimizer_fn!r}. Pass what it returns."
        )
    checks.check_positive("client_optimizer_fn", client_optimizer_fn)
    return tff.learning.optimizers.build_sgdm(float(client_optimizer_fn))


def compose(
    model_fn: client_works.ModelFn,
    work: client_works.LocalWork,
    server_optimizer: tff.learning.optimizers.Optimizer,
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
    is not finite changes nothing; both are counted in the metrics.

    Args:
      model_fn: The model, see `tff_drift.client_works.build_model_spec`.
      work: The client's half of the method.
      server_optimizer: The server's half.
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
    spec = client_works.build_model_spec(model_fn)
    client_work = client_works.build_client_work(
        spec,
        work,
        client_weighting=client_weighting,
        rate_schedule=client_rate_schedule,
        metrics_aggregator=metrics_aggregator,
        loop_implementation=loop_implementation,
    )
    return compose_client_work(
        spec,
        client_work,
        server_optimizer,
        server_rate_schedule=server_rate_schedule,
        model_distributor=model_distributor,
        model_aggregator=model_aggregator,
    )


def compose_client_work(
    spec: client_works.ModelSpec,
    client_work: tff.learning.templates.ClientWorkProcess,
    server_optimizer: tff.learning.optimizers.Optimizer,
    *,
    server_rate_schedule: optimizers.Schedule | None = None,
    model_distributor: tff.learning.templates.DistributionProcess | None = None,
    model_aggregator: Any = None,
) -> tff.learning.templates.LearningProcess:
    """Composes a client work and a server step into a learning process.

    Args:
      spec: The model.
      client_work: The clients' half, a process for this model.
      server_optimizer: The server's half.
      server_rate_schedule: See `ProcessOptions`, as the others.
      model_distributor: See `ProcessOptions`.
      model_aggregator: See `ProcessOptions`.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, or the aggregator returns
        another type than it takes.
      ValueError: If the schedule has no learning rate to act on.
    """
    if not isinstance(server_optimizer, tff.learning.optimizers.Optimizer):
        raise TypeError(
            "server_optimizer_fn must be a tff.learning.optimizers.Optimizer such as "
            f"tff.learning.optimizers.build_sgdm(1.0), found {server_optimizer!r}."
        )
    if server_rate_schedule is not None:
        server_optimizer = optimizers.build_scheduled(
            server_optimizer,
            optimizers.as_schedule(server_rate_schedule, "server_rate_schedule"),
        )
    return tff.learning.templates.compose_learning_process(
        spec.initial_weights,
        model_distributor
        or tff.learning.templates.build_broadcast_process(spec.weights_type),
        client_work,
        build_model_aggregator(model_aggregator, spec.weights_type.trainable),
        tff.learning.templates.build_apply_optimizer_finalizer(
            server_optimizer, spec.weights_type
        ),
    )


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
