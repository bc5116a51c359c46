"""The composition of a method into a learning process.

What the server sends is worked out first (`server`), then the client's computation
(`client`), whose messages the aggregation takes (`aggregation`), then the server's
computations; `rounds` joins them to a round.
"""

from __future__ import annotations

from typing import Any

import tensorflow_federated as tff

from tff_drift import aggregators, checks, client_works, optimizers, tensors
from tff_drift.algorithms.composition import arguments, server
from tff_drift.algorithms.composition.aggregation import CohortAggregation
from tff_drift.algorithms.composition.client import build_client_half
from tff_drift.algorithms.composition.rounds import Parts, build_process
from tff_drift.algorithms.composition.settings import settings_of
from tff_drift.algorithms.options import MetricsAggregator, check_client_weighting
from tff_drift.algorithms.server_steps import AveragedStep, ServerStep
from tff_drift.client_works import round_state


def compose(
    model_fn: client_works.ModelFn,
    work: client_works.ClientWork,
    server_step: ServerStep | optimizers.OptimizerOrRate,
    *,
    control_variate_factory: aggregators.ControlVariateFactory | None = None,
    message_aggregator: Any = None,
    num_clients: int | None = None,
    client_rate_schedule: optimizers.Schedule | None = None,
    server_rate_schedule: optimizers.Schedule | None = None,
    evaluated_model: str = server.AGGREGATE,
    averaging_growth: float = 1.0,
    keep_latest_models: bool = False,
    model_distributor: tff.learning.templates.DistributionProcess | None = None,
    model_aggregator: Any = None,
    metrics_aggregator: MetricsAggregator | None = None,
    client_weighting: tff.learning.ClientWeighting | str | None = None,
    loop_implementation: tff.learning.LoopImplementation | None = None,
) -> Any:
    """Composes a method's local work and server step into a learning process.

    A client whose update is not finite is left out, and a round whose aggregate or new
    model is not finite changes nothing; both are counted in the metrics. Nor does a
    round change anything in which no client counts, or whose aggregate is exactly zero.
    A client that takes no step, at a rate of 0, keeps its state and says nothing.

    Args:
      model_fn: The model, see `tff_drift.client_works.build_model_spec`.
      work: The client's half of the method. Clients keep a state if it defines
        `initial_client_state`, and send a message if its `update_client_state`
        returns one.
      server_step: The server's half: a `ServerStep`, an optimizer, or the rate η_g of
        SGD. What its `message` returns reaches the clients.
      control_variate_factory: Sums the clients' messages, and holds the server's
        control variate, which is sent to the clients; None for methods without.
      message_aggregator: How messages are averaged otherwise, a factory as
        `model_aggregator`, but weighted where updates are weighted by examples; by
        default as `Cohort.message` they reach the server step as the mean with the
        weights of the updates.
      num_clients: N, for a driver that knows all clients; None if
        the method does not depend on it.
      client_rate_schedule: See `TrainingOptions`.
      server_rate_schedule: See `ProcessOptions`.
      evaluated_model: See `StatefulOptions`.
      averaging_growth: See `StatefulOptions`.
      keep_latest_models: See `StatefulOptions`.
      model_distributor: See `ProcessOptions`.
      model_aggregator: See `ProcessOptions`.
      metrics_aggregator: See `ProcessOptions`.
      client_weighting: See `ProcessOptions`; by default UNIFORM where clients keep a
        state, and otherwise NUM_EXAMPLES.
      loop_implementation: See `ProcessOptions`.

    Returns:
      A `StatefulLearningProcess` if clients keep a state, otherwise a
      `ComposedLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, or clients keep a state or send a
        message and the model's trainable weights are not all of one floating dtype.
      ValueError: If an argument is out of its range, or a schedule has no learning
        rate to act on.
    """
    checks.check_instance("work", work, client_works.ClientWork)
    if loop_implementation is not None:
        kind = tff.learning.LoopImplementation
        checks.check_instance("loop_implementation", loop_implementation, kind)
    checks.check_one_of("evaluated_model", evaluated_model, server.EVALUATED_MODELS)
    checks.check_positive("averaging_growth", averaging_growth)
    checks.check_flag("keep_latest_models", keep_latest_models)
    keeps_client_state = work.keeps_client_state or keep_latest_models
    if client_weighting is None:
        client_weighting = (
            tff.learning.ClientWeighting.UNIFORM
            if keeps_client_state
            else tff.learning.ClientWeighting.NUM_EXAMPLES
        )
    check_client_weighting(client_weighting)
    arguments.check_factory("model_aggregator", model_aggregator)
    arguments.check_factory("message_aggregator", message_aggregator)
    spec = client_works.build_model_spec(model_fn)
    metrics = arguments.build_metrics_aggregation(metrics_aggregator, spec)
    arguments.check_given_weights(client_weighting, spec, keeps_client_state)
    server_step = arguments.as_server_step(
        server_step, server_rate_schedule, spec, keeps_client_state
    )
    server_step.check_aggregator(model_aggregator)
    if evaluated_model == server.AVERAGE:
        server_step = AveragedStep(server_step, averaging_growth)
    work.check_model(spec)
    if work.needs_full_gradient or work.needs_cohort_gradient:
        # Refuses weights that make no vector, before a client's work is built.
        tensors.vector_type(spec.weights_type.trainable)
    rounds = round_state.build_round_state(work, client_rate_schedule)
    distributor = arguments.build_model_distributor(model_distributor, spec)
    variate_type = None
    if control_variate_factory is not None:
        variate_type = tensors.vector_type(spec.weights_type.trainable)
    initial_step_state = server.build_initial_step_state(spec, server_step)
    message = server.build_message(
        server_step, initial_step_state.type_signature.result, variate_type
    )
    weighting = client_weighting
    if isinstance(model_aggregator, tff.aggregators.UnweightedAggregationFactory):
        # Messages are averaged alike, or a method would mix two means.
        weighting = tff.learning.ClientWeighting.UNIFORM
    arguments.check_message_aggregator(message_aggregator, weighting)
    client = build_client_half(
        spec,
        rounds,
        work,
        server_message_type=message.type_signature.result,
        client_weighting=weighting,
        keep_latest_models=keep_latest_models,
        loop_implementation=loop_implementation or spec.loop_implementation,
    )
    aggregation = CohortAggregation(
        model_aggregator,
        control_variate_factory,
        message_aggregator,
        update_type=spec.weights_type.trainable,
        message_type=client.message_type,
        keeps_client_state=keeps_client_state,
        normalizes_update=work.normalizes_update,
    )
    parts = Parts(
        rounds,
        distributor,
        message,
        client,
        aggregation,
        server.build_server_half(
            spec,
            rounds,
            server_step,
            initial_step_state,
            distributor,
            aggregation,
            evaluated_model=evaluated_model,
            reports_model_norm=keeps_client_state,
        ),
        metrics,
    )
    process = build_process(parts, num_clients)
    process.needs_full_participation = work.needs_full_participation
    process.weight_places = spec.weight_places
    process.settings = {
        "client_work": settings_of(work),
        "server_step": settings_of(server_step),
        "client_weighting": str(client_weighting),
        "evaluated_model": evaluated_model,
        "keep_latest_models": keep_latest_models,
    }
    if control_variate_factory is not None:
        process.settings["control_variate"] = settings_of(control_variate_factory)
    if rounds.rate_schedule is not None:
        process.settings["client_rate_schedule"] = rounds.rate_schedule.digest()
    return process
