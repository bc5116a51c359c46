"""The TensorFlow computations that a process with client state is made of."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import client_works, compat
from tff_drift.algorithms.server_steps import Cohort, ServerStep
from tff_drift.client_works import client_work, round_state
from tff_drift.tensors import global_norm, to_vector

AGGREGATE, CLOUD, AVERAGE = EVALUATED_MODELS = ("aggregate", "cloud", "average")
_RATE = round_state.RATE


class Accessors(NamedTuple):
    """The computations of a `LearningProcess` besides `initialize` and `next`."""

    get_model_weights: compat.Computation
    set_model_weights: compat.Computation
    get_hparams: compat.Computation
    set_hparams: compat.Computation


def build_client_training(
    spec: client_works.ModelSpec,
    rounds: round_state.RoundState,
    work: client_works.StatefulSgd,
    client_weighting: tff.learning.ClientWeighting,
    loop_implementation: tff.learning.LoopImplementation,
    message_type: compat.Type,
    client_type: compat.Type,
) -> compat.Computation:
    """Builds one client's part of a round.

    Args:
      spec: The model.
      rounds: The round's state.
      work: The client's half of the method.
      client_weighting: A client's weight in the aggregate.
      loop_implementation: The loop over the client's batches.
      message_type: What the server sends besides the model.
      client_type: `<examples=B*,state=C,index=int32>`.

    Returns:
      A computation of the round's state, the weights, the message and the client's
      data to what the client sends, by name.
    """

    @compat.tf_computation(
        rounds.type_signature, spec.weights_type, message_type, client_type
    )
    def train(state: Any, weights: Any, message: Any, client: Any) -> Any:
        model = spec.build()
        gradient_model = spec.build() if work.needs_full_gradient else None

        @tf.function
        def client_update(state: Any, weights: Any, message: Any, client: Any) -> Any:
            context = client_works.LocalContext(
                tuple(tf.nest.flatten(weights.trainable)),
                rounds.hparams_of_round(state),
                state["round_number"],
                client["state"],
                message,
            )
            outcome = client_works.run_local_work(
                work,
                model,
                weights,
                client["examples"],
                context=context,
                loop_implementation=loop_implementation,
            )
            full_gradient = None
            if gradient_model is not None:
                full_gradient = client_works.run_local_work(
                    client_works.FullGradient(),
                    gradient_model,
                    weights,
                    client["examples"],
                    context=context,
                    loop_implementation=loop_implementation,
                ).update
            return _client_result(work, context, outcome, full_gradient)

        def _client_result(
            work: client_works.StatefulSgd,
            context: client_works.LocalContext,
            outcome: client_works.LocalOutcome,
            full_gradient: Any,
        ) -> Any:
            pseudo_gradient = to_vector(outcome.update)
            dtype = pseudo_gradient.dtype
            output = work.remember(
                context,
                client_works.LocalResult(
                    pseudo_gradient,
                    tf.cast(outcome.num_steps, dtype),
                    tf.cast(outcome.num_examples, dtype),
                    None if full_gradient is None else to_vector(full_gradient),
                ),
            )
            # A client whose training broke down, or that had nothing to train on,
            # remembers what it did before and says nothing.
            idle = tf.logical_or(outcome.rejected, tf.equal(outcome.num_steps, 0))
            counts = tf.cast(tf.logical_not(idle), tf.float32)
            drift = global_norm(outcome.update)
            return collections.OrderedDict(
                index=client["index"],
                update=tf.nest.pack_sequence_as(weights.trainable, outcome.update),
                weight=client_work.client_weight(
                    client_weighting, outcome.num_examples, idle
                ),
                message=tf.nest.map_structure(
                    lambda new: tf.where(idle, tf.zeros_like(new), new), output.message
                ),
                state=tf.nest.map_structure(
                    lambda old, new: tf.where(idle, old, new),
                    collections.OrderedDict(client["state"]),
                    output.client_state,
                ),
                metrics=outcome.metrics,
                sums=collections.OrderedDict(
                    clients=counts,
                    steps=tf.cast(outcome.num_steps, tf.float32) * counts,
                    examples=tf.cast(outcome.num_examples, tf.float32) * counts,
                    drift=drift,
                    squared_drift=tf.square(drift),
                    rejected=tf.cast(outcome.rejected, tf.int32),
                ),
            )

        return client_update(state, weights, message, client)

    return train


def build_server_next(
    spec: client_works.ModelSpec,
    rounds: round_state.RoundState,
    server_step: ServerStep,
    server_state_type: compat.Type,
    sums_type: compat.Type,
) -> compat.Computation:
    """Builds the server's part of a round.

    A round whose aggregate is not finite, or in which no client counts, changes
    nothing on the server.

    Args:
      spec: The model.
      rounds: The round's state.
      server_step: The server's half of the method.
      server_state_type: The type of the server step's state.
      sums_type: The type of the figures that the clients send, summed.

    Returns:
      A computation of the server step's state, the round's state, the weights, the mean
      pseudo-gradient and the sums to `<state, weights, measurements, drift>`.
    """
    trainable_type = spec.weights_type.trainable

    @compat.tf_computation(
        server_state_type,
        rounds.type_signature,
        spec.weights_type,
        trainable_type,
        sums_type,
    )
    @tf.function
    def server_next(
        server_state: Any, state: Any, weights: Any, update: Any, sums: Any
    ) -> Any:
        trainable = tuple(tf.nest.flatten(weights.trainable))
        pseudo_gradient = tuple(tf.nest.flatten(update))

        def mean(name: str) -> tf.Tensor:
            return tf.math.divide_no_nan(sums[name], sums["clients"])

        cohort = Cohort(
            num_clients=sums["clients"],
            mean_steps=mean("steps"),
            mean_examples=mean("examples"),
            mean_squared_drift=mean("squared_drift"),
            learning_rate=rounds.hparams_of_round(state).get(_RATE),
            round_number=state["round_number"],
        )
        result = server_step.next(server_state, trainable, pseudo_gradient, cohort)
        finite = tf.reduce_all(
            [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in pseudo_gradient]
        )
        counts = tf.logical_and(finite, sums["clients"] > 0)
        keep = lambda old, new: tf.nest.map_structure(  # noqa: E731
            lambda o, n: tf.where(counts, n, o), old, new
        )
        server_state = keep(server_state, result.state)
        trainable = keep(trainable, tuple(result.trainable))
        measurements = collections.OrderedDict(
            update_non_finite=tf.cast(tf.logical_not(finite), tf.int32),
            model_norm=global_norm(trainable),
            pseudo_gradient_norm=global_norm(pseudo_gradient),
        )
        measurements.update(result.measurements)
        return collections.OrderedDict(
            state=server_state,
            weights=tff.learning.models.ModelWeights(
                tf.nest.pack_sequence_as(weights.trainable, trainable),
                weights.non_trainable,
            ),
            measurements=measurements,
            drift=mean("drift"),
        )

    return server_next


def build_accessors(
    rounds: round_state.RoundState,
    server_step: ServerStep,
    evaluated_model: str,
    state_type: compat.StructType,
) -> Accessors:
    """Builds a process's accessors.

    Args:
      rounds: The round's state.
      server_step: The server's half of the method.
      evaluated_model: Which model `get_model_weights` returns.
      state_type: The type of the server state.

    Returns:
      The computations.
    """

    def deployed(state: Any) -> Any:
        flat = tuple(tf.nest.flatten(state.global_model_weights.trainable))
        if evaluated_model == AGGREGATE:
            return server_step.aggregate_model(state.finalizer, flat)
        if evaluated_model == AVERAGE:
            return state.finalizer["average_model"]
        return flat

    @compat.tf_computation(state_type)
    def get_model_weights(state: Any) -> Any:
        weights = state.global_model_weights
        return tff.learning.models.ModelWeights(
            tf.nest.pack_sequence_as(
                weights.trainable, tf.nest.flatten(deployed(state))
            ),
            weights.non_trainable,
        )

    @compat.tf_computation(state_type, state_type.global_model_weights)
    def set_model_weights(state: Any, weights: Any) -> Any:
        flat = tuple(tf.nest.flatten(weights.trainable))
        return _replace(
            state,
            global_model_weights=weights,
            finalizer=server_step.replace_model(state.finalizer, flat),
        )

    @compat.tf_computation(state_type)
    def get_hparams(state: Any) -> Any:
        return collections.OrderedDict(
            client_work=rounds.get_hparams(state.client_work),
            finalizer=server_step.get_hparams(state.finalizer),
        )

    @compat.tf_computation(state_type, get_hparams.type_signature.result)
    def set_hparams(state: Any, hparams: Any) -> Any:
        return _replace(
            state,
            client_work=rounds.set_hparams(state.client_work, hparams["client_work"]),
            finalizer=server_step.set_hparams(state.finalizer, hparams["finalizer"]),
        )

    return Accessors(get_model_weights, set_model_weights, get_hparams, set_hparams)


def _replace(state: Any, **parts: Any) -> Any:
    """Returns a server state with some parts replaced."""
    names = ("global_model_weights", "distributor", "client_work", "aggregator")
    kept = {name: getattr(state, name) for name in (*names, "finalizer")}
    return tff.learning.templates.LearningAlgorithmState(**{**kept, **parts})
