"""Dropout whose masks are a function of the round, the step and the batch.

Keras' own dropout draws its masks from a random stream that lives in the
process: a run that is stopped and resumed, or whose clients run in another
order, trains on other masks. Here every mask follows from values that are the
same in every execution, so a resumed run ends bit for bit like an uninterrupted
one, and one client's masks do not depend on its neighbours in the cohort.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tff_drift import checks

_GOLDEN_RATIO = 0x9E3779B9


class _StepSeeds(threading.local):
    """The seed of the local step that this thread is tracing, if any."""

    def __init__(self) -> None:
        self.seed: tf.Variable | None = None
        self.layers_seen = 0


_current = _StepSeeds()


def build_step_seed(round_number: Any, step: Any, batch: Any) -> tf.Tensor:
    """Derives the random seed of one local step.

    The seed depends on the content of the batch rather than on a client index,
    which TFF does not give to client work: two clients of one round differ in
    their data, hence in their masks.

    Args:
      round_number: A scalar integer tensor, the training round.
      step: A scalar integer tensor, the local step within the round.
      batch: A structure of tensors with a common leading batch dimension.

    Returns:
      An `int64[2]` tensor, a seed for stateless random operations.
    """
    hashes = [
        tf.reduce_sum(tf.bitcast(tf.fingerprint(leaf), tf.int64))
        for leaf in tf.nest.flatten(batch)
    ]
    # Keys of one structure are combined in their order, so that swapping
    # features and labels changes the seed.
    content = tf.constant(0, tf.int64)
    for leaf_hash in hashes:
        content = content * _GOLDEN_RATIO + leaf_hash
    position = tf.cast(round_number, tf.int64) * 2**32 + tf.cast(step, tf.int64)
    return tf.stack([content, position])


@contextlib.contextmanager
def step_seed(seed: tf.Variable) -> Iterator[None]:
    """Gives `seed` to the `Dropout` layers that are traced inside the context.

    The seed is a variable, assigned before every step, and not a tensor: models
    made from Keras wrap their forward pass in a `tf.function`, which is traced
    once and would hold on to the tensor of its first step.

    Args:
      seed: An `int64[2]` variable, assigned from `build_step_seed`.

    Yields:
      Nothing.
    """
    previous = (_current.seed, _current.layers_seen)
    _current.seed, _current.layers_seen = seed, 0
    try:
        yield
    finally:
        _current.seed, _current.layers_seen = previous


@tf.keras.utils.register_keras_serializable(package="tff_drift")
class Dropout(tf.keras.layers.Layer):
    """Dropout with reproducible masks, a drop-in for `tf.keras.layers.Dropout`.

    During local training by this library's client works, the mask is a pure
    function of the round number, the local step, the batch's content and the
    layer's position in the model. Anywhere else (Keras' own `fit`, TFF's own
    client works) the masks are drawn as Keras' layer draws them.

    Elements are kept with probability `1 - rate` and then scaled by
    `1 / (1 - rate)` (Srivastava et al., 2014,
    https://jmlr.org/papers/v15/srivastava14a.html). With `rate` 0, and outside
    training, the layer is the identity.

    Args:
      rate: The probability of dropping an element, at least 0 and below 1.
      **kwargs: Passed on to `tf.keras.layers.Layer`.

    Raises:
      TypeError: If `rate` is not a number.
      ValueError: If `rate` is not in [0, 1).
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checks.check_decay("rate", rate)
        self.rate = float(rate)

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:
        """Drops elements of `inputs` when `training` is true."""
        if training is None:
            training = tf.keras.backend.learning_phase()
        if isinstance(training, (bool, int)):
            return self._drop(inputs) if training else tf.identity(inputs)
        return tf.cond(
            tf.cast(training, tf.bool),
            lambda: self._drop(inputs),
            lambda: tf.identity(inputs),
        )

    def _drop(self, inputs: tf.Tensor) -> tf.Tensor:
        if _current.seed is None:
            return tf.nn.dropout(inputs, self.rate)
        seed = tf.random.experimental.stateless_fold_in(
            _current.seed.read_value(), _current.layers_seen
        )
        _current.layers_seen += 1
        return tf.nn.experimental.stateless_dropout(
            inputs, self.rate, seed=seed, rng_alg="philox"
        )

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns `input_shape`: dropout changes no shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration from which Keras rebuilds the layer."""
        return {**super().get_config(), "rate": self.rate}
