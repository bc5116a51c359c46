"""The composition of methods whose clients keep a state between rounds.

TFF's composer lets nothing but the model's update leave a client. The one here
takes a client's state beside its examples and gives the new state back:

    θ, message  ->  local work on (examples, client state)  ->  aggregate
                ->  server step  ->  θ, server state, new client states

The server's computations are built first (`stateful_server`), since they say what the
clients receive, then the client's (`stateful_client`), and here both are joined to a
round.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_drift import aggregators, checks, client_works, compat, optimizers, tensors
from tff_drift.algorithms import composition, stateful_server
from tff_drift.algorithms.options import MetricsAggregator
from tff_drift.algorithms.server_steps import AveragedStep, ServerStep
from tff_drift.algorithms.stateful_aggregation import CohortAggregation
from tff_drift.algorithms.stateful_client import build_client_half
from tff_drift.algorithms.stateful_process import (
    CLIENT_STATES,
    StatefulLearningProcess,
)
from tff_drift.client_works import client_work, round_state

# `(S, client data) -> (S, metrics, the clients' new states)`, on federated values.
RunRound = Callable[[Any, Any], tuple[Any, Any, Any]]


def compose_stateful(
    model_fn: client_works.ModelFn,
    work: client_works.StatefulSgd,
    server_step: ServerStep,
    *,
    control_variate_factory: aggregators.ControlVariateFactory | None = None,
    num_clients: int | None = None,
    client_rate_schedule: optimizers.Schedule | None = None,
    server_rate_schedule: optimizers.Schedule | None = None,
    evaluated_model: str = stateful_server.AGGREGATE,
    averaging_growth: float = 1.0,
    keep_latest_models: bool = False,
    model_distributor: tff.learning.templates.DistributionProcess | None = None,
    model_aggregator: Any = None,
    metrics_aggregator: MetricsAggregator | None = None,
    client_weighting: tff.learning.ClientWeighting = (
        tff.learning.ClientWeighting.UNIFORM
    ),
    loop_implementation: tff.learning.LoopImplementation | None = None,
) -> StatefulLearningProcess:
    """Composes a method with client state into a learning process.

    Args:
      model_fn: The model, see `tff_drift.client_works.build_model_spec`.
      work: The client's half of the method.
      server_step: The server's half.
      control_variate_factory: Aggregates the messages that the clients send besides
        their updates, and holds the server's control variate, which is sent to the
        clients; None for methods whose clients send nothing else.
      num_clients: N, for whoever drives the process and knows all clients; None if
        the method does not depend on it.
      client_rate_schedule: See `StatefulOptions`, as the others.
      server_rate_schedule: See `StatefulOptions`.
      evaluated_model: See `StatefulOptions`.
      averaging_growth: See `StatefulOptions`.
      keep_latest_models: See `StatefulOptions`.
      model_distributor: See `StatefulOptions`.
      model_aggregator: See `StatefulOptions`.
      metrics_aggregator: See `StatefulOptions`.
      client_weighting: See `StatefulOptions`.
      loop_implementation: See `StatefulOptions`.

    Returns:
      A `StatefulLearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, or the model's trainable weights
        are not all of one floating dtype.
      ValueError: If an argument is out of its range, or a schedule has no learning
        rate to act on.
    """
    client_work.check_client_weighting(client_weighting)
    client_work.check_loop_implementation(loop_implementation)
    checks.check_one_of(
        "evaluated_model", evaluated_model, stateful_server.EVALUATED_MODELS
    )
    checks.check_positive("averaging_growth", averaging_growth)
    checks.check_flag("keep_latest_models", keep_latest_models)
    if server_rate_schedule is not None:
        server_step = server_step.scheduled(
            optimizers.as_schedule(server_rate_schedule, "server_rate_schedule")
        )
    if evaluated_model == stateful_server.AVERAGE:
        server_step = AveragedStep(server_step, averaging_growth)
    spec = client_works.build_model_spec(model_fn)
    work.check_model(spec)
    rounds = round_state.build_round_state(work, client_rate_schedule)
    distributor = composition.build_model_distributor(model_distributor, spec)
    vector_type = tensors.vector_type(spec.weights_type.trainable)
    aggregation = CohortAggregation(
        model_aggregator,
        control_variate_factory,
        spec.weights_type.trainable,
        vector_type,
    )
    server = stateful_server.build_server_half(
        spec, rounds, server_step, distributor, aggregation, evaluated_model
    )
    client = build_client_half(
        spec,
        rounds,
        work,
        vector_type=vector_type,
        message_type=server.message.type_signature.result,
        client_weighting=client_weighting,
        keep_latest_models=keep_latest_models,
        loop_implementation=loop_implementation or spec.loop_implementation,
    )
    aggregate_metrics = client_work.build_metrics_aggregation(metrics_aggregator, spec)

    def run_round(state: Any, client_data: Any) -> tuple[Any, Any, Any]:
        distributed = distributor.next(state.distributor, state.global_model_weights)
        message = compat.federated_map(server.message, state)
        trained = compat.federated_map(
            client.train,
            (
                compat.federated_broadcast(state.client_work),
                distributed.result,
                compat.federated_broadcast(message),
                client_data,
            ),
        )
        aggregated = aggregation.next(state.aggregator, trained)
        sums = compat.federated_sum(trained.sums)
        stepped = compat.federated_map(
            server.next,
            (
                state.finalizer,
                state.client_work,
                state.global_model_weights,
                aggregated.result,
                sums,
            ),
        )
        client_work_metrics = collections.OrderedDict(
            train=aggregate_metrics(trained.metrics), rejected_clients=sums.rejected
        )
        if rounds.learning_rate is not None:
            client_work_metrics["learning_rate"] = compat.federated_map(
                rounds.learning_rate, state.client_work
            )
        client_work_metrics["drift"] = stepped.drift
        metrics = collections.OrderedDict(
            distributor=distributed.measurements,
            client_work=compat.federated_zip(client_work_metrics),
            aggregator=aggregated.measurements,
            finalizer=stepped.measurements,
        )
        new_state = tff.learning.templates.LearningAlgorithmState(
            global_model_weights=stepped.weights,
            distributor=distributed.state,
            client_work=compat.federated_map(rounds.advance, state.client_work),
            aggregator=aggregated.state,
            finalizer=stepped.state,
        )
        client_states = collections.OrderedDict(
            index=trained.index, state=trained.state
        )
        return (
            compat.federated_zip(new_state),
            metrics,
            compat.federated_zip(client_states),
        )

    next_types = (
        compat.FederatedType(
            server.initialize.type_signature.result.member, compat.SERVER
        ),
        compat.FederatedType(client.train.type_signature.parameter[3], compat.CLIENTS),
    )
    return StatefulLearningProcess(
        server.initialize,
        _build_next(run_round, *next_types),
        server.accessors,
        initial_client_state=client.initial_state,
        message_down=server.message.type_signature.result,
        message_up=client.train.type_signature.result.message,
        num_clients=num_clients,
        build_next_at_clients=lambda: _build_next_at_clients(run_round, *next_types),
    )


def _build_next(
    run_round: RunRound, state_type: compat.Type, data_type: compat.Type
) -> compat.Computation:
    """Builds `next`: the new client states are collected at the server."""
    collection = aggregators.ClientStateCollectionFactory().create(
        aggregators.collected_type(data_type.member.state)
    )

    @compat.federated_computation(state_type, data_type)
    def next_fn(state: Any, client_data: Any) -> Any:
        new_state, metrics, client_states = run_round(state, client_data)
        collected = collection.next(collection.initialize(), client_states)
        metrics[CLIENT_STATES] = collected.result
        return tff.learning.templates.LearningProcessOutput(
            new_state, compat.federated_zip(metrics)
        )

    return next_fn


def _build_next_at_clients(
    run_round: RunRound, state_type: compat.Type, data_type: compat.Type
) -> compat.Computation:
    """Builds `next_at_clients`: the new client states stay where they are."""

    @compat.federated_computation(state_type, data_type)
    def next_at_clients(state: Any, client_data: Any) -> Any:
        new_state, metrics, client_states = run_round(state, client_data)
        output = tff.learning.templates.LearningProcessOutput(
            new_state, compat.federated_zip(metrics)
        )
        return output, client_states

    return next_at_clients
