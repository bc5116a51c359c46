"""Estimates from what a sample of clients measured, with intervals over clients.

All of them are functions of the clients' weights and of inner products. Those of
different clients are free of the clients' own noise, those of a client with itself are
so where they come from two halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

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


def moments(
    p: np.ndarray, products: np.ndarray, own: np.ndarray, population: float
) -> tuple[float, float, float]:
    """Returns what clients measured have in common, and how they differ.

    Args:
      p: The weights p_i of those measured.
      products: ⟨u_i, u_j⟩ of theirs.
      own: What stands for ⟨u_i, u_i⟩.
      population: N, the number of all clients.

    Returns:
      Σ p_i ‖u_i‖²; the squared length of the mean of all clients; and the variance of
      a cohort of one, N Σ p_i² ‖u_i − mean‖².
    """
    count = np.count_nonzero(p)
    products = products + np.diag(own - np.diag(products))
    length, of_mean, alone = p @ own, p @ products @ p, p @ p
    # Clients are nearer to the mean of a sample than to that of all.
    nearer = (1 - alone * count / population) / (1 - alone)
    gaps = own - 2 * products @ p + of_mean
    spread = nearer * count * p**2 @ gaps
    return length, length - nearer * (length - of_mean), spread


def dissimilarity(gradients: np.ndarray, own: np.ndarray, population: int) -> Statistic:
    """Returns the statistic of how different clients' gradients are.

    Args:
      gradients: g_i, a row each.
      own: ⟨g_ia, g_ib⟩ of halves.
      population: N.
    """
    products = _products(gradients)

    def statistic(p: np.ndarray) -> Mapping[str, Any]:
        length, of_mean, _ = moments(p, products, own, population)
        naive, naive_mean, _ = moments(p, products, np.diag(products), population)
        g2, g2_naive = length - of_mean, naive - naive_mean
        return {
            "mean_squared_length": length,
            "squared_length_of_mean": of_mean,
            "g2": g2,
            "agreement": of_mean / length,
            "agreement_of_others": moments(p, products, own, np.inf)[1] / length,
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
    # In place, since models may be large: Δ_i, how it differs in another order, Δ_i
    # with variates, and what these change, of Δ_i and of FedNova's Δ_i / K_i.
    rows = np.array([*found[:4], found.variates])
    updates, orders, corrected, gaps, gaps_per_step = rows
    orders -= updates
    gaps[:] = _without(gaps, updates - corrected, weights)
    per_step = updates / found.steps[:, np.newaxis].astype(updates.dtype)
    gaps_per_step[:] = _without(gaps_per_step, per_step - corrected, weights)
    count = len(weights)
    grams = _products(rows.reshape(5 * count, -1)).reshape(5, count, 5, count)
    (uu, uo, *_), (_, oo, *_), (_, _, cc, cg, cs), (*_, gg, _), (*_, ss) = (
        grams.swapaxes(1, 2)
    )
    own, noise = np.diag(uu + uo), np.diag(oo) / 2

    def bias(p: np.ndarray, gg: np.ndarray, cg: np.ndarray) -> tuple[float, ...]:
        """Returns how far the mean update is off that of corrected ones.

        The squared tangent of the angle, the squared length of the part along them, and
        by how much this is longer than they are.
        """
        gap, along, length = p @ gg @ p, p @ cg @ p, p @ cc @ p
        step = length * (1 + along / length) ** 2
        return (gap - along**2 / length) / step, step, along / length

    def statistic(p: np.ndarray) -> Mapping[str, Any]:
        off, step, shrinkage = bias(p, gg, cg)
        off_per_step, _, _ = bias(p, ss, cs)
        _, _, spread = moments(p, uu, own, population)
        _, _, remaining = moments(p, cc, np.diag(cc) - noise, population)
        of_batches = np.count_nonzero(p) * p**2 @ noise
        errors: dict[str, Any] = {
            "bias": off,
            "cohort_noise": spread * left_out / step,
            "minibatch_noise": of_batches / cohort_size / step,
        }
        shares = {f"{name}_share": max(0.0, each) for name, each in errors.items()}
        total = np.float64(sum(shares.values()))
        kept = max(0.0, remaining * left_out / step) + shares["minibatch_noise_share"]
        length, update = p @ np.sqrt(np.diag(uu)), step * (1 + off)
        return {
            "drift": length,
            "drift_over_mean": length / np.sqrt(update),
            "cosine": p @ _cosines(uu, p),
            "shrinkage": shrinkage,
            **errors,
            **{name: each / total for name, each in shares.items()},
            "variates_share": (total - kept) / total,
            "bias_of_unequal_work": off - off_per_step,
            "noise_scale": (spread + of_batches) / update,
        }

    return statistic


def _without(variates: np.ndarray, gaps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns gaps without what is along variates, which cancel in the mean.

    Without them single clients vary as little as the mean does, and intervals tell how
    much that is.
    """
    length = weights @ np.sum(variates**2, 1)
    along = weights @ np.sum(gaps * variates, 1)
    return gaps - gaps.dtype.type(along / length if length else 0) * variates


def _products(rows: np.ndarray) -> np.ndarray:
    return (rows @ rows.T).astype(np.float64)


def _cosines(products: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns the cosine of each vector and the weighted sum of the others."""
    own, with_sum = np.diag(products), products @ p
    others = p @ with_sum - 2 * p * with_sum + p**2 * own
    return (with_sum - own * p) / np.sqrt(np.maximum(own * others, 1e-300))
