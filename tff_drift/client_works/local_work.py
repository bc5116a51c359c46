"""The work of a client on its data in one round.

A `ClientWork` is the client's half of a method. Most are a `LocalWork`, written as
init / step / finish, which `run_local_work` drives over the client's batches; variants
differ in the three methods only:

    state = work.init(context)
    for batch in dataset:
        state = work.step(context, state, batch_gradients)
    update = work.finish(context, state)
"""

from __future__ import annotations

import abc
import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, returned
from tff_drift.client_works.client_state import (
    ClientOutput,
    ClientState,
    LocalResult,
)
from tff_drift.client_works.local_models import LocalModel
from tff_drift.client_works.model_spec import ModelSpec
from tff_drift.layers import step_seed
from tff_drift.tensors import Tensors


class LocalContext(NamedTuple):
    """The values that stay fixed during one client's work in one round.

    Attributes:
      initial_trainable: The trainable weights x that the server sent, as a flat
        tuple of tensors.
      hparams: The hyperparameters in force in this round, an `OrderedDict`.
      round_number: Scalar `int32`, counted from 0.
      client_state: The client's state, empty for methods without.
      server_message: What the server sends besides the model, such as its control
        variate; empty for methods that send nothing else.
      num_examples: Scalar `int64`, the examples that the client is about to train on;
        empty unless the work asks for it.
      cohort_gradient: The mean of the gradients at x of the whole losses of the
        cohort's clients, a vector; empty unless the work asks for it.
    """

    initial_trainable: Tensors
    hparams: Any
    round_number: tf.Tensor
    client_state: Any = ()
    server_message: Any = ()
    num_examples: Any = ()
    cohort_gradient: Any = ()


class LocalOutcome(NamedTuple):
    """The result of one client's work.

    Attributes:
      update: The update to aggregate, zeros if it was rejected.
      trainable: The local weights y after the last step.
      num_examples: Scalar `int64`, examples trained on, epochs included.
      num_steps: Scalar `int32`, the minibatches trained on: K_i.
      rejected: Scalar boolean, true if the update held a non-finite value.
      metrics: The model's unfinalized training metrics.
      work_state: The work's state after the last step, for `update_client_state`;
        empty for work that is not a `LocalWork`.
    """

    update: Tensors
    trainable: Tensors
    num_examples: tf.Tensor
    num_steps: tf.Tensor
    rejected: tf.Tensor
    metrics: Any
    work_state: Any = ()


# What one client does, of the server's weights, its dataset and its context.
RunWork = Callable[
    [tff.learning.models.ModelWeights, tf.data.Dataset, LocalContext], LocalOutcome
]


class ClientWork(abc.ABC):
    """The client's half of a method.

    A method whose clients keep a state between rounds says what a client starts with
    (`initial_client_state`) and what becomes of it (`update_client_state`); the state
    is there as `LocalContext.client_state`. A method whose clients send a message
    besides their update returns it from `update_client_state` too.
    """

    # Whether `update_client_state` wants the gradient of the whole local loss at x,
    # which costs another pass over the client's data.
    needs_full_gradient = False
    # Whether the work wants `LocalContext.num_examples`, for a pass that counts.
    needs_num_examples = False
    # Whether the work wants `LocalContext.cohort_gradient`, for another pass and
    # another exchange with the server before training.
    needs_cohort_gradient = False
    # Whether a client's update is multiplied by the cohort's mean message over its own
    # before updates are aggregated.
    normalizes_update = False
    # Whether all clients must take part in every round.
    needs_full_participation = False

    @abc.abstractmethod
    def initial_hparams(self) -> collections.OrderedDict[str, Any]:
        """Returns the hyperparameters that live in the process's state."""

    @abc.abstractmethod
    def prepare(
        self, spec: ModelSpec, loop_implementation: tff.learning.LoopImplementation
    ) -> RunWork:
        """Builds the models that a client needs, in the current graph.

        Args:
          spec: The model.
          loop_implementation: How the loop over the batches is built.

        Returns:
          What a client does with them.
        """

    def check_model(self, spec: ModelSpec) -> None:
        """Raises unless clients can do this work with the model.

        Args:
          spec: The model.

        Raises:
          TypeError: If they cannot for its dtypes; the message says why.
          ValueError: If they cannot otherwise, likewise.
        """
        del spec

    def initial_client_state(self, zeros: np.ndarray) -> ClientState | None:
        """Returns the state of a client that has not taken part yet.

        Args:
          zeros: A zero vector of the size and dtype of the trainable weights.

        Returns:
          Arrays by name; only here None, since clients keep no state.
        """
        del zeros
        return None

    def update_client_state(
        self, context: LocalContext, local: LocalResult
    ) -> ClientOutput:
        """Returns the client's new state and its message: here neither.

        Args:
          context: The fixed part of the round, the present state among it.
          local: What local training came to.
        """
        del context, local
        return ClientOutput()

    def idle_client_state(self, context: LocalContext) -> ClientState:
        """Returns the state of a client whose round does not count: that which it had.

        Args:
          context: The fixed part of the round, the present state among it.
        """
        return context.client_state

    @property
    def keeps_client_state(self) -> bool:
        """Whether clients keep a state: the work says what they start with."""
        return _defines(self, "initial_client_state")

    @property
    def has_client_output(self) -> bool:
        """Whether `update_client_state` has anything to return."""
        return _defines(self, "update_client_state")


def _defines(work: ClientWork, name: str) -> bool:
    return getattr(type(work), name) is not getattr(ClientWork, name)


