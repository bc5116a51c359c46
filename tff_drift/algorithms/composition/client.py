"""One client's computation in a round."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks, client_works, compat, returned, tensors
from tff_drift.algorithms.composition.aggregation import is_empty
from tff_drift.client_works import round_state
from tff_drift.models import example_weights

# The name in a client's state of the model that it trained last, if it keeps that.
LATEST_MODEL = "latest_model"
# The parts of what clients receive where the mean of their gradients comes first.
SERVER, COHORT_GRADIENT = "server", "cohort_gradient"


class ClientHalf(NamedTuple):
    """The client's computation.

    Attributes:
      train: `(<R, W, M, D> -> result)`, of the round's state, the weights, the
        server's message and what a client has; without `M` where the server sends
        none. `D` is a client's dataset `B*`, or `<examples=B*,state=C,index=int32>`
        where it keeps a state. The result holds, by name, the `update` and its
        `weight`, the `message` for the server, the `metrics` and the `sums`: what a
        client reports of itself, to be summed over the cohort; and `index` and the
        new `state` where a client keeps one.
      data_type: `D`.
      server_message_type: `M`, `<>` where the server sends none.
      message_type: The type of a client's message.
      gradient: `(<R, W, D> -> <message, weight>)`, the gradient of a client's whole
        loss at x, which is averaged before clients train; None if nobody needs it.
      initial_state: The state of a client that has not taken part yet, as arrays;
        None where clients keep none.
    """

    train: compat.Computation
    data_type: compat.Type
    server_message_type: compat.Type
    message_type: compat.Type
    gradient: compat.Computation | None
    initial_state: client_works.ClientState | None


def build_client_half(
    spec: client_works.ModelSpec,
    rounds: round_state.RoundState,
    work: client_works.ClientWork,
    *,
    server_message_type: compat.Type,
    client_weighting: tff.learning.ClientWeighting | str,
    keep_latest_models: bool,
    loop_implementation: tff.learning.LoopImplementation,
) -> ClientHalf:
    """Builds the client's computation.

    Args:
      spec: The model.
      rounds: The round's state.
      work: The client's half of the method.
      server_message_type: The type of what the server sends besides the model.
      client_weighting: A client's weight in the aggregate.
      keep_latest_models: Whether a client keeps the model that it trained last.
      loop_implementation: How the loop over the client's batches is built.

    Returns:
      The computation, and what a client starts from.
    """
    initial_state = _initial_state(spec, work, keep_latest_models)
    data_type: Any = spec.data_type
    if initial_state is not None:
        data_type = _data_type_with_state(spec, initial_state)

    gradient = None
    message_type = server_message_type
    if work.needs_cohort_gradient:
        gradient = _build_gradient(
            spec, rounds, data_type, client_weighting, loop_implementation
        )
        parts = [(COHORT_GRADIENT, gradient.type_signature.result.message)]
        if not is_empty(server_message_type):
            parts.insert(0, (SERVER, server_message_type))
        message_type = compat.to_type(collections.OrderedDict(parts))

    def client_update(state: Any, weights: Any, message: Any, client: Any) -> Any:
        run = returned.result_of(work, "prepare", spec, loop_implementation)
        run_gradient = None
        if work.needs_full_gradient:
            run_gradient = client_works.FullGradient().prepare(
                spec, loop_implementation
            )

        @tf.function
        @autograph.as_written
        def update(state: Any, weights: Any, message: Any, client: Any) -> Any:
            examples = client if initial_state is None else client["examples"]
            context = client_works.LocalContext(
                tuple(tf.nest.flatten(weights.trainable)),
                rounds.hparams_of_round(state),
                state["round_number"],
                () if initial_state is None else client["state"],
                message.get(SERVER, ()) if work.needs_cohort_gradient else message,
                _count(examples) if work.needs_num_examples else (),
                message[COHORT_GRADIENT] if work.needs_cohort_gradient else (),
            )
            outcome = autograph.of_user(run)(weights, examples, context)
            outcome, weight = _weighed(outcome, client_weighting, examples)
            full_gradient = None
            if run_gradient is not None:
                at_server = run_gradient(weights, examples, context)
                full_gradient = tensors.to_vector(at_server.update)
                outcome = _rejected_with(outcome, at_server)
            # A client whose training broke down, or that had nothing to train on, has
            # the state of an idle one, and says nothing. The local execution context
            # recognises these choices, see `execution.local.patterns`.
            idle = tf.logical_or(outcome.rejected, tf.equal(outcome.num_examples, 0))
            # Nor has a client anything to say that took no step, at a rate of 0.
            stays = idle
            if round_state.RATE in context.hparams:
                stays = idle | tf.equal(context.hparams[round_state.RATE], 0)
            output = client_works.ClientOutput()
            if work.has_client_output:
                output = autograph.of_user(work.update_client_state)(
                    context, _local_result(outcome, full_gradient)
                )
                checks.check_instance(
                    f"What update_client_state of {type(work).__name__} returns",
                    output,
                    client_works.ClientOutput,
                    remedy="Return ClientOutput(client_state, message).",
                )
            # It would otherwise hold the mean back where it was.
            weight = tf.where(idle, tf.constant(0.0), weight)
            result = collections.OrderedDict(
                update=tf.nest.pack_sequence_as(weights.trainable, outcome.update),
                weight=weight,
                message=tf.nest.map_structure(
                    lambda new: tf.where(stays, tf.zeros_like(new), new), output.message
                ),
                metrics=outcome.metrics,
                sums=_sums(outcome, idle, weight),
            )
            if initial_state is not None:
                result["index"] = client["index"]
                result["state"] = _new_state(
                    work, context, outcome, output, stays, keep_latest_models
                )
            return result

        return update(state, weights, message, client)

    types = (rounds.type_signature, spec.weights_type)
    if is_empty(message_type):
        train = compat.tf_computation(
            lambda state, weights, client: client_update(state, weights, (), client),
            *types,
            data_type,
        )
    else:
        train = compat.tf_computation(client_update, *types, message_type, data_type)
    sends = train if gradient is None else gradient
    return ClientHalf(
        train,
        data_type,
        message_type,
        sends.type_signature.result.message,
        gradient,
        initial_state,
    )


def _build_gradient(
    spec: client_works.ModelSpec,
    rounds: round_state.RoundState,
    data_type: compat.Type,
    client_weighting: tff.learning.ClientWeighting | str,
    loop_implementation: tff.learning.LoopImplementation,
) -> compat.Computation:
    """Builds `ClientHalf.gradient`."""
    work = client_works.FullGradient()

    @compat.tf_computation(rounds.type_signature, spec.weights_type, data_type)
    def gradient(state: Any, weights: Any, client: Any) -> Any:
        run = work.prepare(spec, loop_implementation)
        has_state = isinstance(data_type, compat.StructType)

        @tf.function
        @autograph.as_written
        def of_client(state: Any, weights: Any, client: Any) -> Any:
            context = client_works.LocalContext(
                tuple(tf.nest.flatten(weights.trainable)),
                work.initial_hparams(),
                state["round_number"],
            )
            examples = client["examples"] if has_state else client
            outcome, weight = _weighed(
                run(weights, examples, context), client_weighting, examples
            )
            return collections.OrderedDict(
                message=tensors.to_vector(outcome.update),
                weight=tf.where(outcome.rejected, tf.constant(0.0), weight),
            )

        return of_client(state, weights, client)

    return gradient


def _rejected_with(
    outcome: client_works.LocalOutcome, at_server: client_works.LocalOutcome
) -> client_works.LocalOutcome:
    """Returns a client's outcome, rejected too where its whole gradient at x is."""
    zeros = tuple(map(tf.zeros_like, outcome.update))
    # A rejected outcome has the metrics of a model that has seen nothing.
    update, metrics = tensors.selected(
        at_server.rejected,
        (zeros, at_server.metrics),
        (outcome.update, outcome.metrics),
    )
    rejected = tf.logical_or(outcome.rejected, at_server.rejected)
    return outcome._replace(update=update, rejected=rejected, metrics=metrics)


