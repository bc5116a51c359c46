"""What a diagnosis measures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tff_drift.simulation.diagnosis.statistics import Estimate

Estimates = Mapping[str, Estimate]


@dataclasses.dataclass
class Measurements:
    """What `diagnose` measured.

    Attributes:
      clients: N, the number of all clients.
      cohort_size: M, the clients per round.
      sizes: The examples of each measured client.
      steps: The local steps of each, in a round.
      labels: For each the total variation between its labels and everyone's, and what
        chance gives clients of its size; None where labels are no numbers.
      differences: By rounds completed, estimates of how different gradients are:
        `mean_squared_length`, `squared_length_of_mean`, `g2`, `agreement`, which is
        1 / B², `agreement_of_others`, of pairs of clients, the same without halves
        (`g2_naive`, `agreement_naive`), and `noise_share`.
      drift: By local steps K, the same for all clients, estimates of what they lead to:
        `drift`, the mean ‖y_i − x‖; `drift_over_mean`, over the length of the mean
        update; `cosine`, of a client's update and the others' mean; `shrinkage`, by how
        much the mean update's part along that of K steps on everyone's examples differs
        from it; and `bias`, `cohort_noise` and `minibatch_noise`, the squared lengths
        of what is not along it, relative to that of this part, with their shares.
      as_trained: The same for the steps that clients take in a round, with
        `bias_of_unequal_work`, what FedNova's weights would remove, and `noise_scale`,
        the cohort whose noise is as large as the update.
    """

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
