"""Local training: the steps of an optimizer, corrected where methods control drift."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, TypedDict

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, optimizers
from tff_drift.client_works.local_work import LocalContext, LocalWork, Step
from tff_drift.tensors import Tensors, clipped, clipped_product, from_vector


class LocalOptions(TypedDict, total=False):
    """The options of local training, the same for every method that trains.

    Attributes:
      client_weight_decay: λ of the local gradient g(y) + λ y, at least 0; by default
        0.
      gradient_clipping_norm: The largest L2 norm, over all weights, of the corrected
        minibatch gradient g(y) + correction, before weight decay is added; by default
        `None`, for no limit.
    """

    client_weight_decay: float
    gradient_clipping_norm: float | None


def check_sgd_rate(client_learning_rate: Any, reason: str) -> None:
    """Raises unless the clients' steps are of plain SGD, given by its rate.

    Args:
      client_learning_rate: The value to check.
      reason: Why a method takes nothing else, a clause; for the message.

    Raises:
      TypeError: If it is an optimizer, or no number either.
      ValueError: If it is not a finite number greater than 0.
    """
    if isinstance(client_learning_rate, tff.learning.optimizers.Optimizer):
        raise TypeError(
            "client_learning_rate must be a number, the rate of plain SGD, because "
            f"{reason}, found the optimizer {client_learning_rate!r}. Give its rate."
        )
    checks.check_positive("client_learning_rate", client_learning_rate)


class LocalSgd(LocalWork):
    """Local training: y starts at x and takes an optimizer's step per minibatch.

    ```
    y <- ClientOpt(y, η, clip(g(y) + correction) + λ y)
    ```

    With SGD, y <- y - η (…). The update is the pseudo-gradient Δ_i = x - y_i, a
    descent direction for the server. There is no correction here: methods that
    control drift override `correction`, of what stays fixed over the local steps of a
    round, such as control variates, and `corrected`, of what changes with y, such as a
    proximal term.

    Gradient and correction are clipped together, and weight decay is added after
    that, as in the published code of FedDyn, which AdaBest follows: its local loss
    holds the correction, `clip_grad_norm_` bounds the gradient of that loss, and the
    decay is the optimizer's (`utils_general.py`, lines 160-165, in
    https://github.com/alpemreacar/FedDyn).

    Args:
      client_optimizer_fn: The `tff.learning.optimizers.Optimizer` of the local steps,
        whose state starts anew in every round unless `initial_optimizer_state` says
        otherwise, or the learning rate η of plain SGD.
      client_weight_decay: λ, see `LocalOptions`.
      gradient_clipping_norm: See `LocalOptions`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        client_optimizer_fn: optimizers.OptimizerOrRate,
        client_weight_decay: float = 0.0,
        gradient_clipping_norm: float | None = None,
    ) -> None:
        checks.check_non_negative("client_weight_decay", client_weight_decay)
        if gradient_clipping_norm is not None:
            checks.check_positive("gradient_clipping_norm", gradient_clipping_norm)
        self._optimizer = optimizers.as_optimizer(
            "client_optimizer_fn", client_optimizer_fn
        )
        self.client_weight_decay = client_weight_decay
        self._clipping_norm = gradient_clipping_norm

    def initial_hparams(self) -> collections.OrderedDict[str, Any]:
        """Returns the hyperparameters of the local optimizer."""
        # The hyperparameters do not depend on the weights: any spec will do.
        scalar = tf.TensorSpec([], tf.float32)
        return self._optimizer.get_hparams(self._optimizer.initialize(scalar))

    def init(self, context: LocalContext) -> Any:
        """Returns the optimizer's state at the round's rates, and the correction."""
        specs = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype),
            context.initial_trainable,
        )
        state = self.initial_optimizer_state(context, self._optimizer.initialize(specs))
        state = self._optimizer.set_hparams(state, context.hparams)
        correction = self.correction(context)
        if correction is None:
            return state, ()
        return state, from_vector(correction, context.initial_trainable)

    def initial_optimizer_state(self, context: LocalContext, fresh: Any) -> Any:
        """Returns the optimizer's state before the round's first step: a fresh one.

        A client that keeps its optimizer's state gives that of its last round, which
        `LocalResult.work_state` had for `update_client_state`.

        Args:
          context: The fixed part of the round.
          fresh: The state of an optimizer that has taken no step.
        """
        del context
        return fresh

    def correction(self, context: LocalContext) -> tf.Tensor | None:
        """Returns what is added to every gradient of the round: here nothing.

        Args:
          context: The fixed part of the round.

        Returns:
          A vector, the entries of all weights in order; `None` for nothing.
        """
        del context
        return None

    def direction(
        self, context: LocalContext, correction: Tensors, step: Step
    ) -> Tensors:
        """Returns the direction of a local step: clip(g(y) + correction) + λ y.

        Args:
          context: The fixed part of the round.
          correction: The round's correction in the shapes of the weights, `()` for
            none.
          step: The current weights and the gradient of one minibatch there.
        """
        gradients = self.corrected(context, correction, step)
        return self.local_gradients(gradients, step.trainable)

    def corrected(
        self, context: LocalContext, correction: Tensors, step: Step
    ) -> Tensors:
        """Returns g(y) + correction, which is clipped as one.

        Args:
          context: The fixed part of the round.
          correction: As in `direction`.
          step: As in `direction`.
        """
        del context
        if not correction:
            return step.gradients
        return tuple(g + c for g, c in zip(step.gradients, correction))

    def local_gradients(self, gradients: Tensors, trainable: Tensors) -> Tensors:
        """Returns a gradient, clipped and with weight decay: clip(g) + λ y."""
        if self._clipping_norm is not None:
            gradients = clipped(gradients, self._clipping_norm)
        if self.client_weight_decay:
            gradients = tuple(
                g + self.client_weight_decay * y for g, y in zip(gradients, trainable)
            )
        return gradients

    def local_gradients_product(
        self,
        hessian_product: Callable[[Callable[[Tensors], Tensors]], Tensors],
        vector: Tensors,
    ) -> Tensors:
        """Returns (H clip'(g) + λ I) v, with the derivative of `local_gradients`.

        Args:
          hessian_product: As `LocalModel.hessian_product`, of a batch: H times a
            function of the gradient g.
          vector: v.
        """

        def through_clipping(gradients: Tensors) -> Tensors:
            if self._clipping_norm is None:
                return vector
            return clipped_product(gradients, self._clipping_norm, vector)

        product = hessian_product(through_clipping)
        if self.client_weight_decay:
            product = tuple(
                p + self.client_weight_decay * v for p, v in zip(product, vector)
            )
        return product

    def step(
        self, context: LocalContext, state: Any, step: Step
    ) -> tuple[Any, Tensors]:
        """Takes one step of the local optimizer."""
        optimizer_state, correction = state
        optimizer_state, trainable = self._optimizer.next(
            optimizer_state,
            step.trainable,
            self.direction(context, correction, step),
        )
        return (optimizer_state, correction), trainable

    def finish(self, context: LocalContext, state: Any, trainable: Tensors) -> Tensors:
        """Returns the pseudo-gradient Δ_i = x - y_i."""
        del state
        return tuple(
            initial - final
            for initial, final in zip(context.initial_trainable, trainable)
        )
