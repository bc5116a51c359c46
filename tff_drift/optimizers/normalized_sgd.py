"""SGD on the normalised gradient: the server step of normalised FedAvg."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift.optimizers import tensorwise
from tff_drift.tensors import wide


def _global_norm(structure: Any) -> tf.Tensor:
    # One scalar per tensor, added as float64: the tensors' dtypes may differ. Squares
    # of half precision are added in float32: 65,505 of ones would be infinite.
    squares = [
        tf.cast(tf.reduce_sum(tf.square(tf.cast(t, wide(t.dtype)))), tf.float64)
        for t in tf.nest.flatten(structure)
    ]
    return tf.sqrt(tf.reduce_sum(squares))


def _divided(structure: Any, divisor: tf.Tensor) -> Any:
    return tf.nest.map_structure(
        lambda t: tf.math.divide_no_nan(t, tf.cast(divisor, t.dtype)), structure
    )


def _normalized(gradients: Any) -> Any:
    """Returns `gradients` divided by their global norm; zeros if all are zero."""
    largest = tf.reduce_max(
        [
            tf.cast(tf.reduce_max(tf.abs(t)), tf.float64)
            for t in tf.nest.flatten(gradients)
        ]
    )
    # The largest entry is divided out first, so that no square overflows or
    # vanishes in float32: any gradient that is not zero has a direction.
    scaled = _divided(gradients, largest)
    return _divided(scaled, _global_norm(scaled))


class _NormalizedSgd(tff.learning.optimizers.Optimizer):
    """See `build_normalized_sgd`."""

    def __init__(self, learning_rate: tensorwise.Float) -> None:
        self._sgd = tff.learning.optimizers.build_sgdm(learning_rate)

    def initialize(self, specs: Any) -> collections.OrderedDict[str, Any]:
        return self._sgd.initialize(specs)

    def next(
        self, state: Mapping[str, Any], weights: Any, gradients: Any
    ) -> tuple[collections.OrderedDict[str, Any], Any]:
        gradients = tensorwise.prepare_gradients(weights, gradients)
        return self._sgd.next(state, weights, _normalized(gradients))

    def get_hparams(
        self, state: Mapping[str, Any]
    ) -> collections.OrderedDict[str, Any]:
        return self._sgd.get_hparams(state)

    def set_hparams(
        self, state: Mapping[str, Any], hparams: Mapping[str, Any]
    ) -> collections.OrderedDict[str, Any]:
        return self._sgd.set_hparams(state, hparams)


def build_normalized_sgd(
    learning_rate: tensorwise.Float,
) -> tff.learning.optimizers.Optimizer:
    """Builds the server step of normalised FedAvg.

    Charles et al. (2021), On Large-Cohort Training for Federated Learning,
    section 5.4. https://arxiv.org/abs/2106.07820

    With the weights x and the gradient (on the server the pseudo_gradient)
    delta, a step is

    ```
    x <- x - learning_rate delta / ||delta||
    ```

    where the norm is the L2 norm over all weight tensors together, so that every
    step has the length `learning_rate`. If delta is zero there is no step. The
    state is `<learning_rate=float32>`, its only hyperparameter.

    Args:
      learning_rate: The paper's eta_s: the length of a step, a number of at
        least 0 (0 takes no step), or a scalar float tensor of the computation
        that uses the optimizer.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If `learning_rate` is not a number.
      ValueError: If `learning_rate` is below 0 or not finite.
    """
    tensorwise.check_learning_rate(learning_rate)
    if not tf.is_tensor(learning_rate):
        # TFF would keep an integer rate as an integer tensor.
        learning_rate = float(learning_rate)
    return _NormalizedSgd(learning_rate)
