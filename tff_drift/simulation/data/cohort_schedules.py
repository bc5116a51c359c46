"""Cohorts that grow during the training.

Charles et al. (2021), On Large-Cohort Training for Federated Learning, section 5.3 and
appendix B.8. https://arxiv.org/abs/2106.07820
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

from tff_drift import checks
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import (
    Described,
    Sampling,
    build_uniform_sampling,
)


def doubling_cohorts(
    cohort_size: int, rounds: Sequence[int], maximum: int | None = None
) -> Callable[[int], int]:
    """Builds a cohort size that doubles after given rounds.

    Charles et al. (2021) begin with 50 clients and double every 300 rounds, up to 800
    or all clients:

        size = doubling_cohorts(50, rounds=(300, 600, 900, 1200), maximum=800)
        sampling = build_uniform_sampling(train.client_ids, size, seed)

    Args:
      cohort_size: The clients of the first rounds.
      rounds: The numbers of completed rounds after which the cohort doubles,
        increasing.
      maximum: The largest cohort; `None` for all clients.

    Returns:
      A function of a round number (from 0) that returns the number of clients.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range, or `rounds` do not increase.
    """
    cohort_size, maximum = _checked(cohort_size, maximum)
    rounds = _increasing("rounds", rounds)

    def size(round_number: int) -> int:
        doublings = bisect.bisect_right(rounds, round_number)
        return _at_most(cohort_size * 2**doublings, maximum)

    return Described(
        size,
        name="doubling_cohorts",
        cohort_size=cohort_size,
        rounds=rounds,
        maximum=maximum,
    )


def build_growing_sampling(
    train: ClientDatasets,
    cohort_size: int,
    examples: Sequence[int],
    maximum: int | None = None,
    seed: int = 0,
) -> Sampling:
    """Builds uniform sampling of cohorts that double as examples are processed.

    Where `doubling_cohorts` counts rounds, this counts what the clients have trained
    on, the measure of data efficiency of Charles et al. (2021), section 3.5. A cohort
    is a pure function of the seed, the round and the clients' data: the examples that
    were processed before a round follow from the cohorts before it. The clients that a
    `StragglerClock` leaves out of them count too. A run that is resumed samples all
    rounds before once more, which takes time where there are a million clients.

    Args:
      train: The clients, whose batches say how many examples they train on.
      cohort_size: The clients of the first rounds.
      examples: The numbers of processed examples from which on the cohort is doubled,
        increasing.
      maximum: The largest cohort; `None` for all clients.
      seed: The seed of `build_uniform_sampling`.

    Returns:
      A function of a round number (from 0) that returns distinct client ids.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range, or `examples` do not increase.
    """
    checks.check_instance("train", train, ClientDatasets)
    cohort_size, maximum = _checked(cohort_size, maximum)
    examples = _increasing("examples", examples)
    # The examples processed before each round whose cohort was asked for.
    processed = [0]

    def size(round_number: int) -> int:
        while len(processed) <= round_number:
            cohort = sampling(len(processed) - 1)
            count = sum(map(train.num_examples_per_round, cohort))
            processed.append(processed[-1] + count)
        doublings = bisect.bisect_right(examples, processed[round_number])
        return _at_most(cohort_size * 2**doublings, maximum)

    sampling = build_uniform_sampling(train.client_ids, size, seed)
    return Described(
        sampling,
        name="growing_sampling",
        cohort_size=cohort_size,
        examples=examples,
        maximum=maximum,
        seed=int(seed),
    )


def _at_most(size: int, maximum: int | None) -> int:
    return size if maximum is None else min(size, maximum)


def _checked(cohort_size: int, maximum: int | None) -> tuple[int, int | None]:
    """Returns the sizes as Python's integers: JSON does not know NumPy's."""
    checks.check_integer("cohort_size", cohort_size)
    if maximum is not None:
        checks.check_integer("maximum", maximum, at_least=cohort_size)
        maximum = int(maximum)
    return int(cohort_size), maximum


def _increasing(name: str, values: Sequence[int]) -> list[int]:
    checks.check_list(name, values, "a list of integers")
    for value in values:
        checks.check_integer(name, value)
    if list(values) != sorted(set(values)):
        raise ValueError(f"{name} must increase, found {list(values)}.")
    return [int(value) for value in values]
