"""Estimates from what a sample of clients measured, with intervals over clients.

All of them are functions of the clients' weights and of inner products. Those of
different clients are free of the clients' own noise, those of a client with itself are
so where they come from two halves.

Every function of weights p takes several rows of them at a time: those of all clients,
and those without each client in turn, from which intervals follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# A vector for each client.
Vectors = Sequence[np.ndarray]
# The entries of vectors that are multiplied at a time: models may be large.
_BLOCK = 4096


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


class Training(NamedTuple):
    """The updates of local training at a model.

    Attributes:
      updates: Δ_i.
      again: Δ_i with the batches in another order.
      corrected: Δ_i with control variates.
      variates: These, whose weighted mean is zero.
      steps: K_i.
    """

    updates: Vectors
    again: Vectors
    corrected: Vectors
    variates: Vectors
    steps: np.ndarray


@np.errstate(divide="ignore", invalid="ignore")
def dissimilarity(
    gradients: Vectors, own: np.ndarray, weights: np.ndarray, population: int
) -> dict[str, Estimate]:
    """Returns how different clients' gradients are.

    Args:
      gradients: g_i.
      own: ⟨g_ia, g_ib⟩ of halves.
      weights: The clients' weights.
      population: N.
    """
    p, products = _without_each(weights), _inner_products(gradients)
    free_of_noise = products + np.diag(own - np.diag(products))
    length, of_mean, _ = _moments(p, free_of_noise, population)
    _, of_others, _ = _moments(p, free_of_noise, np.inf)
    naive, naive_mean, _ = _moments(p, products, population)
    g2, g2_naive = length - of_mean, naive - naive_mean
    return _estimates(
        mean_squared_length=length,
        squared_length_of_mean=of_mean,
        g2=g2,
        agreement=of_mean / length,
        agreement_of_others=of_others / length,
        g2_naive=g2_naive,
        noise_share=1 - g2 / g2_naive,
    )


@np.errstate(divide="ignore", invalid="ignore")
def drift(
    found: Training, weights: np.ndarray, population: int, cohort_size: int
) -> dict[str, Estimate]:
    """Returns how far clients drift, and a round's errors.

    These are relative to the step, the part of the mean update along that of corrected
    ones: a server rate changes both alike. The bias is that of the measured clients:
    the more take part, the more of it averages out.

    Args:
      found: What local training came to.
      weights: The clients' weights.
      population: N.
      cohort_size: M.
    """
    kinds = found.updates, found.corrected, found.variates
    products = _inner_products([each for vectors in kinds for each in vectors])
    # From here on a vector is what it has of each of these, a row for each client.
    updates, corrected, variates = np.split(np.eye(len(products)), 3)
    p = _without_each(weights)

    def dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.sum(left @ products * right, -1)

    def off(gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns how far a mean update is off that of corrected ones.

        The squared tangent of the angle, the squared length of the part along them, and
        by how much this is longer than they are.
        """
        # Variates cancel in the mean. Without what is along them single clients vary as
        # little as the mean does, and intervals tell how much that is.
        along = weights @ dot(gaps, variates)
        of_variates = weights @ dot(variates, variates)
        gaps = gaps - (along / of_variates if of_variates else 0) * variates
        gap, direction = p @ gaps, p @ corrected
        length = dot(direction, direction)
        longer = dot(gap, direction) / length
        across = gap - longer[:, np.newaxis] * direction
        step = length * (1 + longer) ** 2
        return dot(across, across) / step, step, longer

    bias, step, shrinkage = off(updates - corrected)
    # FedNova's updates are Δ_i / K_i.
    bias_per_step, _, _ = off(updates / found.steps[:, np.newaxis] - corrected)
    changed = list(map(np.subtract, found.again, found.updates))
    noise = of_pairs(changed, changed) / 2
    with_changed = of_pairs(found.updates, changed)
    of_updates = updates @ products @ updates.T
    of_corrected = corrected @ products @ corrected.T
    _, _, spread = _moments(p, of_updates + np.diag(with_changed), population)
    _, _, remaining = _moments(p, of_corrected - np.diag(noise), population)
    of_batches = np.count_nonzero(p, -1) * (p**2 @ noise)
    left_out = (population - cohort_size) / max(1, population - 1) / cohort_size
    errors = {
        "bias": bias,
        "cohort_noise": spread * left_out / step,
        "minibatch_noise": of_batches / cohort_size / step,
    }
    shares = {f"{name}_share": np.maximum(0, each) for name, each in errors.items()}
    total = np.sum(list(shares.values()), 0)
    kept = np.maximum(0, remaining * left_out / step) + shares["minibatch_noise_share"]
    length, update = p @ np.sqrt(np.diag(of_updates)), step * (1 + bias)
    return _estimates(
        drift=length,
        drift_over_mean=length / np.sqrt(update),
        cosine=_cosine(p, of_updates),
        shrinkage=shrinkage,
        **errors,
        **{name: each / total for name, each in shares.items()},
        variates_share=(total - kept) / total,
        bias_of_unequal_work=bias - bias_per_step,
        noise_scale=(spread + of_batches) / update,
    )


