"""The gradient of a client's whole data, without a local step."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf

from tff_drift.client_works.local_work import LocalContext, LocalWork, Step
from tff_drift.tensors import Tensors, wide


class FullGradient(LocalWork):
    """The gradient of the client's whole local loss at the server model.

    The weights do not move: the update is ∇f_i(x), the mean of the minibatch
    gradients weighted by their numbers of examples. In a pass of several epochs
    every epoch counts, which leaves the mean as it is.
    """

    stays_at_x = True

    def initial_hparams(self) -> collections.OrderedDict[str, Any]:
        """Returns no hyperparameters: there is no local step."""
        return collections.OrderedDict()

    def init(self, context: LocalContext) -> Any:
        """Returns an empty sum of gradients."""
        zeros = tuple(
            tf.zeros_like(tensor, wide(tensor.dtype))
            for tensor in context.initial_trainable
        )
        return zeros, tf.constant(0, tf.int64)

    def step(
        self, context: LocalContext, state: Any, step: Step
    ) -> tuple[Any, Tensors]:
        """Adds the batch's gradient, times its number of examples."""
        del context
        gradient_sum, num_examples = state
        gradient_sum = tuple(
            total
            + tf.cast(step.num_examples, total.dtype) * tf.cast(gradient, total.dtype)
            for total, gradient in zip(gradient_sum, step.gradients, strict=True)
        )
        return (gradient_sum, num_examples + step.num_examples), step.trainable

    def finish(self, context: LocalContext, state: Any, trainable: Tensors) -> Tensors:
        """Returns the mean gradient, zero for a client without examples."""
        del trainable
        gradient_sum, num_examples = state
        return tuple(
            tf.cast(
                tf.math.divide_no_nan(total, tf.cast(num_examples, total.dtype)),
                x.dtype,
            )
            for total, x in zip(gradient_sum, context.initial_trainable, strict=True)
        )
