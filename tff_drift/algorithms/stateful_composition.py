"""The composition of methods whose clients keep memory between rounds.

TFF's composer lets nothing but the model's update leave a client. The one here
takes a client's memory beside its examples and gives the new memory back:

    θ, message  ->  local work on (examples, client state)  ->  aggregate
                ->  server step  ->  θ, server memory, new client states
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import aggregators, checks, client_works, compat, optimizers, tensors
from tff_drift.algorithms import composition, stateful_parts
from tff_drift.algorithms.options import MetricsAggregator
from tff_drift.algorithms.server_steps import AveragedStep, ServerStep
from tff_drift.client_works import client_work, round_state

# The name under which `next` returns the cohort's new client states.
CLIENT_STATES = "client_states"


class StatefulLearningProcess(tff.learning.templates.LearningProcess):
    """A `LearningProcess` whose clients keep memory between rounds.

    Its `next` has the type signature

    ```
    (<S@SERVER, {<examples=B*,state=C,index=int32>}@CLIENTS>
        -> <state=S@SERVER, metrics=<..., client_states=
               <index=int32[?],state=C*>>@SERVER>)
    ```

    `C` is the memory of one client, `C*` the new memory of the cohort's clients
    with one more, leading dimension, in the order of `index`. Whoever calls `next`
    keeps the memory: see `tff_drift.client_states`.

    `next_at_clients` is the same round, with the new memory left at the clients:

    ```
    (<S@SERVER, {<examples=B*,state=C,index=int32>}@CLIENTS>
        -> <<state=S@SERVER, metrics=<...>@SERVER>, {<index=int32,state=C>}@CLIENTS>)
    ```

    No `LearningProcess` may return that, so that TFF's training loops have no use for
    it. But TFF's native execution takes memory for `next` with the square of the
    cohort's new memory: where that is large, use this one there.

    Attributes:
      next_at_clients: See above; built when it is first asked for.
      initial_client_state: The memory of a client that has not taken part yet, of
        type `C`, as NumPy arrays.
      message_down: The TFF type of what a client receives besides the model.
      message_up: The TFF type of what a client sends besides its update.
    """

    def __init__(
        self,
        initialize: compat.Computation,
        next_fn: compat.Computation,
        accessors: stateful_parts.Accessors,
        *,
        initial_client_state: client_works.ClientState,
        message_down: compat.Type,
        message_up: compat.Type,
        build_next_at_clients: Callable[[], compat.Computation],
    ) -> None:
        super().__init__(
            initialize,
            next_fn,
            accessors.get_model_weights,
            accessors.set_model_weights,
            get_hparams_fn=accessors.get_hparams,
            set_hparams_fn=accessors.set_hparams,
        )
        self.initial_client_state = initial_client_state
        self.message_down = message_down
        self.message_up = message_up
        self._build_next_at_clients = build_next_at_clients

    @functools.cached_property
    def next_at_clients(self) -> compat.Computation:
        """`next`, with the new memory left at the clients."""
        return self._build_next_at_clients()


def compose_stateful(
    model_fn: client_works.ModelFn,
    work: client_works.StatefulSgd,
    server_step: ServerStep,
    *,
    control_variate_factory: aggregators.ControlVariateFactory | None = None,
    client_rate_schedule: optimizers.Schedule | None = None,
    server_rate_schedule: optimizers.Schedule | None = None,
    evaluated_model: str = stateful_parts.AGGREGATE,
    model_distributor: tff.learning.templates.DistributionProcess | None = None,
    model_aggregator: Any = None,
    metrics_aggregator: MetricsAggregator | None = None,
    client_weighting: tff.learning.ClientWeighting = (
        tff.learning.ClientWeighting.UNIFORM
    ),
    loop_implementation: tff.learning.LoopImplementation | None = None,
) -> StatefulLearningProcess:
    """Composes a method with client memory into a learning process.

    Args:
      model_fn: The model, see `tff_drift.client_works.build_model_spec`.
      work: The client's half of the method.
      server_step: The server's half.
      control_variate_factory: Aggregates the messages that the clients send besides
        their updates, and holds the server's control variate, which is sent to the
        clients; None for methods whose clients send nothing else.
      client_rate_schedule: See `StatefulOptions`, as the others.
      server_rate_schedule: See `StatefulOptions`.
      evaluated_model: See `StatefulOptions`.
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
      ValueError: If an argument is out of its range.
    """
    client_work.check_client_weighting(client_weighting)
    checks.check_one_of(
        "evaluated_model", evaluated_model, stateful_parts.EVALUATED_MODELS
    )
    if server_rate_schedule is not None:
        server_step = server_step.scheduled(
            optimizers.as_schedule(server_rate_schedule, "server_rate_schedule")
        )
    if evaluated_model == stateful_parts.AVERAGE:
        server_step = AveragedStep(server_step)
    composer = _Composer(model_fn, work, server_step, client_rate_schedule)
    spec = composer.spec
    aggregate_metrics = metrics_aggregator or tff.learning.metrics.sum_then_finalize
    return composer.compose(
        model_distributor
        or tff.learning.templates.build_broadcast_process(spec.weights_type),
        composition.build_model_aggregator(
            model_aggregator, spec.weights_type.trainable
        ),
        control_variate_factory,
        aggregate_metrics(spec.metric_finalizers),
        evaluated_model,
        client_weighting,
        loop_implementation or spec.loop_implementation,
    )


class _Composer:
    """Holds what the computations of one process share."""

    def __init__(
        self,
        model_fn: client_works.ModelFn,
        work: client_works.StatefulSgd,
        server_step: ServerStep,
        client_rate_schedule: optimizers.Schedule | None,
    ) -> None:
        self.spec = spec = client_works.build_model_spec(model_fn)
        self.work = work
        self.server_step = server_step
        self.rounds = round_state.build_round_state(work, client_rate_schedule)
        self.vector_type = tensors.vector_type(spec.weights_type.trainable)
        self.initial_client_state = work.initial_client_state(
            np.zeros(self.vector_type.shape, self.vector_type.dtype)
        )
        state_type = compat.tensorflow_to_type(
            tf.nest.map_structure(
                lambda array: tf.TensorSpec(array.shape, array.dtype),
                self.initial_client_state,
            )
        )
        self.client_type = compat.to_type(
            collections.OrderedDict(
                examples=spec.data_type, state=state_type, index=np.int32
            )
        )
        self.collection = aggregators.ClientStateCollectionFactory().create(
            aggregators.collected_type(state_type)
        )

        @compat.tf_computation(spec.weights_type)
        def initial_server_state(weights: Any) -> Any:
            return server_step.initial_state(tuple(tf.nest.flatten(weights.trainable)))

        self.initial_server_state = initial_server_state

    def compose(
        self,
        distributor: tff.learning.templates.DistributionProcess,
        model_aggregator: tff.templates.AggregationProcess,
        control_variate_factory: aggregators.ControlVariateFactory | None,
        aggregate_metrics: Any,
        evaluated_model: str,
        client_weighting: tff.learning.ClientWeighting,
        loop_implementation: tff.learning.LoopImplementation,
    ) -> StatefulLearningProcess:
        aggregator = _UpdateAggregator(
            model_aggregator,
            control_variate_factory
            and control_variate_factory.create(self.vector_type),
        )
        initialize = self._build_initialize(distributor, aggregator)
        state_type = initialize.type_signature.result.member
        server_message = self._build_server_message(
            state_type, has_variate=control_variate_factory is not None
        )
        message_type = server_message.type_signature.result
        train = stateful_parts.build_client_training(
            self.spec,
            self.rounds,
            self.work,
            client_weighting,
            loop_implementation,
            message_type,
            self.client_type,
        )
        client_result_type = train.type_signature.result
        server_next = stateful_parts.build_server_next(
            self.spec,
            self.rounds,
            self.server_step,
            state_type.finalizer,
            client_result_type.sums,
        )
        rounds, collection = self.rounds, self.collection

        def run_round(state: Any, client_data: Any) -> tuple[Any, Any, Any]:
            """Returns the server's state, the metrics and the clients' new memory."""
            distributed = distributor.next(
                state.distributor, state.global_model_weights
            )
            message = compat.federated_map(server_message, state)
            client = compat.federated_map(
                train,
                (
                    compat.federated_broadcast(state.client_work),
                    distributed.result,
                    compat.federated_broadcast(message),
                    client_data,
                ),
            )
            aggregated = aggregator.next(state.aggregator, client)
            sums = compat.federated_sum(client.sums)
            server = compat.federated_map(
                server_next,
                (
                    state.finalizer,
                    state.client_work,
                    state.global_model_weights,
                    aggregated.result,
                    sums,
                ),
            )
            client_work_metrics = collections.OrderedDict(
                train=aggregate_metrics(client.metrics),
                rejected_clients=sums.rejected,
                drift=server.drift,
            )
            if rounds.learning_rate is not None:
                client_work_metrics["learning_rate"] = compat.federated_map(
                    rounds.learning_rate, state.client_work
                )
            metrics = collections.OrderedDict(
                distributor=distributed.measurements,
                client_work=compat.federated_zip(client_work_metrics),
                aggregator=aggregated.measurements,
                finalizer=server.measurements,
            )
            new_state = tff.learning.templates.LearningAlgorithmState(
                global_model_weights=server.weights,
                distributor=distributed.state,
                client_work=compat.federated_map(rounds.advance, state.client_work),
                aggregator=aggregated.state,
                finalizer=server.state,
            )
            client_states = collections.OrderedDict(
                index=client.index, state=client.state
            )
            return (
                compat.federated_zip(new_state),
                metrics,
                compat.federated_zip(client_states),
            )

        parameters = (
            compat.FederatedType(state_type, compat.SERVER),
            compat.FederatedType(self.client_type, compat.CLIENTS),
        )

        @compat.federated_computation(*parameters)
        def next_fn(state: Any, client_data: Any) -> Any:
            new_state, metrics, client_states = run_round(state, client_data)
            collected = collection.next(collection.initialize(), client_states)
            metrics[CLIENT_STATES] = collected.result
            return tff.learning.templates.LearningProcessOutput(
                new_state, compat.federated_zip(metrics)
            )

        def build_next_at_clients() -> compat.Computation:
            @compat.federated_computation(*parameters)
            def next_at_clients(state: Any, client_data: Any) -> Any:
                new_state, metrics, client_states = run_round(state, client_data)
                output = tff.learning.templates.LearningProcessOutput(
                    new_state, compat.federated_zip(metrics)
                )
                return output, client_states

            return next_at_clients

        return StatefulLearningProcess(
            initialize,
            next_fn,
            stateful_parts.build_accessors(
                rounds, self.server_step, evaluated_model, state_type
            ),
            initial_client_state=self.initial_client_state,
            message_down=message_type,
            message_up=client_result_type.message,
            build_next_at_clients=build_next_at_clients,
        )

    def _build_initialize(
        self,
        distributor: tff.learning.templates.DistributionProcess,
        aggregator: _UpdateAggregator,
    ) -> compat.Computation:
        @compat.federated_computation
        def initialize() -> Any:
            weights = compat.federated_eval(self.spec.initial_weights, compat.SERVER)
            return compat.federated_zip(
                tff.learning.templates.LearningAlgorithmState(
                    global_model_weights=weights,
                    distributor=distributor.initialize(),
                    client_work=compat.federated_eval(
                        self.rounds.initialize, compat.SERVER
                    ),
                    aggregator=aggregator.initialize(),
                    finalizer=compat.federated_map(self.initial_server_state, weights),
                )
            )

        return initialize

    def _build_server_message(
        self, state_type: compat.StructType, has_variate: bool
    ) -> compat.Computation:
        """What the clients receive besides the model, from the server state."""

        @compat.tf_computation(state_type)
        def server_message(state: Any) -> Any:
            if has_variate:
                return state.aggregator["control_variate"]["control_variate"]
            return self.server_step.message(state.finalizer)

        return server_message


class _UpdateAggregator:
    """The model's aggregator, and beside it the control variate's, if any."""

    def __init__(
        self,
        model: tff.templates.AggregationProcess,
        control_variate: tff.templates.AggregationProcess | None,
    ) -> None:
        self._model = model
        self._control_variate = control_variate

    def initialize(self) -> compat.Value:
        state = collections.OrderedDict(model=self._model.initialize())
        if self._control_variate is not None:
            state["control_variate"] = self._control_variate.initialize()
        return compat.federated_zip(state)

    def next(
        self, state: compat.Value, client: compat.Value
    ) -> tff.templates.MeasuredProcessOutput:
        model = self._model.next(state["model"], client.update, client.weight)
        new_state = collections.OrderedDict(model=model.state)
        measurements = collections.OrderedDict(model=model.measurements)
        if self._control_variate is not None:
            variate = self._control_variate.next(
                state["control_variate"], client.message
            )
            new_state["control_variate"] = variate.state
            measurements["control_variate"] = variate.measurements
        return tff.templates.MeasuredProcessOutput(
            compat.federated_zip(new_state),
            model.result,
            compat.federated_zip(measurements),
        )
