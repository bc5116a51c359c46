"""Estimates from what a sample of clients measured, with intervals over clients.

All of them are functions of the clients' weights and of inner products. Those of
different clients are free of the clients' own noise, those of a client with itself are
so where they come from two halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

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
      statistic: Returns numbers by name, of the weights of the clients.
      weights: The clients' weights.
    """
    count = len(weights)
    without = [statistic(each) for each in weights * (1 - np.eye(count))]
    found = {}
    for name, value in statistic(weights).items():
        deviation = np.sqrt(count - 1) * np.std([each[name] for each in without])
        ends = value - 2 * deviation, value + 2 * deviation
        found[name] = Estimate(*map(float, (value, *ends)))
    return found


def moments(
    weights: np.ndarray, products: np.ndarray, own: np.ndarray, population: float
) -> tuple[float, float, float]:
    """Returns what clients measured have in common, and how they differ.

    Args:
      weights: The weights of the measured clients, which give their p_i.
      products: ⟨u_i, u_j⟩ of theirs.
      own: What stands for ⟨u_i, u_i⟩.
      population: N, the number of all clients.

    Returns:
      Σ p_i ‖u_i‖²; the squared length of the mean of all clients; and the variance of
      a cohort of one, N Σ p_i² ‖u_i − mean‖².
    """
    p = weights / weights.sum()
    count = np.count_nonzero(p)
    products = products + np.diag(own - np.diag(products))
    length, of_mean, alone = p @ own, p @ products @ p, p @ p
    # Clients are nearer to the mean of a sample than to that of all.
    nearer = (1 - alone * count / population) / (1 - alone)
    gaps = own - 2 * products @ p + of_mean
    return (
        length,
        length - nearer * (length - of_mean),
        nearer * count * p**2 @ gaps,
    )


def dissimilarity(gradients: np.ndarray, own: np.ndarray, population: int) -> Statistic:
    """Returns the statistic of how different clients' gradients are.

    Args:
      gradients: g_i, a row each.
      own: ⟨g_ia, g_ib⟩ of halves.
      population: N.
    """
    products = _products(gradients, gradients)

    def statistic(weights: np.ndarray) -> Mapping[str, Any]:
        length, of_mean, _ = moments(weights, products, own, population)
        _, of_others, _ = moments(weights, products, own, np.inf)
        naive, naive_mean, _ = moments(weights, products, np.diag(products), population)
        return {
            "mean_squared_length": length,
            "squared_length_of_mean": of_mean,
            "g2": length - of_mean,
            "agreement": of_mean / length,
            "agreement_of_others": of_others / length,
            "g2_naive": naive - naive_mean,
            "noise_share": 1 - (length - of_mean) / (naive - naive_mean),
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

    updates: np.ndarray
    again: np.ndarray
    corrected: np.ndarray
    variates: np.ndarray
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
    updates = _products(found.updates, found.updates)
    own = np.einsum("ij,ij->i", found.updates, found.again, dtype=np.float64)
    noise = np.sum((found.updates - found.again) ** 2, 1, dtype=np.float64) / 2
    corrected = _products(found.corrected, found.corrected)
    per_step = found.updates / found.steps[:, np.newaxis].astype(np.float32)
    bias_of = _bias(found, weights)
    bias_per_step_of = _bias(found._replace(updates=per_step), weights)

    def statistic(weights: np.ndarray) -> Mapping[str, Any]:
        p = weights / weights.sum()
        bias, step, shrinkage = bias_of(weights)
        _, _, spread = moments(weights, updates, own, population)
        own_corrected = np.diag(corrected) - noise
        _, _, remaining = moments(weights, corrected, own_corrected, population)
        of_batches = np.count_nonzero(p) * p**2 @ noise
        errors = {
            "bias": bias,
            "cohort_noise": spread * left_out / step,
            "minibatch_noise": of_batches / cohort_size / step,
        }
        shares = {f"{name}_share": max(0.0, each) for name, each in errors.items()}
        total = np.float64(sum(shares.values()))
        kept = max(0.0, remaining * left_out / step) + shares["minibatch_noise_share"]
        length, update = p @ np.sqrt(np.diag(updates)), step * (1 + bias)
        return {
            "drift": length,
            "drift_over_mean": length / np.sqrt(update),
            "cosine": p @ _cosines(updates, p),
            "shrinkage": shrinkage,
            **errors,
            **{name: each / total for name, each in shares.items()},
            "variates_share": (total - kept) / total,
            "bias_of_unequal_work": bias - bias_per_step_of(weights)[0],
            "noise_scale": (spread + of_batches) / update,
        }

    return statistic


def _bias(
    found: Training, weights: np.ndarray
) -> Callable[[np.ndarray], tuple[float, float, float]]:
    """Returns what tells how far the mean update is off that of corrected ones.

    It returns, of weights, the squared tangent of the angle, the squared length of the
    step, and by how much this is longer than the mean corrected update.
    """
    gaps, variates = found.updates - found.corrected, found.variates
    # The variates themselves cancel in the mean of those measured. Without them single
    # clients vary as little as the mean does, and intervals tell how much that is.
    length = weights @ np.sum(variates**2, 1)
    if length:
        along = weights @ np.sum(gaps * variates, 1)
        gaps -= np.float32(along / length) * variates
    ends = found.corrected
    grams = [_products(*each) for each in ((gaps, gaps), (gaps, ends), (ends, ends))]

    def bias(weights: np.ndarray) -> tuple[float, float, float]:
        p = weights / weights.sum()
        gap, along, length = (p @ gram @ p for gram in grams)
        step = length * (1 + along / length) ** 2
        return (gap - along**2 / length) / step, step, along / length

    return bias


def _products(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return (first @ second.T).astype(np.float64)


def _cosines(products: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns the cosine of each vector and the weighted sum of the others."""
    own, with_sum = np.diag(products), products @ p
    others = p @ with_sum - 2 * p * with_sum + p**2 * own
    return (with_sum - own * p) / np.sqrt(np.maximum(own * others, 1e-300))
