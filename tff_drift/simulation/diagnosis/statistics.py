"""Estimates from what a sample of clients measured, with intervals over clients.

All of them are functions of the clients' weights and of inner products. Those of
different clients are free of the clients' own noise, those of a client with itself are
so where they come from two halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# The entries of vectors that are multiplied at a time: models may be large.
_BLOCK = 4096
# Numbers by name, of the weights p_i of the clients, which add up to 1.
Statistic = Callable[[np.ndarray], Mapping[str, Any]]


class Estimate(NamedTuple):
    """A number with an interval of about 95 % over clients.

    Attributes:
      value: The number.
      low: The lower end.
      high: The upper end.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if np.isnan(self.value):
            return "not to be told"
        return f"{self.value:.3g} ({self.low:.2g} to {self.high:.2g})"


@np.errstate(divide="ignore", invalid="ignore")
def jackknife(statistic: Statistic, weights: np.ndarray) -> dict[str, Estimate]:
    """Returns statistics of clients, and how they vary without each of these.

    Args:
      statistic: What to estimate.
      weights: The clients' weights.
    """
    count = len(weights)
    without = [statistic(each / each.sum()) for each in weights * (1 - np.eye(count))]
    found = {}
    for name, value in statistic(weights / weights.sum()).items():
        width = 2 * np.sqrt(count - 1) * np.std([each[name] for each in without])
        found[name] = Estimate(*map(float, (value, value - width, value + width)))
    return found


