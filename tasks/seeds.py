"""Random streams of a task, one per purpose, all from the task's seed."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import random
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

_IS_DRAWING: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "_IS_DRAWING", default=False
)


def _sequence(seed: int, purpose: str) -> np.random.SeedSequence:
    digest = hashlib.sha256(purpose.encode()).digest()[:8]
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.SeedSequence((seed, *words))


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Returns the random generator for one purpose.

    Streams of different purposes are independent: drawing more from one leaves
    the others as they are.

    Args:
      seed: The task's seed, at least 0.
      purpose: What the numbers are for, such as "partition".

    Returns:
      A new generator, equal for equal arguments.
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose)))


def initializer_seeds(seed: int, count: int) -> list[int]:
    """Returns distinct seeds for the initializers of a model's weights.

    Keras initializers of one kind, shape and seed give equal values, so layers
    that share a seed would start alike.

    Args:
      seed: The task's seed, at least 0.
      count: The number of seeds.

    Returns:
      `count` distinct integers, equal for equal arguments.
    """
    first = int(_sequence(seed, "initial weights").generate_state(1)[0]) // 2
    return list(range(first, first + count))


@contextlib.contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Has Keras draw what a user's net leaves open from a task's seed.

    Initializers and random layers without a seed take one of Python's own generator.
    That one goes on afterwards as if nothing had been drawn. The outermost seed counts:
    that of `tasks.load`, where a plugin makes its task of another one. Keras 2 takes
    what `tf.keras.utils.set_random_seed` has made, where that was called.

    Args:
      seed: The task's seed, at least 0.

    Yields:
      Nothing; models are built inside.
    """
    if _IS_DRAWING.get():
        yield
        return
    token, before = _IS_DRAWING.set(True), random.getstate()
    random.seed(int(_sequence(seed, "models").generate_state(1)[0]))
    try:
        yield
    finally:
        random.setstate(before)
        _IS_DRAWING.reset(token)


def seeded(function: Callable[P, T], seed: int) -> Callable[P, T]:
    """Returns a function that builds the same model at every call.

    Args:
      function: The function, such as a task's `model_fn`.
      seed: The task's seed, at least 0.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with drawing_from(seed):
            return function(*args, **kwargs)

    return call
