"""Local training: the steps of an optimizer, corrected where methods control drift."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, TypedDict

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks, compat, optimizers, returned
from tff_drift.client_works.local_work import LocalContext, LocalWork, Step
from tff_drift.client_works.model_spec import ModelSpec
from tff_drift.optimizers.conversion import is_sgd
from tff_drift.tensors import Tensors, clipped, clipped_product, from_vector, minus

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class LocalOptions(TypedDict, total=False):
    """The options of local training, the same for every method that trains.

    Attributes:
      client_weight_decay: λ of the local gradient g(y) + λ y, at least 0; by default
        0.
      gradient_clipping_norm: The largest L2 norm, over all weights, of the corrected
        minibatch gradient g(y) + correction, before weight decay is added (in FedDyn
        before μ y is, too); by default `None`, for no limit.
    """

    client_weight_decay: float
    gradient_clipping_norm: float | None


def check_sgd_rate(
    client_learning_rate: Any,
    reason: str = "the method concludes gradients from a client's way and that rate",
) -> None:
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
            f"{reason}, found the optimizer {checks.shown(client_learning_rate)}. Give "
            "its rate."
        )
    checks.check_positive("client_learning_rate", client_learning_rate)


class LocalSgd(LocalWork):
    """Local training: y starts at x and takes an optimizer's step per minibatch.

    ```
    y <- ClientOpt(y, η, clip(β g(y) + μ (y - x) + correction) + λ y)
    ```

    With SGD, y <- y - η (…). The update is the pseudo-gradient Δ_i = x - y_i, a
    descent direction for the server. Here β is 1, μ is 0 and there is no correction:
    methods that control drift set `gradient_share`, β, or override `proximal_strength`,
    μ, `minibatch_gradient`, g, and `correction`, of what stays fixed over the local
    steps of a round, such as control variates.

    What corrects a gradient is clipped with it, and weight decay is added after
    that, as in the published code of FedDyn, which AdaBest follows: its local loss
    holds the correction, `clip_grad_norm_` bounds the gradient of that loss, and the
    decay is the optimizer's (`utils_general.py`, lines 160-165, in
    https://github.com/alpemreacar/FedDyn).

    Without clipping, a step of SGD is linear in y and g(y). Where that takes fewer
    passes over the weights, what stays fixed is put together before the first step:

    ```
    y <- (1 - η (μ + λ)) y - η β g(y) + (η μ x - η correction)
    ```

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

    # β, the factor of the minibatch gradient.
    gradient_share = 1.0
    # Whether μ y, without x, is added after clipping, as weight decay is.
    clips_without_pull = False
    # Whether every step begins with the optimizer's state of the first.
    keeps_statistics = False

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

    def check_model(self, spec: ModelSpec) -> None:
        """Raises unless the optimizer takes steps in the dtypes of the weights.

        Args:
          spec: The model.

        Raises:
          TypeError: If its step fails.
        """
        specs = compat.type_to_tf_tensor_specs(spec.weights_type.trainable)
        flat = tuple(tf.nest.flatten(specs))
        optimizers.check_dtypes("client_optimizer_fn", self._optimizer, flat)

    def init(self, context: LocalContext) -> Any:
        """Returns the optimizer's state at the round's rates, and the correction."""
        specs = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype),
            context.initial_trainable,
        )
        fresh = autograph.of_user(self._optimizer.initialize)(specs)
        state = returned.result_of(self, "initial_optimizer_state", context, fresh)
        set_hparams = autograph.of_user(self._optimizer.set_hparams)
        state = set_hparams(state, context.hparams)
        vector = returned.result_of(self, "correction", context)
        correction: Tensors = ()
        if not (isinstance(vector, tuple) and not vector):
            x = context.initial_trainable
            size = sum(tensor.shape.num_elements() for tensor in x)
            what = f"The vector that correction of {type(self).__name__} returns"
            spec = tf.TensorSpec([size], x[0].dtype)
            correction = from_vector(returned.as_like(what, vector, spec), x)
        if self._is_linear(context, state):
            correction = self._fixed_part(context, state, correction)
        return state, correction

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

    def correction(self, context: LocalContext) -> tf.Tensor | tuple[()]:
        """Returns what is added to every gradient of the round: here nothing.

        Args:
          context: The fixed part of the round.

        Returns:
          A vector, the entries of all weights in order; `()` for nothing.
        """
        del context
        return ()

    def proximal_strength(self, context: LocalContext) -> Any:
        """Returns μ of the proximal term μ (y - x), a scalar: here 0, for none.

        Args:
          context: The fixed part of the round.
        """
        del context
        return 0.0

    def minibatch_gradient(self, step: Step) -> Tensors:
        """Returns what a local step takes for the gradient: here g(y).

        Args:
          step: The current weights and the gradient of one minibatch there.
        """
        return step.gradients

    def _gradient(self, step: Step) -> Tensors:
        """Returns `minibatch_gradient`, which a user may have overridden."""
        what = f"What minibatch_gradient of {type(self).__name__} returns"
        return returned.as_like(what, self.minibatch_gradient(step), step.trainable)

    def direction(
        self, context: LocalContext, correction: Tensors, step: Step
    ) -> Tensors:
        """Returns a step's direction: clip(β g(y) + μ (y - x) + correction) + λ y.

        A subclass that overrides it has its steps taken so, linear or not.

        Args:
          context: The fixed part of the round.
          correction: The round's correction in the shapes of the weights, `()` for
            none.
          step: The current weights and the gradient of one minibatch there.
        """
        y, x = step.trainable, context.initial_trainable
        direction = self._gradient(step)
        if self.gradient_share != 1:
            direction = _times(self.gradient_share, direction)
        direction = _plus(direction, correction)
        if not self._pulls(context):
            return self.local_gradients(direction, y)
        mu = self._strength(context)
        if not self.clips_without_pull:
            return self.local_gradients(_plus(direction, _times(mu, minus(y, x))), y)
        direction = self.local_gradients(minus(direction, _times(mu, x)), y)
        return _plus(direction, _times(mu, y))

    def local_gradients(self, gradients: Tensors, trainable: Tensors) -> Tensors:
        """Returns a gradient, clipped and with weight decay: clip(g) + λ y."""
        if self._clipping_norm is not None:
            gradients = clipped(gradients, self._clipping_norm)
        if self.client_weight_decay:
            gradients = tuple(
                g + self.client_weight_decay * y
                for g, y in zip(gradients, trainable, strict=True)
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
                p + self.client_weight_decay * v
                for p, v in zip(product, vector, strict=True)
            )
        return product

    def step(
        self, context: LocalContext, state: Any, step: Step
    ) -> tuple[Any, Tensors]:
        """Takes one step of the local optimizer."""
        optimizer_state, correction = state
        if self._is_linear(context, optimizer_state):
            return state, self._linear_step(context, correction, step)
        direction = returned.as_like(
            f"What direction of {type(self).__name__} returns",
            self.direction(context, correction, step),
            step.trainable,
        )
        new_state, trainable = autograph.of_user(self._optimizer.next)(
            optimizer_state, step.trainable, direction
        )
        if not self.keeps_statistics:
            optimizer_state = new_state
        return (optimizer_state, correction), trainable

    def _is_linear(self, context: LocalContext, optimizer_state: Any) -> bool:
        """Whether steps are s y - η β g(y) and what stays fixed over the round.

        Not where there is a correction and nothing else: as many passes do that.
        """
        if not is_sgd(self._optimizer):
            # Its state may be anything.
            return False
        has_momentum = _has_momentum(optimizer_state)
        return (
            (self.keeps_statistics or not has_momentum)
            and (has_momentum or self.gradient_share != 1 or self._pulls(context))
            and self._clipping_norm is None
            and type(self).direction is LocalSgd.direction
            # In half precision 1 - η μ may be 1.
            and all(x.dtype.size >= 4 for x in context.initial_trainable)
        )

    def _fixed_part(
        self, context: LocalContext, optimizer_state: Any, correction: Tensors
    ) -> Tensors:
        """Returns η μ x - η correction, with the momentum that stays fixed, if any."""
        x = context.initial_trainable
        zeros = tuple(tf.zeros_like(tensor) for tensor in x)
        if _has_momentum(optimizer_state):
            # Where the optimizer goes without a gradient.
            next_of_optimizer = autograph.of_user(self._optimizer.next)
            _, fixed = next_of_optimizer(optimizer_state, zeros, correction or zeros)
        else:
            fixed = _times(-context.hparams[_RATE], correction or zeros)
        if not self._pulls(context):
            return fixed
        parts = []
        for tensor, way in zip(x, fixed, strict=True):
            rate, share = self._rate_and_share_of_y(context, tensor.dtype)
            # η μ, rounded as in 1 - η (μ + λ), so that at y = x they cancel.
            share_of_x = 1 - share - rate * self.client_weight_decay
            parts.append(share_of_x * tensor + way)
        return tuple(parts)

    def _linear_step(
        self, context: LocalContext, fixed: Tensors, step: Step
    ) -> Tensors:
        """Returns s y - η β g(y) + the fixed part."""
        moved = []
        for y, g, way in zip(step.trainable, self._gradient(step), fixed, strict=True):
            rate, share = self._rate_and_share_of_y(context, y.dtype)
            kept = y if share is None else share * y
            # No sum of three, which takes a pass less: TensorFlow orders it by what it
            # knows of shapes, and methods that are the same would round differently.
            moved.append(kept - (rate * self.gradient_share) * g + way)
        return tuple(moved)

    def _rate_and_share_of_y(
        self, context: LocalContext, dtype: tf.DType
    ) -> tuple[tf.Tensor, Any]:
        """Returns η, and s = 1 - η (μ + λ), None where that is 1."""
        rate = tf.cast(context.hparams[_RATE], dtype)
        if not (self._pulls(context) or self.client_weight_decay):
            return rate, None
        pull = self._strength(context) + self.client_weight_decay
        return rate, 1 - rate * tf.cast(pull, dtype)

    def _pulls(self, context: LocalContext) -> bool:
        """Whether there is a proximal term; μ is a tensor where clients differ."""
        mu = self._strength(context)
        return tf.is_tensor(mu) or bool(mu)

    def _strength(self, context: LocalContext) -> Any:
        """Returns `proximal_strength`, which a user may have overridden."""
        mu = self.proximal_strength(context)
        shape = tf.TensorShape(getattr(mu, "shape", ()))
        if mu is None or not shape.is_compatible_with(()):
            raise TypeError(
                f"What proximal_strength of {type(self).__name__} returns must be a "
                f"number or a scalar, found {checks.shown(mu)}."
            )
        return mu

    def finish(self, context: LocalContext, state: Any, trainable: Tensors) -> Tensors:
        """Returns the pseudo-gradient Δ_i = x - y_i."""
        del state
        return minus(context.initial_trainable, trainable)


def _has_momentum(optimizer_state: Any) -> bool:
    """Whether the state of SGD has more than its rate."""
    return len(optimizer_state) > 1


def _plus(tensors: Tensors, others: Tensors) -> Tensors:
    """Returns the sums; the first ones alone where there are no others."""
    return (
        tuple(a + b for a, b in zip(tensors, others, strict=True))
        if others
        else tensors
    )


def _times(factor: Any, tensors: Tensors) -> Tensors:
    return tuple(tf.cast(factor, tensor.dtype) * tensor for tensor in tensors)
