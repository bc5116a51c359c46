"""Splits of one data set over clients, as pure functions of a seed.

The splits are those of Varno et al., AdaBest (2022,
https://arxiv.org/abs/2204.13170), section 4.1, after Acar et al., Federated
Learning Based on Dynamic Regularization (2021, https://arxiv.org/abs/2111.04263):

*   how many examples a client has: `balanced_sizes` or `log_normal_sizes`;
*   which examples it has: `partition_iid`, or label skew, where each client draws
    its class proportions from a symmetric Dirichlet distribution
    (`dirichlet_proportions`) and clients in random order draw examples of the
    classes that their proportions name (`partition_by_proportions`);
    or, as later versions of Karimireddy et al., SCAFFOLD (2020,
    https://arxiv.org/abs/1910.06378), have it, a share of each client's examples at
    random and the rest by label (`partition_by_similarity`);
*   which clients are for tuning alone: `hold_out_clients`.

No example is given out twice, every client gets exactly its number of examples, and of
a class no more than there are; if the sizes add up to all examples, every example
is given out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks import seeds
from tff_drift import checks

# Below, NumPy draws from a Dirichlet law in a time that grows as 1/α.
_SMALLEST_ALPHA = 1e-3
# An id takes some 70 bytes.
_MOST_CLIENTS = 10**8


def client_ids(num_clients: int) -> list[str]:
    """Returns ids such as "client_07", whose order is that of their numbers.

    Args:
      num_clients: The number of clients.

    Raises:
      TypeError: If `num_clients` is no integer.
      ValueError: If it is below 1, or above a hundred million.
    """
    checks.check_integer("num_clients", num_clients)
    if num_clients > _MOST_CLIENTS:
        raise ValueError(
            f"num_clients is {num_clients:,}: the ids of more than {_MOST_CLIENTS:,} "
            "clients take more RAM than machines have. Take fewer."
        )
    digits = len(str(num_clients - 1))
    return [f"client_{index:0{digits}}" for index in range(num_clients)]


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


def log_normal_sizes(
    num_examples: int, num_clients: int, sigma: float, seed: int
) -> np.ndarray:
    """Draws numbers of examples in proportion to log-normal variables.

    Client i gets one example, so that none is empty, and of the others a share in
    proportion to exp(σ zᵢ) with standard normal zᵢ, rounded by largest remainder.

    Args:
      num_examples: The number of examples to split; the sizes add up to it.
      num_clients: The number of clients, at most `num_examples`.
      sigma: The standard deviation σ of the logarithm (AdaBest's 0.3). With 0 the
        sizes differ by at most one.
      seed: The seed of the draw.

    Returns:
      An `int64` array of `num_clients` sizes of at least 1.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or there are more clients
        than examples.
    """
    rest = num_examples - balanced_sizes(num_examples, num_clients).size
    checks.check_non_negative("sigma", sigma, of_model=False)
    checks.check_integer("seed", seed, at_least=0)
    normal = seeds.generator(seed, "client sizes").standard_normal(num_clients)
    # Relative to the largest, so that no exponential overflows.
    weights = np.exp(float(sigma) * (normal - normal.max()))
    shares = rest * weights / weights.sum()
    sizes = np.floor(shares).astype(np.int64)
    by_remainder = np.argsort(sizes - shares, kind="stable")
    sizes[by_remainder[: rest - sizes.sum()]] += 1
    return sizes + 1


def partition_iid(num_examples: int, sizes: np.ndarray, seed: int) -> list[np.ndarray]:
    """Assigns examples to clients at random, whatever their labels.

    Args:
      num_examples: The number of examples.
      sizes: The number of examples of each client; their sum is at most
        `num_examples`.
      seed: The seed of the partition.

    Returns:
      One array of example indices per client.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `sizes` ask for more examples than there are, or `seed` is
        negative.
    """
    checks.check_integer("num_examples", num_examples)
    checks.check_integer("seed", seed, at_least=0)
    sizes = _integers("sizes", sizes)
    _check_sizes(sizes, num_examples)
    order = seeds.generator(seed, "partition").permutation(num_examples)
    return np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1])


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
    checks.check_positive("alpha", alpha, of_model=False)
    checks.check_integer("seed", seed, at_least=0)
    draw = seeds.generator(seed, "class proportions")
    shape = (num_clients, num_classes)
    if alpha >= _SMALLEST_ALPHA:
        return draw.dirichlet(np.full(num_classes, float(alpha)), size=num_clients)
    # A variable of Γ(α) is one of Γ(α + 1) times U^(1/α). Times α, and relative to the
    # largest, no logarithm is too large.
    scaled = alpha * np.log(draw.standard_gamma(alpha + 1, shape))
    scaled -= draw.standard_exponential(shape)
    with np.errstate(over="ignore"):  # To minus infinity: such a class has no share.
        weights = np.exp((scaled - scaled.max(axis=1, keepdims=True)) / alpha)
    return weights / weights.sum(axis=1, keepdims=True)


def partition_by_proportions(
    labels: np.ndarray, proportions: np.ndarray, sizes: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Assigns examples to clients by their class proportions, without replacement.

    One example at a time goes to a client chosen at random among those that lack
    examples. Its class is drawn by the client's proportions among the classes
    that are left; where the client wants none of these, by the numbers of
    examples left.

    Args:
      labels: The classes of the examples, integers from 0.
      proportions: One row of class probabilities per client.
      sizes: The number of examples of each client; their sum is at most the
        number of labels.
      seed: The seed of the partition.

    Returns:
      One array of example indices per client, in the order drawn.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If the shapes do not fit, `sizes` ask for more examples than
        there are, or a number is out of its range.
    """
    labels, sizes = _integers("labels", labels), _integers("sizes", sizes)
    proportions = _check_proportions(proportions)
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
    for client, draw in zip(takers, draws, strict=True):
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


def partition_by_similarity(
    labels: np.ndarray, similarity: float, sizes: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Assigns a share of each client's examples at random, the rest sorted by label.

    The s %-similarity split of later versions of Karimireddy et al., SCAFFOLD:
    Stochastic Controlled Averaging for Federated Learning (2020,
    https://arxiv.org/abs/1910.06378), section 7: "for s% similar data we allocate to
    each user s% i.i.d. data and the remaining (100 - s)% by sorting according to
    label". With 1 all clients are alike; with 0 each has few classes.

    Args:
      labels: The classes of the examples, integers from 0.
      similarity: The share s of a client's examples that is drawn at random.
      sizes: The number of examples of each client; their sum is at most the
        number of labels.
      seed: The seed of the partition.

    Returns:
      One array of example indices per client: those at random, then those by label.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `sizes` ask for more examples than there are, or a number is out
        of its range.
    """
    labels, sizes = _integers("labels", labels), _integers("sizes", sizes)
    checks.check_probability("similarity", similarity)
    checks.check_integer("seed", seed, at_least=0)
    _check_sizes(sizes, len(labels))
    order = seeds.generator(seed, "partition").permutation(len(labels))[: sizes.sum()]
    at_random = np.rint(similarity * sizes).astype(np.int64)
    alike, others = np.split(order, [at_random.sum()])
    # Stable, so that examples of a label stay in random order.
    others = others[np.argsort(labels[others], kind="stable")]
    parts = zip(
        np.split(alike, np.cumsum(at_random)[:-1]),
        np.split(others, np.cumsum(sizes - at_random)[:-1]),
        strict=True,
    )
    return [np.concatenate(part) for part in parts]


def _integers(name: str, values: np.ndarray) -> np.ndarray:
    """Returns an argument as an array of integers from 0."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "iu" or array.ndim != 1 or not len(array):
        raise TypeError(
            f"{name} must be an array of integers with one dimension, found "
            f"{checks.shown(values)}."
        )
    if array.min() < 0:
        raise ValueError(f"{name} must be at least 0, found {array.min()}.")
    return array


def _check_proportions(proportions: np.ndarray) -> np.ndarray:
    array = np.asarray(proportions)
    if array.dtype.kind not in "iuf" or array.ndim != 2:
        raise TypeError(
            "proportions must be an array of numbers, one row per client and one "
            f"column per class, found {checks.shown(proportions)}."
        )
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(
            "proportions must be finite numbers of at least 0, found "
            f"{checks.shown(proportions)}."
        )
    return array


def _check_deal(
    labels: np.ndarray, proportions: np.ndarray, sizes: np.ndarray, seed: int
) -> None:
    checks.check_integer("seed", seed, at_least=0)
    if len(sizes) != len(proportions):
        raise ValueError(
            f"sizes are of {len(sizes)} clients and proportions of {len(proportions)}. "
            "Give one of each per client."
        )
    if labels.max() >= proportions.shape[1]:
        raise ValueError(
            f"labels are from {labels.min()} to {labels.max()}, but proportions are of "
            f"{proportions.shape[1]} classes. Number the classes from 0."
        )
    _check_sizes(sizes, len(labels))


def _check_sizes(sizes: np.ndarray, num_examples: int) -> None:
    if sizes.sum() > num_examples:
        raise ValueError(
            f"sizes ask for {sizes.sum()} examples, but there are {num_examples}. Ask "
            "for fewer: no example is given out twice."
        )


def hold_out_clients(
    client_ids: Sequence[str], num_held_out: int, seed: int
) -> tuple[list[str], list[str]]:
    """Sets clients aside, for instance to tune on.

    AdaBest (section 4) splits over 110 clients and holds out 10, or over 1,100 and
    holds out 100. Charles et al., On Large-Cohort Training for Federated Learning
    (2021, https://arxiv.org/abs/2106.07820), appendix A.4, hold out a fifth of the
    training clients.

    Args:
      client_ids: The clients.
      num_held_out: How many to hold out, fewer than there are.
      seed: The seed of the draw.

    Returns:
      The clients that stay and those held out, each in the order of `client_ids`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If a client appears twice, `num_held_out` is negative or leaves no
        client, or `seed` is negative.
    """
    if isinstance(client_ids, str) or not isinstance(client_ids, Sequence):
        raise TypeError(
            f"client_ids must be a list of ids, found {checks.shown(client_ids)}."
        )
    for each in client_ids:
        if not isinstance(each, str):
            raise TypeError(
                f"client_ids has {checks.shown(each)}, and a client's id is a string."
            )
    checks.check_integer("num_held_out", num_held_out, at_least=0)
    checks.check_integer("seed", seed, at_least=0)
    if len(set(client_ids)) < len(client_ids):
        twice = next(each for each in client_ids if client_ids.count(each) > 1)
        raise ValueError(
            f"client_ids has {checks.shown(twice)} more than once, which would be "
            "trained on and held out. Give each client once."
        )
    if num_held_out >= len(client_ids):
        raise ValueError(
            f"num_held_out is {num_held_out}, but there are only {len(client_ids)} "
            "clients. Hold out fewer, so that some are left to train on."
        )
    draw = seeds.generator(seed, "held-out clients")
    held_out = set(draw.permutation(len(client_ids))[:num_held_out].tolist())
    parts: tuple[list[str], list[str]] = ([], [])
    for index, client_id in enumerate(client_ids):
        parts[index in held_out].append(client_id)
    return parts
