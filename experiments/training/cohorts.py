"""From the settings of a run to the clients of its rounds."""

from __future__ import annotations

from experiments.flags.settings import RunSettings
from tff_drift import simulation
from tff_drift.simulation.data.sampling import Sampling


def build_cohorts(
    settings: RunSettings, train: simulation.ClientDatasets
) -> tuple[Sampling, simulation.StragglerClock | None]:
    """Builds the sampling of a run.

    Args:
      settings: The run.
      train: The clients to train on.

    Returns:
      The sampling, and the clock that leaves the slowest clients out of it, if the run
      has one.

    Raises:
      ValueError: If a number is out of its range.
    """
    configuration = settings.configuration
    sampling = _sampling(settings, train)
    if not configuration["straggler_clock"]:
        return sampling, None
    clock = simulation.StragglerClock(
        train,
        sampling,
        delay=configuration["straggler_delay"],
        seconds_per_example=configuration["straggler_seconds_per_example"],
        left_out=configuration["straggler_left_out"],
        seed=settings.seed,
    )
    return clock.cohort, clock


def _sampling(settings: RunSettings, train: simulation.ClientDatasets) -> Sampling:
    configuration = settings.configuration
    size = configuration["clients_per_round"]
    at = configuration["cohort_doubling_at"]
    maximum = configuration["max_clients_per_round"]
    doubling = configuration["cohort_doubling"]
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