def _weighed(
    outcome: client_works.LocalOutcome,
    weighting: tff.learning.ClientWeighting | str,
    examples: tf.data.Dataset,
) -> tuple[client_works.LocalOutcome, tf.Tensor]:
    """Returns a client's outcome, and its weight in the aggregate.

    Args:
      outcome: The outcome. It is rejected besides where batches give no weight that a
        mean could take.
      weighting: By the number of examples, uniform, or as batches say.
      examples: The client's batches.

    Returns:
      The outcome, and a `float32` scalar.
    """
    if weighting == example_weights.CLIENT_WEIGHT:
        weight = _given_weight(examples)
        rejected = tf.logical_or(outcome.rejected, tf.math.is_inf(weight))
        return outcome._replace(rejected=rejected), weight
    weight = tf.cast(outcome.num_examples, tf.float32)
    if weighting == tff.learning.ClientWeighting.UNIFORM:
        weight = tf.minimum(weight, 1.0)
    return outcome, weight


def _initial_state(
    spec: client_works.ModelSpec,
    work: client_works.ClientWork,
    keep_latest_models: bool,
) -> client_works.ClientState | None:
    if not (work.keeps_client_state or keep_latest_models):
        return None
    vector_type = tensors.vector_type(spec.weights_type.trainable)
    zeros = np.zeros(vector_type.shape, vector_type.dtype)
    state: Any = collections.OrderedDict()
    if work.keeps_client_state:
        state = returned.result_of(work, "initial_client_state", zeros)
    what = f"What initial_client_state of {type(work).__name__} returns"
    checks.check_instance(
        what, state, Mapping, "a dictionary, such as OrderedDict(sum=zeros)"
    )
    for leaf in tf.nest.flatten(state):
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise TypeError(
                f"{what} must hold arrays or numbers of NumPy's, found "
                f"{checks.shown(leaf)}. Say of which dtype it is: np.float32(0)."
            )
    if keep_latest_models:
        state[LATEST_MODEL] = zeros
    return state


