"""Estimates from what a sample of clients measured, with intervals over clients.

All of them are functions of the clients' weights and of inner products. Those of
different clients are free of the clients' own noise, those of a client with itself are
so where they come from two halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

Numbers = Mapping[str, float]


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


def jackknife(
    statistic: Callable[[np.ndarray], Numbers], weights: np.ndarray
) -> dict[str, Estimate]:
    """Returns statistics of clients, and how they vary without each of these.

    Args:
      statistic: Returns numbers by name, of the weights of the clients.
      weights: The clients' weights.
    """
    whole, count = statistic(weights), len(weights)
    without = [
        statistic(np.where(np.arange(count) == i, 0, weights)) for i in range(count)
    ]
    found = {}
    for name, value in whole.items():
        values = np.array([each[name] for each in without])
        deviation = np.sqrt((count - 1) / count * np.sum((values - values.mean()) ** 2))
        found[name] = Estimate(value, value - 2 * deviation, value + 2 * deviation)
    return found


def mean_square(weights: np.ndarray, squares: np.ndarray) -> float:
    """Returns the weighted mean of the clients' squares, of those that have one.

    Args:
      weights: The clients' weights.
      squares: A number for each client; NaN where it has none.
    """
    known = np.isfinite(squares)
    return float(np.average(squares[known], weights=weights[known]))


def mean_of_pairs(weights: np.ndarray, products: np.ndarray) -> float:
    """Returns the weighted mean of ⟨u_i, v_j⟩ of different clients.

    Args:
      weights: The clients' weights.
      products: ⟨u_i, v_j⟩.
    """
    squared = weights**2
    total = weights @ products @ weights - squared @ np.diag(products)
    return float(total / (weights.sum() ** 2 - squared.sum()))


class Means:
    """Inner products of means over all clients, of which a sample was measured.

    Args:
      population: The number of all clients.
    """

    def __init__(self, population: int) -> None:
        self.population = population

    def product(
        self, weights: np.ndarray, products: np.ndarray, own: np.ndarray
    ) -> float:
        """Returns ⟨Σ p_i u_i, Σ p_i v_i⟩.

        Args:
          weights: The weights of the measured clients.
          products: ⟨u_i, v_j⟩ of theirs.
          own: What stands for ⟨u_i, v_i⟩; NaN where it is not known.
        """
        share = self._shares(weights) @ weights / weights.sum()
        of_pairs = mean_of_pairs(weights, products)
        return float(share * mean_square(weights**2, own) + (1 - share) * of_pairs)

    def spread(
        self, weights: np.ndarray, products: np.ndarray, own: np.ndarray
    ) -> float:
        """Returns N Σ p_i² ‖u_i − Σ p_j u_j‖², the variance of a cohort of one.

        Args:
          weights: The weights of the measured clients.
          products: ⟨u_i, u_j⟩ of theirs.
          own: What stands for ⟨u_i, u_i⟩; NaN where it is not known.
        """
        shares = self._shares(weights)
        others = products @ weights - np.diag(products) * weights
        with_mean = shares * own + (1 - shares) * others / (weights.sum() - weights)
        gaps = own - 2 * with_mean + self.product(weights, products, own)
        return float(self.unevenness(weights) * mean_square(weights**2, gaps))

    def unevenness(self, weights: np.ndarray) -> float:
        """Returns N Σ p_i², which is 1 for equal weights."""
        count = np.count_nonzero(weights)
        return float(count * np.sum(weights**2) / weights.sum() ** 2)

    def _shares(self, weights: np.ndarray) -> np.ndarray:
        """Returns the measured clients' p_i among all clients."""
        count = np.count_nonzero(weights)
        return weights / weights.sum() * count / self.population


