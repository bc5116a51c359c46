"""Choice of a round's cohort."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_drift import checks

# `round_number -> client ids`. Round numbers start at 0.
Sampling = Callable[[int], Sequence[str]]
# The clients per round, the same in all or a function of a round number.
CohortSize = int | Callable[[int], int]


class Described:
    """A function of a round number that says what it is.

    Attributes:
      settings: What it depends on, in JSON values by name.
    """

    def __init__(self, function: Callable[[int], Any], **settings: Any) -> None:
        """Describes a function.

        Args:
          function: The function.
          **settings: What it depends on; of a function that is described itself, its
            settings count.
        """
        self._function = function
        self.settings = {
            name: getattr(value, "settings", None) if callable(value) else value
            for name, value in settings.items()
        }

    @property
    def is_described_whole(self) -> bool:
        """Whether it depends on the settings and the round number alone."""
        return None not in self.settings.values()

    def __call__(self, round_number: int) -> Any:
        """Returns the function's value."""
        return self._function(round_number)

    def __repr__(self) -> str:
        name, *settings = self.settings.items()
        arguments = ", ".join(f"{key}={checks.shown(value)}" for key, value in settings)
        return f"{name[1]}({arguments})"


def build_uniform_sampling(
    client_ids: Sequence[str], cohort_size: CohortSize, seed: int = 0
) -> Sampling:
    """Builds uniform sampling of cohorts without replacement.

    A cohort is a pure function of (`seed`, `round_number`): a run that is resumed
    samples what an uninterrupted run samples. The sampling itself is
    `tff.simulation.build_uniform_sampling_fn`.

    Args:
      client_ids: The ids of all clients. With `cohort_size` equal to their number
        every client is in every round.
      cohort_size: The number of clients per round, or a function of a round number
        that returns it, such as `doubling_cohorts` builds; what it returns above the
        number of clients is taken for that, and where it returns 0 nobody trains.
      seed: The seed, from 0 to 2³² − 1.

    Returns:
      A function of a round number (from 0) that returns `cohort_size` distinct
      client ids.

    Raises:
      TypeError: If `client_ids` is not a list, or `cohort_size` or `seed` is not an
        integer.
      ValueError: If `cohort_size` is below 1 or above the number of clients, or
        `seed` is out of its range.
    """
    kinds = (Sequence, np.ndarray)
    checks.check_list("client_ids", client_ids, "a list of strings", kinds)
    if not callable(cohort_size):
        checks.check_integer("cohort_size", cohort_size)
        cohort_size = int(cohort_size)  # JSON does not know NumPy's.
    checks.check_seed("seed", seed)
    if not callable(cohort_size) and cohort_size > len(client_ids):
        raise ValueError(
            f"cohort_size is {cohort_size}, but there are only {len(client_ids)} "
            "clients to sample without replacement. Take at most all of them."
        )
    # TFF's function copies what it samples from in every round: positions are
    # cheaper than ids. It takes any seed that is not a Python int for "no seed".
    sample = tff.simulation.build_uniform_sampling_fn(
        np.arange(len(client_ids)), replace=False, random_seed=int(seed)
    )

    def sampling(round_number: int) -> list[str]:
        checks.check_integer("round_number", round_number, at_least=0)
        number = int(round_number)  # TFF seeds its draws with Python's alone.
        size = cohort_size
        if callable(size):
            size = size(number)
            what = f"what cohort_size returns for round {number}"
            checks.check_integer(what, size, at_least=0, at_most=math.inf)
            size = min(int(size), len(client_ids))
        return [client_ids[index] for index in sample(number, size)]

    return Described(
        sampling, name="uniform_sampling", cohort_size=cohort_size, seed=int(seed)
    )