class Step(NamedTuple):
    """The inputs of a local step.

    Attributes:
      trainable: The current local weights y, a flat tuple of tensors.
      gradients: The minibatch gradient g(y), alike.
      num_examples: Scalar `int64`, the examples in the minibatch.
      initial_gradients: The gradient of the same minibatch at x, alike; empty unless
        the work asks for it.
    """

    trainable: Tensors
    gradients: Tensors
    num_examples: tf.Tensor
    initial_gradients: Tensors = ()


class LocalWork(ClientWork):
    """A client's half that passes over the client's batches once."""

    # Whether the work wants `Step.initial_gradients`, at the price of a second
    # gradient in each step.
    needs_initial_gradients = False
    # Whether the weights stay x, at which all gradients are taken.
    stays_at_x = False

    @abc.abstractmethod
    def init(self, context: LocalContext) -> Any:
        """Returns the work's state before the first batch."""

    @abc.abstractmethod
    def step(
        self, context: LocalContext, state: Any, step: Step
    ) -> tuple[Any, Tensors]:
        """Takes one local step.

        Args:
          context: The fixed part of the round.
          state: The work's state.
          step: The current weights and the gradient of one minibatch there.

        Returns:
          The new state and the new local weights.
        """

    @abc.abstractmethod
    def finish(self, context: LocalContext, state: Any, trainable: Tensors) -> Tensors:
        """Returns the update that the client sends, a flat tuple of tensors.

        Args:
          context: The fixed part of the round.
          state: The work's state after the last batch.
          trainable: The local weights after the last batch.
        """

    def prepare(
        self, spec: ModelSpec, loop_implementation: tff.learning.LoopImplementation
    ) -> RunWork:
        """Builds the model; see `run_local_work` for what a client does."""
        return functools.partial(
            run_local_work,
            self,
            spec.build(),
            loop_implementation=loop_implementation,
            # A model of its own, whose metrics nobody reads.
            initial_model=spec.build() if self.needs_initial_gradients else None,
        )


def run_local_work(
    work: LocalWork,
    model: LocalModel,
    weights: tff.learning.models.ModelWeights,
    dataset: tf.data.Dataset,
    context: LocalContext,
    *,
    loop_implementation: tff.learning.LoopImplementation,
    initial_model: LocalModel | None = None,
) -> LocalOutcome:
    """Runs one client's work over its dataset.

    A client whose update holds a NaN or an infinity is rejected: it sends zeros,
    and its metrics, poisoned as well, do not count.

    Args:
      work: The client's half of the method.
      model: The model, as local training sees it.
      weights: The weights that the server sent.
      dataset: The client's batches.
      context: What stays fixed during the work.
      loop_implementation: How the loop over the batches is built.
      initial_model: The same model once more, whose gradients are taken at x; None
        for work that needs none.

    Returns:
      A `LocalOutcome`.
    """
    initial_state = () if initial_model is None else initial_model.start(weights)

    @autograph.as_written
    def take_step(state: Any, batch: Any) -> Any:
        model_state, work_state, num_examples, num_steps = state
        seed = step_seed.build_step_seed(context.round_number, num_steps, batch)
        x = context.initial_trainable
        if work.stays_at_x:
            result = model.gradients_at(x, model_state, batch, seed)
        else:
            result = model.gradients(model_state, batch, seed)
        # Not before: a layer may set a weight of its own when it is called.
        trainable = model.trainable(result.model_state)
        at_x: Tensors = ()
        if initial_model is not None:
            of_initial = initial_model.gradients_at(x, initial_state, batch, seed)
            at_x = of_initial.gradients
        stepped = autograph.of_user(work.step)(
            context,
            work_state,
            Step(trainable, result.gradients, result.num_examples, at_x),
        )
        work_state, trainable = returned.not_none(work, "step", stepped)
        model_state = model.replace_trainable(result.model_state, trainable)
        return (
            model_state,
            work_state,
            num_examples + result.num_examples,
            num_steps + 1,
        )

    state = (
        model.start(weights),
        returned.not_none(work, "init", autograph.of_user(work.init)(context)),
        tf.constant(0, tf.int64),
        tf.constant(0, tf.int32),
    )
    state = _loop(take_step, state, dataset, loop_implementation)
    model_state, work_state, num_examples, num_steps = state
    trainable = model.trainable(model_state)
    finished = autograph.of_user(work.finish)(context, work_state, trainable)
    what = f"What finish of {type(work).__name__} returns"
    update = returned.as_like(what, finished, context.initial_trainable)
    update, rejected = reject_if_not_finite(update)
    return LocalOutcome(
        update=update,
        trainable=trainable,
        num_examples=num_examples,
        num_steps=num_steps,
        rejected=rejected,
        metrics=model.metrics(model_state, discard=rejected),
        work_state=work_state,
    )


def reject_if_not_finite(update: Tensors) -> tuple[Tensors, tf.Tensor]:
    """Returns an update, zeros if it holds a NaN or an infinity, and whether it does.

    Args:
      update: The update of a client.
    """
    finite = [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in update]
    accepted = tf.reduce_all(tf.stack(finite))
    # Multiplying takes half the time of choosing.
    kept = tuple(
        tf.math.multiply_no_nan(tensor, tf.cast(accepted, tensor.dtype))
        for tensor in update
    )
    return kept, tf.logical_not(accepted)


def _loop(
    take_step: Any,
    state: Any,
    dataset: tf.data.Dataset,
    loop_implementation: tff.learning.LoopImplementation,
) -> Any:
    if loop_implementation == tff.learning.LoopImplementation.DATASET_REDUCE:
        return dataset.reduce(state, take_step)
    return autograph.converted(_iterate)(take_step, state, dataset)


def _iterate(take_step: Any, state: Any, dataset: tf.data.Dataset) -> Any:
    # AutoGraph's loop over the optional values of an iterator.
    for batch in iter(dataset):
        state = take_step(state, batch)
    return state
