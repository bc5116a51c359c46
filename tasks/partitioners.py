"""Splits of one data set over clients, as pure functions of a seed.

The label skew is that of Acar et al., Federated Learning Based on Dynamic
Regularization (2021, https://arxiv.org/abs/2111.04263), which Varno et al.,
AdaBest (2022, https://arxiv.org/abs/2204.13170), section 4.1, follow: each client
draws its class proportions from a symmetric Dirichlet distribution, and clients
in random order draw examples of the classes that their proportions name, until
every client has its number of examples.
"""

from __future__ import annotations

import numpy as np

from tasks import seeds
from tff_drift import checks


def balanced_sizes(num_examples: int, num_clients: int) -> np.ndarray:
    """Returns numbers of examples that differ by at most one and use every example.

    Args:
      num_examples: The number of examples to split.
      num_clients: The number of clients, at most `num_examples`.

    Returns:
      An `int64` array of `num_clients` sizes, the larger ones first.

    Raises:
      TypeError: If an argument is not an integer.
      ValueError: If an argument is below 1, or there are more clients than
        examples.
    """
    checks.check_integer("num_examples", num_examples)
    checks.check_integer("num_clients", num_clients)
    if num_clients > num_examples:
        raise ValueError(
            f"num_clients is {num_clients}, but there are only {num_examples} examples "
            "to split. Ask for fewer clients, so that none is empty."
        )
    sizes = np.full(num_clients, num_examples // num_clients, np.int64)
    sizes[: num_examples % num_clients] += 1
    return sizes


def dirichlet_proportions(
    num_clients: int, num_classes: int, alpha: float, seed: int
) -> np.ndarray:
    """Draws every client's class proportions from a symmetric Dirichlet law.

    Args:
      num_clients: The number of clients.
      num_classes: The number of classes.
      alpha: The concentration per class (the papers' α). A small one leaves a
        client few classes; a large one gives all clients the same mix.
      seed: The seed of the draw.

    Returns:
      A `float64[num_clients, num_classes]` array whose rows sum to 1.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range.
    """
    checks.check_integer("num_clients", num_clients)
    checks.check_integer("num_classes", num_classes)
    checks.check_positive("alpha", alpha)
    checks.check_integer("seed", seed, at_least=0)
    draw = seeds.generator(seed, "class proportions")
    return draw.dirichlet(np.full(num_classes, float(alpha)), size=num_clients)


def partition_by_proportions(
    labels: np.ndarray, proportions: np.ndarray, sizes: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Deals examples to clients by their class proportions, without replacement.

    One example at a time goes to a client chosen at random among those that lack
    examples. Its class is drawn by the client's proportions among the classes
    that are left; where the client wants none of these, by the numbers of
    examples left.

    Args:
      labels: The classes of the examples, integers from 0.
      proportions: One row of class probabilities per client.
      sizes: The number of examples of each client; their sum is at most the
        number of labels.
      seed: The seed of the deal.

    Returns:
      One array of example indices per client, in the order dealt.

    Raises:
      TypeError: If `seed` is not an integer.
      ValueError: If the shapes do not fit, `sizes` ask for more examples than
        there are, or `seed` is negative.
    """
    labels, sizes = np.asarray(labels), np.asarray(sizes)
    _check_deal(labels, proportions, sizes, seed)
    rng = seeds.generator(seed, "partition")
    num_classes = proportions.shape[1]
    # Examples of each class in random order; dealing takes them from the end.
    piles = [
        rng.permutation(np.flatnonzero(labels == label)).tolist()
        for label in range(num_classes)
    ]
    left = np.array([len(pile) for pile in piles])
    takers = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    draws = rng.random(len(takers))
    shares: list[list[int]] = [[] for _ in sizes]
    for client, draw in zip(takers, draws):
        wanted = np.where(left > 0, proportions[client], 0.0)
        if wanted.sum() <= 0:
            wanted = left.astype(np.float64)
        thresholds = np.cumsum(wanted)
        # The last threshold is exactly 1 and a draw is below 1, so `side="right"`
        # finds a class, and never one of probability 0.
        label = np.searchsorted(thresholds / thresholds[-1], draw, side="right")
        shares[client].append(piles[label].pop())
        left[label] -= 1
    return [np.array(share, np.int64) for share in shares]


def _check_deal(
    labels: np.ndarray, proportions: np.ndarray, sizes: np.ndarray, seed: int
) -> None:
    checks.check_integer("seed", seed, at_least=0)
    if len(sizes) != len(proportions):
        raise ValueError(
            f"sizes are of {len(sizes)} clients and proportions of {len(proportions)}. "
            "Give one of each per client."
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < proportions.shape[1]:
        raise ValueError(
            f"labels are from {labels.min()} to {labels.max()}, but proportions are of "
            f"{proportions.shape[1]} classes. Number the classes from 0."
        )
    if sizes.sum() > len(labels):
        raise ValueError(
            f"sizes ask for {sizes.sum()} examples, but there are {len(labels)}. Ask "
            "for fewer: no example is dealt twice."
        )
