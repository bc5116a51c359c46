"""The random seed of a local step, for layers whose training can be repeated.

Keras' random layers draw from a stream that lives in the process: a run that is stopped
and resumed, or whose clients run in another order, trains on other numbers. The seed of
a step follows from values that are the same in every execution, so a resumed run ends
bit for bit like an uninterrupted one, and what one client draws does not depend on its
neighbours in the cohort.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_GOLDEN_RATIO = 0x9E3779B9


class _StepSeeds(threading.local):
    """The seed of the local step that this thread is tracing, if any."""

    def __init__(self) -> None:
        self.seed: tf.Variable | None = None
        self.draws = 0


_current = _StepSeeds()


def build_step_seed(round_number: Any, step: Any, batch: Any) -> tf.Tensor:
    """Derives the random seed of one local step.

    The seed depends on the content of the batch rather than on a client index,
    which TFF does not give to client work: two clients of one round differ in
    their data, hence in what they draw.

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
    """Gives `seed` to what is traced inside the context and calls `draw_seed`.

    The seed is a variable, assigned before every step, and not a tensor: models
    made from Keras wrap their forward pass in a `tf.function`, which is traced
    once and would hold on to the tensor of its first step.

    Args:
      seed: An `int64[2]` variable, assigned from `build_step_seed`.

    Yields:
      Nothing.
    """
    previous = (_current.seed, _current.draws)
    _current.seed, _current.draws = seed, 0
    try:
        yield
    finally:
        _current.seed, _current.draws = previous


def draw_seed() -> tf.Tensor | None:
    """Returns a seed for one random operation of the local step that is being traced.

    For your own random layers and models. The seed is a function of the round
    number, the local step, the batch's content and how often a seed was drawn in the
    step before, so that each operation of a model gets another one:

    ```python
    seed = tff_drift.layers.draw_seed()
    if seed is None:
        noise = tf.random.normal(tf.shape(inputs))
    else:
        noise = tf.random.stateless_normal(tf.shape(inputs), seed)
    ```

    Returns:
      An `int64[2]` tensor, a seed for stateless random operations; `None` where no
      client work of this library is training the model.
    """
    if _current.seed is None:
        return None
    seed = tf.random.experimental.stateless_fold_in(
        _current.seed.read_value(), _current.draws
    )
    _current.draws += 1
    return seed
