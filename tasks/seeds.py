"""Random streams of a task, one per purpose, all from the task's seed."""

from __future__ import annotations

import hashlib

import numpy as np


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
