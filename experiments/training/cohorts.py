"""From the settings of a run to the clients of its rounds."""

from __future__ import annotations

from typing import Any

from experiments.flags.sections import Cohorts
from tff_drift import simulation
from tff_drift.simulation.data.sampling import Sampling


def build_cohorts(
    settings: Cohorts, train: simulation.ClientDatasets
) -> tuple[Sampling, simulation.StragglerClock | None]:
    """Builds the sampling of a run.

    Args:
      settings: The settings of the cohorts.
      train: The clients to train on.

    Returns:
      The sampling, and the clock that leaves the slowest clients out of it, if the run
      has one.

    Raises:
      ValueError: If a number is out of its range.
    """
    sampling = _sampling(settings, train)
    if not settings.straggler_clock:
        return sampling, None
    times: dict[str, Any] = {
        "delay": settings.straggler_delay,
        "seconds_per_example": settings.straggler_seconds_per_example,
        "left_out": settings.straggler_left_out,
    }
    clock = simulation.StragglerClock(train, sampling, **times, seed=settings.seed)
    return clock.cohort, clock


def _sampling(settings: Cohorts, train: simulation.ClientDatasets) -> Sampling:
    size: Any = settings.clients_per_round
    at, maximum = settings.cohort_doubling_at, settings.max_clients_per_round
    doubling = settings.cohort_doubling
    try:
        if doubling == "examples":
            return simulation.build_growing_sampling(
                train, size, at, maximum, settings.seed
            )
        if doubling == "rounds":
            size = simulation.doubling_cohorts(size, at, maximum)
    except ValueError as error:
        # Of arguments that other flags are called like.
        raise ValueError(
            f"--cohort_doubling={doubling}: {error} See --cohort_doubling_at and "
            "--max_clients_per_round."
        ) from error
    return simulation.build_uniform_sampling(train.client_ids, size, settings.seed)
