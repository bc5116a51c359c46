"""Local work of clients that keep memory between rounds."""

from __future__ import annotations

import abc
import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.client_works.local_work import LocalContext, LocalWork, Step
from tff_drift.tensors import Tensors, from_vector

ClientState = collections.OrderedDict[str, Any]
_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class Memory(NamedTuple):
    """What a client keeps, and what it tells the server besides its update.

    Attributes:
      client_state: The client's new state.
      message: A vector for the server, such as the change of a control variate;
        `()` for methods that send nothing besides the update.
    """

    client_state: ClientState
    message: Any = ()


class LocalResult(NamedTuple):
    """What one client's local training came to.

    Attributes:
      pseudo_gradient: x - y_i, a vector.
      num_steps: K_i, the minibatches trained on, a scalar of the weights' dtype.
      num_examples: The examples trained on, epochs included, alike.
      full_gradient: The gradient of the whole local loss at x, a vector; None
        unless the work asks for it by `needs_full_gradient`.
    """

    pseudo_gradient: tf.Tensor
    num_steps: tf.Tensor
    num_examples: tf.Tensor
    full_gradient: tf.Tensor | None


class StatefulSgd(LocalWork):
    """SGD whose gradients are corrected by what the client remembers.

    Every local step is

    ```
    y <- y - η (clip(g(y)) + λ y + correction)
    ```

    where `correction` is a vector that stays fixed over the local steps of a round.
    With `clipping_norm` the minibatch gradient of the loss is clipped to that global
    L2 norm before weight decay and correction are added: what bounds the gradient
    must not bound the correction.

    Args:
      learning_rate: η, per local step.
      weight_decay: λ, at least 0.
      clipping_norm: The largest norm of a minibatch gradient; None for no limit.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """

    # Whether `remember` wants the gradient of the whole local loss at x, which
    # costs another pass over the client's data.
    needs_full_gradient = False

    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0.0,
        clipping_norm: float | None = None,
    ) -> None:
        checks.check_positive("client_learning_rate", learning_rate)
        checks.check_non_negative("weight_decay", weight_decay)
        if clipping_norm is not None:
            checks.check_positive("gradient_clipping_norm", clipping_norm)
        self._learning_rate = learning_rate
        self.weight_decay = weight_decay
        self._clipping_norm = clipping_norm

    @abc.abstractmethod
    def initial_client_state(self, zeros: np.ndarray) -> ClientState:
        """Returns the state of a client that has not taken part yet.

        Args:
          zeros: A zero vector of the size and dtype of the trainable weights.
        """

    @abc.abstractmethod
    def correction(self, context: LocalContext) -> tf.Tensor:
        """Returns what is added to every gradient, a vector."""

    @abc.abstractmethod
    def remember(self, context: LocalContext, local: LocalResult) -> Memory:
        """Returns the client's new memory.

        Args:
          context: The fixed part of the round.
          local: What local training came to.
        """

    def initial_hparams(self) -> collections.OrderedDict[str, Any]:
        """Returns the local learning rate."""
        return collections.OrderedDict(
            [(_RATE, tf.constant(self._learning_rate, tf.float32))]
        )

    def init(self, context: LocalContext) -> Any:
        """Returns the round's correction in the shapes of the weights."""
        return from_vector(self.correction(context), context.initial_trainable)

    def direction(
        self, context: LocalContext, correction: Tensors, step: Step
    ) -> Tensors:
        """Returns the direction of a local step."""
        del context
        gradients = self.local_gradients(step)
        return tuple(g + c for g, c in zip(gradients, correction))

    def local_gradients(self, step: Step) -> Tensors:
        """Returns the minibatch gradient, clipped and with weight decay."""
        gradients = step.gradients
        if self._clipping_norm is not None:
            clipped, _ = tf.clip_by_global_norm(list(gradients), self._clipping_norm)
            gradients = tuple(clipped)
        if self.weight_decay:
            gradients = tuple(
                g + self.weight_decay * y for g, y in zip(gradients, step.trainable)
            )
        return gradients

    def step(
        self, context: LocalContext, state: Any, step: Step
    ) -> tuple[Any, Tensors]:
        """Takes one corrected SGD step."""
        rate = context.hparams[_RATE]
        direction = self.direction(context, state, step)
        return state, tuple(
            y - tf.cast(rate, y.dtype) * d for y, d in zip(step.trainable, direction)
        )

    def finish(self, context: LocalContext, state: Any, trainable: Tensors) -> Tensors:
        """Returns the pseudo-gradient x - y_i."""
        del state
        return tuple(
            initial - final
            for initial, final in zip(context.initial_trainable, trainable)
        )