def inner_products(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the inner products of vectors, a matrix, in double precision.

    Args:
      vectors: The vectors, of one size.
    """
    products = np.zeros((len(vectors), len(vectors)))
    for start in range(0, len(vectors[0]), _BLOCK):
        block = np.array([each[start : start + _BLOCK] for each in vectors], float)
        products += block @ block.T
    return products


def moments(
    p: np.ndarray, products: np.ndarray, population: float
) -> tuple[float, float, float]:
    """Returns what clients measured have in common, and how they differ.

    Args:
      p: The weights p_i of those measured.
      products: ⟨u_i, u_j⟩ of theirs.
      population: N, the number of all clients.

    Returns:
      Σ p_i ‖u_i‖²; the squared length of the mean of all clients; and the variance of
      a cohort of one, N Σ p_i² ‖u_i − mean‖².
    """
    count, own = np.count_nonzero(p), np.diag(products)
    length, of_mean, alone = p @ own, p @ products @ p, p @ p
    # Clients are nearer to the mean of a sample than to that of all.
    nearer = (1 - alone * count / population) / (1 - alone)
    gaps = own - 2 * products @ p + of_mean
    spread = nearer * count * p**2 @ gaps
    return length, length - nearer * (length - of_mean), spread


def dissimilarity(
    gradients: Sequence[np.ndarray], own: np.ndarray, population: int
) -> Statistic:
    """Returns the statistic of how different clients' gradients are.

    Args:
      gradients: g_i.
      own: ⟨g_ia, g_ib⟩ of halves.
      population: N.
    """
    products = inner_products(gradients)
    free_of_noise = products + np.diag(own - np.diag(products))

    def statistic(p: np.ndarray) -> Mapping[str, Any]:
        length, of_mean, _ = moments(p, free_of_noise, population)
        _, of_others, _ = moments(p, free_of_noise, np.inf)
        naive, naive_mean, _ = moments(p, products, population)
        g2, g2_naive = length - of_mean, naive - naive_mean
        return {
            "mean_squared_length": length,
            "squared_length_of_mean": of_mean,
            "g2": g2,
            "agreement": of_mean / length,
            "agreement_of_others": of_others / length,
            "g2_naive": g2_naive,
            "noise_share": 1 - g2 / g2_naive,
        }

    return statistic


class Training(NamedTuple):
    """What local training at a model came to, a row for each client.

    Attributes:
      updates: Δ_i.
      again: Δ_i with the batches in another order.
      corrected: Δ_i with control variates.
      variates: These, whose weighted mean is zero.
      steps: K_i.
    """

    updates: Sequence[np.ndarray]
    again: Sequence[np.ndarray]
    corrected: Sequence[np.ndarray]
    variates: Sequence[np.ndarray]
    steps: np.ndarray


def drift(
    found: Training, weights: np.ndarray, population: int, cohort_size: int
) -> Statistic:
    """Returns the statistic of how far clients drift, and of a round's errors.

    These are relative to the step, the part of the mean update along that of corrected
    ones: a server rate changes both alike. The bias is that of the measured clients:
    the more take part, the more of it averages out.

    Args:
      found: What local training came to.
      weights: The clients' weights.
      population: N.
      cohort_size: M.
    """
    left_out = (population - cohort_size) / max(1, population - 1) / cohort_size
    changed = list(map(np.subtract, found.again, found.updates))
    products = inner_products(
        [*found.updates, *changed, *found.corrected, *found.variates]
    )
    # A vector is from here on what it has of each of these, a row for each client.
    updates, orders, corrected, variates = np.split(np.eye(len(products)), 4)

    def dot(left: np.ndarray, right: np.ndarray) -> Any:
        return np.sum(left @ products * right, -1)

    def without_variates(gaps: np.ndarray) -> np.ndarray:
        """Returns gaps without what is along variates, which cancel in the mean.

        Without them single clients vary as little as the mean does, and intervals tell
        how much that is.
        """
        along = weights @ dot(gaps, variates)
        length = weights @ dot(variates, variates)
        return gaps - (along / length if length else 0) * variates

    gaps = without_variates(updates - corrected)
    gaps_per_step = without_variates(updates / found.steps[:, np.newaxis] - corrected)
    noise = dot(orders, orders) / 2
    of_updates = updates @ products @ updates.T
    free_of_noise = of_updates + np.diag(dot(updates, orders))
    left_by_variates = corrected @ products @ corrected.T - np.diag(noise)

    def bias(p: np.ndarray, gaps: np.ndarray) -> tuple[float, ...]:
        """Returns how far the mean update is off that of corrected ones.

        The squared tangent of the angle, the squared length of the part along them, and
        by how much this is longer than they are.
        """
        gap, direction = p @ gaps, p @ corrected
        length = dot(direction, direction)
        longer = dot(gap, direction) / length
        across, step = gap - longer * direction, length * (1 + longer) ** 2
        return dot(across, across) / step, step, longer

    def statistic(p: np.ndarray) -> Mapping[str, Any]:
        off, step, shrinkage = bias(p, gaps)
        off_per_step, _, _ = bias(p, gaps_per_step)
        _, _, spread = moments(p, free_of_noise, population)
        _, _, remaining = moments(p, left_by_variates, population)
        of_batches = np.count_nonzero(p) * p**2 @ noise
        errors: dict[str, Any] = {
            "bias": off,
            "cohort_noise": spread * left_out / step,
            "minibatch_noise": of_batches / cohort_size / step,
        }
        shares = {f"{name}_share": max(0.0, each) for name, each in errors.items()}
        total = np.float64(sum(shares.values()))
        kept = max(0.0, remaining * left_out / step) + shares["minibatch_noise_share"]
        length, update = p @ np.sqrt(np.diag(of_updates)), step * (1 + off)
        return {
            "drift": length,
            "drift_over_mean": length / np.sqrt(update),
            "cosine": p @ _cosines(of_updates, p),
            "shrinkage": shrinkage,
            **errors,
            **{name: each / total for name, each in shares.items()},
            "variates_share": (total - kept) / total,
            "bias_of_unequal_work": off - off_per_step,
            "noise_scale": (spread + of_batches) / update,
        }

    return statistic


def _cosines(products: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns the cosine of each vector and the weighted sum of the others."""
    own, with_sum = np.diag(products), products @ p
    others = p @ with_sum - 2 * p * with_sum + p**2 * own
    return (with_sum - own * p) / np.sqrt(np.maximum(own * others, 1e-300))