def _data_type_with_state(
    spec: client_works.ModelSpec, initial_state: client_works.ClientState
) -> compat.Type:
    specs = tf.nest.map_structure(
        lambda array: tf.TensorSpec(array.shape, array.dtype), initial_state
    )
    return compat.to_type(
        collections.OrderedDict(
            examples=spec.data_type,
            state=compat.tensorflow_to_type(specs),
            index=np.int32,
        )
    )


def _count(dataset: tf.data.Dataset) -> tf.Tensor:
    """Returns the number of examples in a dataset of batches."""

    @autograph.as_written
    def add(total: tf.Tensor, batch: Any) -> tf.Tensor:
        return total + tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]

    return dataset.reduce(tf.constant(0, tf.int64), add)


def _given_weight(dataset: tf.data.Dataset) -> tf.Tensor:
    """Returns the weight of a client that its batches have, to the last bit.

    Where they have one that is negative or not finite, it is infinite.
    """

    @autograph.as_written
    def larger(weight: tf.Tensor, batch: Any) -> tf.Tensor:
        of_batch = tf.cast(batch[example_weights.CLIENT_WEIGHT], tf.float32)
        of_batch = tf.where(of_batch >= 0, of_batch, math.inf)
        return tf.maximum(weight, tf.reduce_max(of_batch))

    return dataset.reduce(tf.constant(0.0), larger)


def _local_result(
    outcome: client_works.LocalOutcome, full_gradient: tf.Tensor | None
) -> client_works.LocalResult:
    dtype = outcome.update[0].dtype
    return client_works.LocalResult(
        outcome.update,
        outcome.trainable,
        tf.cast(outcome.num_steps, dtype),
        tf.cast(outcome.num_examples, dtype),
        full_gradient,
        outcome.work_state,
    )


def _new_state(
    work: client_works.ClientWork,
    context: client_works.LocalContext,
    outcome: client_works.LocalOutcome,
    output: client_works.ClientOutput,
    stays: tf.Tensor,
    keep_latest_models: bool,
) -> Any:
    """Returns a client's state after the round."""
    old_state = autograph.of_user(work.idle_client_state)(context)
    new_state = output.client_state
    if keep_latest_models:
        # A client that stays has the server's. Of others y itself, since not every
        # update is x - y.
        old_state = _with_latest_model(old_state, context.initial_trainable)
        new_state = _with_latest_model(new_state, outcome.trainable)
    of_work = f"of {type(work).__name__} returns"
    return tensors.selected(
        stays,
        returned.as_like(
            f"The client state that idle_client_state {of_work}",
            old_state,
            context.client_state,
        ),
        returned.as_like(
            f"The client state that update_client_state {of_work}",
            new_state,
            context.client_state,
        ),
    )


def _with_latest_model(state: Any, model: tensors.Tensors) -> client_works.ClientState:
    vector = tensors.to_vector(model)
    return collections.OrderedDict(state, **{LATEST_MODEL: vector})


def _sums(
    outcome: client_works.LocalOutcome, idle: tf.Tensor, weight: tf.Tensor
) -> Any:
    """Returns what a client reports, of `SUMS_TYPE`.

    An idle client is counted in `cohort`, and in `rejected` if its update was.

    What the server sets against the mean update is weighed as the update is. Otherwise
    their ratio has no bound where the clients' weights and their work are unequal.
    """
    counts = tf.cast(tf.logical_not(idle), tf.float32)
    # A rejected update is zero.
    drift = tensors.global_norm(outcome.update)
    return collections.OrderedDict(
        cohort=tf.constant(1.0),
        clients=counts,
        weight=weight,
        squared_weight=tf.square(weight),
        steps=tf.cast(outcome.num_steps, tf.float32) * weight,
        examples=tf.cast(outcome.num_examples, tf.float32) * counts,
        drift=drift * counts,
        squared_drift=tf.square(drift * counts) * weight,
        rejected=tf.cast(outcome.rejected, tf.int32),
    )
