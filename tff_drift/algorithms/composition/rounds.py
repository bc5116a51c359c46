"""The round of a learning process, joined from its parts.

    x, message  ->  local work on every client  ->  aggregate  ->  server step

TFF's own composer lets nothing but the model's update leave a client. Here the server
can also send a message with the model, and a client another with its update, and a
client's state comes in beside its examples and goes out renewed.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow_federated as tff

from tff_drift import aggregators, compat
from tff_drift.algorithms.composition.aggregation import CohortAggregation, is_empty
from tff_drift.algorithms.composition.client import (
    COHORT_GRADIENT,
    SERVER,
    ClientHalf,
)
from tff_drift.algorithms.composition.process import (
    CLIENT_STATES,
    ComposedLearningProcess,
    StatefulLearningProcess,
)
from tff_drift.algorithms.composition.server import ServerHalf
from tff_drift.client_works import round_state

# `(S, client data) -> (S, metrics, the clients' new states)`, on federated values;
# without the last where clients keep none.
RunRound = Callable[[Any, Any], tuple[Any, Any, Any]]


class Parts(NamedTuple):
    """The computations of a round.

    Attributes:
      rounds: The round's state.
      distributor: The process that sends the model to clients.
      message: What the server sends besides, see `server.build_message`.
      client: The client's computation.
      aggregation: The aggregation of what clients send.
      server: The server's computations.
      aggregate_metrics: How the clients' training metrics are aggregated.
    """

    rounds: round_state.RoundState
    distributor: tff.learning.templates.DistributionProcess
    message: compat.Computation
    client: ClientHalf
    aggregation: CohortAggregation
    server: ServerHalf
    aggregate_metrics: Any


def build_process(parts: Parts, num_clients: int | None) -> ComposedLearningProcess:
    """Joins the parts of a method to a learning process.

    Args:
      parts: The parts.
      num_clients: N, for the driver of the process; None if nobody needs it.

    Returns:
      A `StatefulLearningProcess` if clients keep a state, otherwise a
      `ComposedLearningProcess`.
    """
    server, client = parts.server, parts.client
    run_round = _build_run_round(parts)
    next_types = (
        compat.FederatedType(
            server.initialize.type_signature.result.member, compat.SERVER
        ),
        compat.FederatedType(client.data_type, compat.CLIENTS),
    )
    messages: dict[str, Any] = {
        "message_down": client.server_message_type,
        "message_up": client.message_type,
        "num_clients": num_clients,
    }
    if client.initial_state is None:
        return ComposedLearningProcess(
            server.initialize,
            _build_next(run_round, *next_types),
            server.accessors,
            **messages,
        )
    collection = aggregators.ClientStateCollectionFactory().create(
        aggregators.collected_type(client.data_type.state)
    )
    return StatefulLearningProcess(
        server.initialize,
        _build_next(run_round, *next_types, collection),
        server.accessors,
        initial_client_state=client.initial_state,
        build_next_at_clients=lambda: _build_next_at_clients(run_round, *next_types),
        **messages,
    )


def _build_run_round(parts: Parts) -> RunRound:
    rounds, aggregation = parts.rounds, parts.aggregation

    def run_round(state: Any, client_data: Any) -> tuple[Any, Any, Any]:
        distributed = parts.distributor.next(
            state.distributor, state.global_model_weights
        )
        at_clients = compat.federated_broadcast(state.client_work), distributed.result
        messages = None
        if parts.client.gradient is not None:
            asked = compat.federated_map(
                parts.client.gradient, (*at_clients, client_data)
            )
            messages = aggregation.average_messages(state.aggregator, asked)
        trained = compat.federated_map(
            parts.client.train,
            (*at_clients, *_broadcast_message(parts, state, messages), client_data),
        )
        if messages is None:
            messages = aggregation.average_messages(state.aggregator, trained)
        aggregated = aggregation.next(state.aggregator, trained, messages)
        sums = compat.federated_sum(trained.sums)
        reports = collections.OrderedDict(sums=sums)
        if aggregation.mean_message_type is not None:
            reports["message"] = messages.result
        stepped = compat.federated_map(
            parts.server.next,
            (
                state.finalizer,
                state.client_work,
                state.global_model_weights,
                aggregated.result,
                compat.federated_zip(reports),
            ),
        )
        client_work_metrics = collections.OrderedDict(
            train=parts.aggregate_metrics(trained.metrics),
            rejected_clients=sums.rejected,
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
        client_states = None
        if parts.client.initial_state is not None:
            client_states = compat.federated_zip(
                collections.OrderedDict(index=trained.index, state=trained.state)
            )
        return compat.federated_zip(new_state), metrics, client_states

    return run_round


def _broadcast_message(parts: Parts, state: Any, messages: Any) -> tuple[Any, ...]:
    """Returns what the server sends besides the model: nothing, or one message."""
    message = collections.OrderedDict[str, Any]()
    if not is_empty(parts.message.type_signature.result):
        argument = state.finalizer
        if parts.aggregation.has_control_variate:
            argument = argument, parts.aggregation.control_variate(state.aggregator)
        message[SERVER] = compat.federated_map(parts.message, argument)
    if messages is None:
        return tuple(map(compat.federated_broadcast, message.values()))
    message[COHORT_GRADIENT] = messages.result
    return (compat.federated_broadcast(compat.federated_zip(message)),)


def _build_next(
    run_round: RunRound,
    state_type: compat.Type,
    data_type: compat.Type,
    collection: tff.templates.AggregationProcess | None = None,
) -> compat.Computation:
    """Builds `next`; if clients keep a state, a collection brings it to the server."""

    @compat.federated_computation(state_type, data_type)
    def next_fn(state: Any, client_data: Any) -> Any:
        new_state, metrics, client_states = run_round(state, client_data)
        if collection is not None:
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
