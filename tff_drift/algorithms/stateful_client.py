"""One client's computation in a round of a process with client state."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import client_works, compat, tensors
from tff_drift.client_works import client_work, round_state

# The name in a client's state of the model that it trained last, if it keeps that.
LATEST_MODEL = "latest_model"


class ClientHalf(NamedTuple):
    """The client's computation.

    Attributes:
      train: `(<R, W, M, D> -> result)`, of the round's state, the weights, the
        server's message and what a client has, `D = <examples=B*,state=C,index=int32>`.
        The result holds, by name, `index`, the `update` and its `weight`, the
        `message` for the server, the new `state`, the `metrics` and the `sums`: what a
        client reports of itself, to be summed over the cohort.
      initial_state: The state of a client that has not taken part yet, as arrays.
    """

    train: compat.Computation
    initial_state: client_works.ClientState


def build_client_half(
    spec: client_works.ModelSpec,
    rounds: round_state.RoundState,
    work: client_works.StatefulSgd,
    *,
    vector_type: compat.TensorType,
    message_type: compat.Type,
    client_weighting: tff.learning.ClientWeighting,
    keep_latest_models: bool,
    loop_implementation: tff.learning.LoopImplementation,
) -> ClientHalf:
    """Builds the client's computation.

    Args:
      spec: The model.
      rounds: The round's state.
      work: The client's half of the method.
      vector_type: The type of the trainable weights as one vector.
      message_type: The type of what the server sends besides the model.
      client_weighting: A client's weight in the aggregate.
      keep_latest_models: Whether a client keeps the model that it trained last.
      loop_implementation: How the loop over the client's batches is built.

    Returns:
      The computation, and what a client starts from.
    """
    zeros = np.zeros(vector_type.shape, vector_type.dtype)
    initial_state = work.initial_client_state(zeros)
    if keep_latest_models:
        initial_state[LATEST_MODEL] = zeros
    state_type = compat.tensorflow_to_type(
        tf.nest.map_structure(
            lambda array: tf.TensorSpec(array.shape, array.dtype), initial_state
        )
    )
    client_type = compat.to_type(
        collections.OrderedDict(
            examples=spec.data_type, state=state_type, index=np.int32
        )
    )

    @compat.tf_computation(
        rounds.type_signature, spec.weights_type, message_type, client_type
    )
    def train(state: Any, weights: Any, message: Any, client: Any) -> Any:
        run = work.prepare(spec, loop_implementation)
        run_gradient = None
        if work.needs_full_gradient:
            run_gradient = client_works.FullGradient().prepare(
                spec, loop_implementation
            )

        @tf.function
        def client_update(state: Any, weights: Any, message: Any, client: Any) -> Any:
            context = client_works.LocalContext(
                tuple(tf.nest.flatten(weights.trainable)),
                rounds.hparams_of_round(state),
                state["round_number"],
                client["state"],
                message,
                _count(client["examples"]) if work.needs_num_examples else (),
            )
            outcome = run(weights, client["examples"], context)
            full_gradient = None
            if run_gradient is not None:
                at_server = run_gradient(weights, client["examples"], context)
                full_gradient = tensors.to_vector(at_server.update)
            output = work.remember(context, _local_result(outcome, full_gradient))
            # A client whose training broke down, or that had nothing to train on,
            # keeps the state that it had and says nothing. The local execution context
            # recognises these choices, see `execution.local.patterns`.
            idle = tf.logical_or(outcome.rejected, tf.equal(outcome.num_steps, 0))
            old_state = collections.OrderedDict(client["state"])
            new_state = collections.OrderedDict(output.client_state)
            if keep_latest_models:
                # Of an idle client the server's model: its update is zero.
                x = tensors.to_vector(context.initial_trainable)
                latest = x - tensors.to_vector(outcome.update)
                old_state[LATEST_MODEL] = new_state[LATEST_MODEL] = latest
            return collections.OrderedDict(
                index=client["index"],
                update=tf.nest.pack_sequence_as(weights.trainable, outcome.update),
                weight=client_work.client_weight(
                    client_weighting, outcome.num_examples, idle
                ),
                message=tf.nest.map_structure(
                    lambda new: tf.where(idle, tf.zeros_like(new), new), output.message
                ),
                state=tensors.selected(idle, old_state, new_state),
                metrics=outcome.metrics,
                sums=_sums(outcome, idle),
            )

        return client_update(state, weights, message, client)

    return ClientHalf(train, initial_state)


def _count(dataset: tf.data.Dataset) -> tf.Tensor:
    """Returns the number of examples in a dataset of batches."""

    def add(total: tf.Tensor, batch: Any) -> tf.Tensor:
        return total + tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]

    return dataset.reduce(tf.constant(0, tf.int64), add)


def _local_result(
    outcome: client_works.LocalOutcome, full_gradient: tf.Tensor | None
) -> client_works.LocalResult:
    pseudo_gradient = tensors.to_vector(outcome.update)
    dtype = pseudo_gradient.dtype
    return client_works.LocalResult(
        pseudo_gradient,
        tf.cast(outcome.num_steps, dtype),
        tf.cast(outcome.num_examples, dtype),
        full_gradient,
    )


def _sums(outcome: client_works.LocalOutcome, idle: tf.Tensor) -> Any:
    """Returns what a client reports, of `SUMS_TYPE`; an idle one counts nowhere."""
    counts = tf.cast(tf.logical_not(idle), tf.float32)
    drift = tensors.global_norm(outcome.update)
    return collections.OrderedDict(
        clients=counts,
        steps=tf.cast(outcome.num_steps, tf.float32) * counts,
        examples=tf.cast(outcome.num_examples, tf.float32) * counts,
        drift=drift,
        squared_drift=tf.square(drift),
        rejected=tf.cast(outcome.rejected, tf.int32),
    )