def dissimilarity(
    means: Means, products: np.ndarray, squares: np.ndarray
) -> Callable[[np.ndarray], Numbers]:
    """Returns the statistic of how different clients' gradients are.

    Args:
      means: The population.
      products: ⟨g_i, g_j⟩.
      squares: ⟨g_ia, g_ib⟩ of halves.
    """
    plain = np.diag(products)

    def statistic(weights: np.ndarray) -> Numbers:
        length = mean_square(weights, squares)
        of_mean = means.product(weights, products, squares)
        plain_length = mean_square(weights, plain)
        plain_of_mean = means.product(weights, products, plain)
        return {
            "mean_squared_length": length,
            "squared_length_of_mean": of_mean,
            "g2": length - of_mean,
            "agreement": _ratio(of_mean, length),
            "agreement_of_others": _ratio(mean_of_pairs(weights, products), length),
            "g2_naive": plain_length - plain_of_mean,
            "agreement_naive": _ratio(plain_of_mean, plain_length),
            "noise_share": 1 - _ratio(length - of_mean, plain_length - plain_of_mean),
        }

    return statistic


class LocalTraining(NamedTuple):
    """Inner products of what clients' local training came to.

    Attributes:
      updates: ⟨Δ_i, Δ_j⟩.
      own: ⟨Δ_ia, Δ_ib⟩ of two orders of the batches.
      noise: ‖Δ_ia − Δ_ib‖² / 2.
      with_central: ⟨Δ_i, Δ⟩ with the update of as many steps on everyone's examples.
      central: ⟨Δ_a, Δ_b⟩ of two draws of these.
      scales: c_i, by which K_i steps multiply a gradient that stays the same; None of
        an optimizer whose steps are not multiples of the gradient.
    """

    updates: np.ndarray
    own: np.ndarray
    noise: np.ndarray
    with_central: np.ndarray
    central: float
    scales: np.ndarray | None


def drift(
    population: int, found: LocalTraining, cohort_size: int
) -> Callable[[np.ndarray], Numbers]:
    """Returns the statistic of the clients' drift, its bias and the noise beside it.

    What is an error of a round's update is relative to the squared length of the mean
    update's part along the central one: a server rate changes both alike. The bias is
    that of the measured clients, whose examples the central update has seen.

    Args:
      population: N.
      found: The inner products.
      cohort_size: M.
    """
    everyone, measured = Means(population), Means(len(found.own))
    left_out = (population - cohort_size) / max(1, population - 1) / cohort_size
    lengths = np.sqrt(np.maximum(np.diag(found.updates), 0))

    def off(weights: np.ndarray, times: np.ndarray) -> tuple[float, float, float]:
        """Returns ‖Δ‖², ⟨Δ, central⟩ and the squared tangent of their angle."""
        products = np.outer(times, times) * found.updates
        update = measured.product(weights, products, times**2 * found.own)
        along = float(np.average(times * found.with_central, weights=weights))
        return update, along, _ratio(update * found.central, along**2) - 1

    def statistic(weights: np.ndarray) -> Numbers:
        ones = np.ones_like(weights)
        update, along, bias = off(weights, ones)
        unit = _ratio(along**2, found.central)
        unequal = 0.0
        if found.scales is not None:
            # As FedNova weighs clients.
            mean = np.average(found.scales, weights=weights)
            unequal = bias - off(weights, mean / found.scales)[2]
        spread = everyone.spread(weights, found.updates, found.own)
        noise = everyone.unevenness(weights) * mean_square(weights**2, found.noise)
        errors = {
            "bias": bias,
            "cohort_noise": _ratio(spread * left_out, unit),
            "minibatch_noise": _ratio(noise / cohort_size, unit),
        }
        total = sum(max(0.0, each) for each in errors.values())
        length = mean_square(weights, lengths)
        return {
            "drift": length,
            "drift_over_mean": _ratio(length, max(update, 0) ** 0.5),
            "cosine": mean_square(weights, _cosines(found.updates, weights)),
            "shrinkage": _ratio(along, found.central) - 1,
            **errors,
            **{f"{k}_share": _ratio(max(0.0, v), total) for k, v in errors.items()},
            "bias_of_unequal_work": unequal,
            "noise_scale": _ratio(spread + noise, update),
        }

    return statistic


def _cosines(products: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the cosine of each vector and the weighted sum of the others."""
    own = np.diag(products)
    with_sum = products @ weights
    with_others = with_sum - own * weights
    others = weights @ with_sum - 2 * weights * with_sum + weights**2 * own
    return with_others / np.sqrt(np.maximum(own * others, 1e-300))


def _ratio(number: float, by: float) -> float:
    return number / by if by else float("nan")
