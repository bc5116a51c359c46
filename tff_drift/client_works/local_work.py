"""What a client does with its data in one round.

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
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift.client_works.local_models import LocalModel, ModelSpec
from tff_drift.layers import dropout
from tff_drift.tensors import Tensors


class LocalContext(NamedTuple):
    """What stays fixed during one client's work in one round.

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
    """

    initial_trainable: Tensors
    hparams: Any
    round_number: tf.Tensor
    client_state: Any = ()
    server_message: Any = ()
    num_examples: Any = ()


class LocalOutcome(NamedTuple):
    """What one client's work ends with.

    Attributes:
      update: The update to aggregate, zeros if it was rejected.
      trainable: The local weights y after the last step.
      num_examples: Scalar `int64`, examples trained on, epochs included.
      num_steps: Scalar `int32`, the minibatches trained on: K_i.
      rejected: Scalar boolean, true if the update held a non-finite value.
      metrics: The model's unfinalized training metrics.
    """

    update: Tensors
    trainable: Tensors
    num_examples: tf.Tensor
    num_steps: tf.Tensor
    rejected: tf.Tensor
    metrics: Any


# What one client does, of the server's weights, its dataset and its context.
RunWork = Callable[
    [tff.learning.models.ModelWeights, tf.data.Dataset, LocalContext], LocalOutcome
]


class ClientWork(abc.ABC):
    """The client's half of a method."""

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
          ValueError: If they cannot; the message says why.
        """
        del spec


class Step(NamedTuple):
    """What a local step sees.

    Attributes:
      trainable: The current local weights y, a flat tuple of tensors.
      gradients: The minibatch gradient g(y), alike.
      num_examples: Scalar `int64`, the examples in the minibatch.
    """

    trainable: Tensors
    gradients: Tensors
    num_examples: tf.Tensor


class LocalWork(ClientWork):
    """A client's half that passes over the client's batches once."""

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
        model = spec.build()

        def run(
            weights: tff.learning.models.ModelWeights,
            dataset: tf.data.Dataset,
            context: LocalContext,
        ) -> LocalOutcome:
            return run_local_work(
                self,
                model,
                weights,
                dataset,
                context=context,
                loop_implementation=loop_implementation,
            )

        return run


def run_local_work(
    work: LocalWork,
    model: LocalModel,
    weights: tff.learning.models.ModelWeights,
    dataset: tf.data.Dataset,
    *,
    context: LocalContext,
    loop_implementation: tff.learning.LoopImplementation,
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

    Returns:
      A `LocalOutcome`.
    """

    def take_step(state: Any, batch: Any) -> Any:
        model_state, work_state, num_examples, num_steps = state
        seed = dropout.build_step_seed(context.round_number, num_steps, batch)
        trainable = model.trainable(model_state)
        result = model.gradients(model_state, batch, seed)
        work_state, trainable = work.step(
            context,
            work_state,
            Step(trainable, result.gradients, result.num_examples),
        )
        model_state = model.replace_trainable(result.model_state, trainable)
        return (
            model_state,
            work_state,
            num_examples + result.num_examples,
            num_steps + 1,
        )

    state = (
        model.start(weights),
        work.init(context),
        tf.constant(0, tf.int64),
        tf.constant(0, tf.int32),
    )
    state = _loop(take_step, state, dataset, loop_implementation)
    model_state, work_state, num_examples, num_steps = state
    trainable = model.trainable(model_state)
    update = work.finish(context, work_state, trainable)
    update, rejected = reject_if_not_finite(update)
    return LocalOutcome(
        update=update,
        trainable=trainable,
        num_examples=num_examples,
        num_steps=num_steps,
        rejected=rejected,
        metrics=model.metrics(model_state, discard=rejected),
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
    for batch in iter(dataset):
        state = take_step(state, batch)
    return state