def of_pairs(left: Vectors, right: Vectors) -> np.ndarray:
    """Returns the inner product of each vector with its like, in double precision."""
    pairs = zip(left, right, strict=True)
    return np.array([np.einsum("i,i", *each, dtype=np.float64) for each in pairs])


def _inner_products(vectors: Vectors) -> np.ndarray:
    """Returns the inner products of vectors, in double precision."""
    products = np.zeros((len(vectors), len(vectors)))
    for start in range(0, len(vectors[0]), _BLOCK):
        block = np.array([each[start : start + _BLOCK] for each in vectors], float)
        products += block @ block.T
    return products


def _without_each(weights: np.ndarray) -> np.ndarray:
    """Returns weights that add up to 1, of all clients and without each in turn."""
    rows = weights * np.vstack([np.ones(len(weights)), 1 - np.eye(len(weights))])
    return rows / rows.sum(1, keepdims=True)


def _estimates(**found: np.ndarray) -> dict[str, Estimate]:
    """Returns the numbers of all clients, with intervals of a jackknife."""
    estimates = {}
    for name, (value, *without) in found.items():
        width = 2 * np.sqrt(len(without) - 1) * np.std(without)
        estimates[name] = Estimate(*map(float, (value, value - width, value + width)))
    return estimates


def _moments(
    p: np.ndarray, products: np.ndarray, population: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns what clients measured have in common, and how they differ.

    Args:
      p: The weights p_i of those measured.
      products: ⟨u_i, u_j⟩ of theirs.
      population: N, the number of all clients.

    Returns:
      Σ p_i ‖u_i‖²; the squared length of the mean of all clients; and the variance of
      a cohort of one, N Σ p_i² ‖u_i − mean‖².
    """
    count, own, with_mean = np.count_nonzero(p, -1), np.diag(products), p @ products
    length, of_mean, alone = p @ own, np.sum(with_mean * p, -1), np.sum(p**2, -1)
    # Clients are nearer to the mean of a sample than to that of all.
    nearer = (1 - alone * count / population) / (1 - alone)
    gaps = own - 2 * with_mean + of_mean[:, np.newaxis]
    spread = nearer * count * np.sum(p**2 * gaps, -1)
    return length, length - nearer * (length - of_mean), spread


def _cosine(p: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Returns the mean cosine of a vector and the weighted sum of the others."""
    own, with_sum = np.diag(products), p @ products
    others = np.sum(p * with_sum, -1, keepdims=True) - 2 * p * with_sum + p**2 * own
    cosines = (with_sum - own * p) / np.sqrt(np.maximum(own * others, 1e-300))
    return np.sum(p * cosines, -1)
