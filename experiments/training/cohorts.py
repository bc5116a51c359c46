"""From the settings of a run to the clients of its rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tff_drift import simulation
from tff_drift.simulation.data.sampling import Sampling


def build_cohorts(
    configuration: Mapping[str, Any], train: simulation.ClientDatasets
) -> tuple[Sampling, simulation.StragglerClock | None]:
    """Builds the sampling of a run.

    Args:
      configuration: The run's flags.
      train: The clients to train on.

    Returns:
      The sampling, and the clock that leaves the slowest clients out of it, if the run
      has one.

    Raises:
      ValueError: If a number is out of its range.
    """
    sampling = _sampling(
        train,
        configuration["clients_per_round"],
        configuration["seed"],
        configuration["cohort_doubling"],
        configuration["cohort_doubling_at"],
        configuration["max_clients_per_round"],
    )
    if not configuration["straggler_clock"]:
        return sampling, None
    clock = simulation.StragglerClock(
        train,
        sampling,
        delay=configuration["straggler_delay"],
        seconds_per_example=configuration["straggler_seconds_per_example"],
        left_out=configuration["straggler_left_out"],
        seed=configuration["seed"],
    )
    return clock.cohort, clock


def _sampling(
    train: simulation.ClientDatasets,
    size: Any,
    seed: int,
    doubling: str | None,
    at: Any,
    maximum: int | None,
) -> Sampling:
    try:
        if doubling == "examples":
            return simulation.build_growing_sampling(train, size, at, maximum, seed)
        if doubling == "rounds":
            size = simulation.doubling_cohorts(size, at, maximum)
    except ValueError as error:
        # Of arguments that other flags are called like.
        raise ValueError(
            f"--cohort_doubling={doubling}: {error} See --cohort_doubling_at and "
            "--max_clients_per_round."
        ) from error
    return simulation.build_uniform_sampling(train.client_ids, size, seed)
