"""What a diagnosis measures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tff_drift.simulation.diagnosis.statistics import Estimate

Estimates = Mapping[str, Estimate]


@dataclasses.dataclass
class Measurements:
    """What is measured of a `Diagnosis`, which describes each part."""

    clients: int
    cohort_size: int
    sizes: np.ndarray
    steps: np.ndarray
    labels: tuple[np.ndarray, np.ndarray] | None
    differences: Mapping[int, Estimates]
    drift: Mapping[int, Estimates]
    as_trained: Estimates

    def b2(self, number: int) -> Estimate:
        """Returns B² after some rounds, infinite where the mean may be zero.

        It is NaN where gradients cannot be told from noise.

        Args:
          number: The rounds completed, of `differences`.
        """
        if self.differences[number]["mean_squared_length"].low <= 0:
            return Estimate(np.nan, np.nan, np.nan)
        found = self.differences[number]["agreement"]
        value, high, low = (1 / each if each > 0 else np.inf for each in found)
        return Estimate(value, low, high)
