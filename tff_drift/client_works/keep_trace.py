"""Keep-trace gradient descent: the gradient through local training.

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating, Algorithm 1. https://arxiv.org/abs/1910.08234

A client takes K steps of SGD from the server's weights ω and then differentiates
its whole loss at the end of them, ω⁽ᴷ⁾(ω), with respect to their beginning:

    g = ∇_ω L(ω⁽ᴷ⁾(ω); D) = (I - ηH₁) … (I - ηH_K) ∇L(ω⁽ᴷ⁾; D),

with H_k the Hessian of the minibatch loss L(·; B_k) at ω⁽ᵏ⁻¹⁾. Rather than one graph
of all steps, the iterates are kept, and the product is walked from its right end:

    v <- ∇L(ω⁽ᴷ⁾; D);   for k = K … 1:  v <- v - η H_k v.

With clipping and weight decay a step is ω <- ω - η (clip(∇L) + λ ω), and the product
has I - η (H_k clip'(∇L) + λ I) for I - η H_k.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, tensors
from tff_drift.client_works.full_gradient import FullGradient
from tff_drift.client_works.local_models import LocalModel
from tff_drift.client_works.local_sgd import LocalSgd
from tff_drift.client_works.local_work import (
    LocalContext,
    LocalOutcome,
    Step,
    reject_if_not_finite,
)
from tff_drift.client_works.round_state import RATE
from tff_drift.layers import step_seed
from tff_drift.tensors import Tensors


class _Batches(NamedTuple):
    """A client's batches, of which the last of an epoch may be short.

    Attributes:
      count: Their number, scalar `int32`.
      lists: For each tensor of a batch, a TensorFlow list of those of all batches. A
        `tf.TensorArray` that grows cannot be vectorized.
      spec: The structure of a batch.
      round_number: The round, which the dropout masks follow.
    """

    count: tf.Tensor
    lists: tuple[tf.Tensor, ...]
    spec: Any
    round_number: tf.Tensor

    def read(self, index: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """Returns a batch, and the seed of the step that is taken on it."""
        leaves = [
            tf.ensure_shape(
                tf.raw_ops.TensorListGetItem(
                    input_handle=each,
                    index=index,
                    element_shape=tensors.ANY_SHAPE,
                    element_dtype=spec.dtype,
                ),
                spec.shape,
            )
            for each, spec in zip(self.lists, tf.nest.flatten(self.spec), strict=True)
        ]
        batch = tf.nest.pack_sequence_as(self.spec, leaves)
        return batch, step_seed.build_step_seed(self.round_number, index, batch)


def _collect(
    dataset: tf.data.Dataset, round_number: tf.Tensor, local_epochs: int
) -> _Batches:
    """Reads a dataset: gradients do not pass through its iteration.

    By the names here and of the loops below the local execution context knows which
    batches each of these takes, and takes them for many clients side by side. See
    `tff_drift.execution.local.patterns`, whose tests hold it.
    """
    empty = tuple(
        tf.raw_ops.EmptyTensorList(
            element_shape=tensors.ANY_SHAPE,
            max_num_elements=-1,
            element_dtype=spec.dtype,
        )
        for spec in tf.nest.flatten(dataset.element_spec)
    )

    @autograph.as_written
    def add(state: Any, batch: Any) -> Any:
        count, lists = state
        return count + 1, tuple(
            tf.raw_ops.TensorListPushBack(input_handle=each, tensor=leaf)
            for each, leaf in zip(lists, tf.nest.flatten(batch), strict=True)
        )

    with tf.name_scope(f"gathered_batches_of_{local_epochs}_epochs"):
        count, lists = dataset.reduce((tf.constant(0), empty), add)
    return _Batches(count, lists, dataset.element_spec, round_number)


def run_keep_trace(
    sgd: LocalSgd,
    model: LocalModel,
    replay: LocalModel,
    weights: tff.learning.models.ModelWeights,
    dataset: tf.data.Dataset,
    context: LocalContext,
    *,
    local_epochs: int,
) -> LocalOutcome:
    """Runs one client's keep-trace gradient descent.

    The first `local_epochs - 1` of the dataset's epochs make the traced steps, the
    last one is the whole local data. Dropout is on in all of them, and a step that is
    differentiated once more sees the masks that it saw. A client whose update holds
    a NaN or an infinity is rejected: it sends zeros, and its metrics do not count.

    Args:
      sgd: The local gradient of the traced steps, which are of plain SGD.
      model: The model, which takes the steps and counts the metrics.
      replay: The same model once more, in which steps are differentiated.
      weights: The weights ω that the server sent.
      dataset: The client's batches, of all epochs.
      context: What stays fixed; the hyperparameters hold the learning rate η.
      local_epochs: E.

    Returns:
      A `LocalOutcome`, whose update is g and whose trainable weights are ω⁽ᴷ⁾.
    """
    batches = _collect(dataset, context.round_number, local_epochs)
    with tf.control_dependencies([assert_divisible(batches.count, local_epochs)]):
        num_steps = batches.count // local_epochs * (local_epochs - 1)
    rate = context.hparams[RATE]
    state, trace, traced = _descend(
        sgd, model, model.start(weights), batches, num_steps, rate, context
    )
    trainable = model.trainable(state)
    state, gradient, evaluated = _evaluate(
        model, state, trainable, batches, num_steps, context
    )
    with tf.control_dependencies(
        [_assert_equal_epochs(traced, evaluated, local_epochs)]
    ):
        gradient = tuple(map(tf.identity, gradient))
    update = _walk_back(
        sgd, replay, replay.start(weights), batches, trace, num_steps, rate, gradient
    )
    update, rejected = reject_if_not_finite(update)
    return LocalOutcome(
        update=update,
        trainable=trainable,
        num_examples=traced + evaluated,
        num_steps=num_steps,
        rejected=rejected,
        metrics=model.metrics(state, discard=rejected),
    )


def _scaled_step(rate: tf.Tensor, start: Tensors, direction: Tensors) -> Tensors:
    """Returns start - rate * direction."""
    return tuple(
        x - tf.cast(rate, d.dtype) * d for x, d in zip(start, direction, strict=True)
    )


def _descend(
    sgd: LocalSgd,
    model: LocalModel,
    state: Any,
    batches: _Batches,
    num_steps: tf.Tensor,
    rate: tf.Tensor,
    context: LocalContext,
) -> tuple[Any, tuple[tf.TensorArray, ...], tf.Tensor]:
    """Takes the traced steps; returns the model state, the iterates, the examples."""
    trace = tuple(
        tf.TensorArray(
            tensor.dtype,
            size=num_steps,
            clear_after_read=False,
            element_shape=tensor.shape,
        )
        for tensor in context.initial_trainable
    )

    def step(index: tf.Tensor, state: Any, trace: Any, num_examples: tf.Tensor) -> Any:
        trainable = model.trainable(state)
        trace = tuple(
            array.write(index, tensor)
            for array, tensor in zip(trace, trainable, strict=True)
        )
        result = model.gradients(state, *batches.read(index))
        direction = sgd.local_gradients(result.gradients, trainable)
        state = model.replace_trainable(
            result.model_state, _scaled_step(rate, trainable, direction)
        )
        return index + 1, state, trace, num_examples + result.num_examples

    _, state, trace, num_examples = tf.while_loop(
        lambda index, *_: index < num_steps,
        step,
        (tf.constant(0), state, trace, tf.constant(0, tf.int64)),
        name="but_last_epochs",
    )
    return state, trace, num_examples


def _evaluate(
    model: LocalModel,
    state: Any,
    trainable: Tensors,
    batches: _Batches,
    first: tf.Tensor,
    context: LocalContext,
) -> tuple[Any, Tensors, tf.Tensor]:
    """Returns the model state, ∇L on the batches from `first` on, the examples."""
    whole = FullGradient()

    def add(index: tf.Tensor, state: Any, sums: Any) -> Any:
        result = model.gradients_at(trainable, state, *batches.read(index))
        step = Step(trainable, result.gradients, result.num_examples)
        sums, _ = whole.step(context, sums, step)
        return index + 1, result.model_state, sums

    _, state, sums = tf.while_loop(
        lambda index, *_: index < batches.count,
        add,
        (first, state, whole.init(context)),
        name="last_epoch",
    )
    _, num_examples = sums
    return state, whole.finish(context, sums, trainable), num_examples


def _walk_back(
    sgd: LocalSgd,
    replay: LocalModel,
    state: Any,
    batches: _Batches,
    trace: tuple[tf.TensorArray, ...],
    num_steps: tf.Tensor,
    rate: tf.Tensor,
    gradient: Tensors,
) -> Tensors:
    """Returns (I - ηH₁) … (I - ηH_K) ∇L, one Hessian-vector product per step."""

    def step(index: tf.Tensor, vector: Any) -> Any:
        iterate = tuple(array.read(index) for array in trace)
        product = sgd.local_gradients_product(
            functools.partial(
                replay.hessian_product,
                replay.replace_trainable(state, iterate),
                *batches.read(index),
            ),
            vector,
        )
        return index - 1, _scaled_step(rate, vector, product)

    _, vector = tf.while_loop(
        lambda index, _: index >= 0, step, (num_steps - 1, gradient), name="back"
    )
    return vector


def assert_divisible(num_batches: tf.Tensor, local_epochs: int) -> tf.Operation:
    """Returns an operation that fails unless a number of batches is that of epochs."""
    return tf.debugging.assert_equal(
        num_batches % local_epochs,
        tf.zeros_like(num_batches),
        f"local_epochs is {local_epochs}, but a client's dataset does not hold as many "
        "epochs: its number of batches is not a multiple. Give datasets that hold "
        "every epoch, each in whole batches and a last short one, such as "
        f"ClientDatasets(..., epochs={local_epochs}) returns.",
    )


def _assert_equal_epochs(
    traced: tf.Tensor, evaluated: tf.Tensor, local_epochs: int
) -> tf.Operation:
    return tf.debugging.assert_equal(
        traced,
        (local_epochs - 1) * evaluated,
        f"local_epochs is {local_epochs}, but a client's dataset does not hold as many "
        "epochs with the same number of examples each. Give datasets that hold every "
        f"epoch, such as ClientDatasets(..., epochs={local_epochs}) returns.",
    )
