"""The decisions of the local context, each made with the `Limits` that it is given.

Pure functions of numbers and of names: nothing here runs, builds or reads anything.
A decision comes with its reason, which `LocalExecutionContext.explain` shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tff_drift import system
from tff_drift.execution.local.data.stacks import LockstepSteps
from tff_drift.execution.local.options import Limits

# Threads wait, for Python's lock and for each other's results: so many more than there
# are processors keep these busy.
_MORE_THREADS = 2
# Group sizes are rounded up: up to the first number, to a multiple of the second.
_UNITS = ((8, 1), (64, 2), (float("inf"), 8))


class Decision(NamedTuple):
    """A decision.

    Attributes:
      holds: What was decided, yes or no.
      reason: Why, for people to read.
    """

    holds: bool
    reason: str


def concurrent_clients(client_devices: Sequence[str]) -> int:
    """Returns how many clients are trained at a time by default.

    Args:
      client_devices: The devices given for clients, none if TensorFlow chooses.

    Returns:
      The number of the devices, or two more than that of the processors that this
      process may use: some threads always wait, for Python's lock or for each other.
    """
    return len(client_devices) or system.processors() + _MORE_THREADS


def vectorizing_asked_for(
    batch_clients: bool | None, has_datasets: bool, one_at_a_time: bool
) -> Decision:
    """Decides whether vectorizing is to be tried for the clients' computation.

    Args:
      batch_clients: The context's option.
      has_datasets: Whether each client brings a dataset of its own.
      one_at_a_time: Whether its calls share something and have to keep their order.
    """
    if batch_clients is False:
        return Decision(False, "batch_clients is False")
    if not has_datasets:
        return Decision(False, "the clients bring no datasets")
    if one_at_a_time:
        return Decision(
            False,
            "the clients share a seeded stream of random numbers, or a named "
            "resource, and use it in their order",
        )
    return Decision(True, "each client brings a dataset")


def vectorizing_pays(
    limits: Limits,
    groups: Sequence[Sequence[LockstepSteps]],
    state_bytes: int,
    on_cpus: bool,
    goes_back: bool = False,
    num_patch_values: float = 0,
    num_clients: int = 1,
) -> Decision:
    """Decides whether a cohort is faster vectorized than one client after the other.

    Args:
      limits: The limits of the context.
      groups: Of each group, who would take steps together.
      state_bytes: The size of what a client's steps change, in bytes.
      on_cpus: Whether clients are trained on CPUs.
      goes_back: Whether clients pass over their batches there and back.
      num_patch_values: How many values the patches have that the convolutions of a
        client's step, with their gradients, multiply with its filters; infinite if
        that is not known.
      num_clients: How many clients the groups have.
    """
    convolutions = convolutions_pay(limits, num_patch_values, on_cpus)
    if not convolutions.holds:
        return convolutions
    masked = any(len({turn.num_clients for turn in turns}) > 1 for turns in groups)
    most = limits.largest_masked_bytes if masked else limits.largest_state_bytes
    if on_cpus and state_bytes > most:
        sizes = "unequal sizes, or with short batches," if masked else "one size"
        return Decision(
            False,
            f"a client's state takes {state_bytes / 2**20:.1f} MiB, and clients of "
            f"{sizes} gain by vectorizing up to {most / 2**20:.1f} MiB",
        )
    steps = sum(turn.num_clients * turn.num_steps for turns in groups for turn in turns)
    if goes_back and masked and steps < limits.few_steps_back:
        return Decision(
            False,
            f"{steps} steps are few for the time that it takes to build the function "
            "of unequal clients that go back",
        )
    together = _steps_come_together(
        limits, [turn for turns in groups for turn in turns]
    )
    if together.holds or not on_cpus:
        return together
    return _clients_are_enough(
        limits, num_clients, steps, num_patch_values > 0, together.reason
    )


def name_few_rows(limits: Limits, bytes_on_rows: float, state_bytes: int) -> bool:
    """Whether steps are faster on the rows of tables that a client's batches name.

    Args:
      limits: The limits of the context.
      bytes_on_rows: The size of what they change there, in bytes.
      state_bytes: The size of what they change on whole tables, in bytes.
    """
    few = limits.rows_for_one * bytes_on_rows <= state_bytes
    return few and state_bytes >= limits.small_table_bytes


def multiply_patches(limits: Limits, num_values: int) -> bool:
    """Whether a convolution is faster as a product of patches and filters.

    Args:
      limits: The limits of the context.
      num_values: How many values the patches of an example have.
    """
    return num_values <= limits.largest_patches


def multiply_without_threads(limits: Limits, num_weights: int) -> bool:
    """Whether clients' small batches and weights are multiplied without oneDNN.

    It splits even small products among threads and waits for these, while several
    groups train at a time.

    Args:
      limits: The limits of the context.
      num_weights: How many weights a client has in the product, those of a filter
        once for each place where it is applied.
    """
    return num_weights <= limits.small_product_weights


def convolutions_pay(
    limits: Limits, num_patch_values: float, on_cpus: bool = True
) -> Decision:
    """Decides whether a computation may gain from being vectorized.

    Args:
      limits: The limits of the context.
      num_patch_values: As of `vectorizing_pays`, or the least that they may be.
      on_cpus: Whether clients are trained on CPUs.
    """
    if num_patch_values and not on_cpus:
        reason = "convolutions were measured on CPUs alone; batch_clients=True "
        return Decision(False, reason + "vectorizes them")
    if math.isinf(num_patch_values):
        return Decision(
            False,
            "it has convolutions of unknown size, or of a kind that is done one client "
            "after the other anyway; batch_clients=True vectorizes the rest",
        )
    return Decision(
        num_patch_values <= limits.most_patch_values,
        f"its convolutions take patches of {num_patch_values:,.0f} values in a step, "
        f"and gain by vectorizing up to {limits.most_patch_values:,}",
    )


def _steps_come_together(limits: Limits, turns: Sequence[LockstepSteps]) -> Decision:
    common = [turn for turn in turns if turn.num_clients > 1]
    together = sum(turn.num_clients * turn.num_steps for turn in common)
    taken = sum(turn.num_steps for turn in common)
    alone = sum(turn.num_steps for turn in turns) - taken
    if alone > limits.alone_for_one * together:
        return Decision(
            False, f"{together} steps come together, too few beside the {alone} alone"
        )
    enough = together >= limits.steps_together * taken
    return Decision(
        enough,
        f"{together} steps come in {taken} lockstep steps, "
        f"{'at least' if enough else 'fewer than'} {limits.steps_together} together on "
        "average" + (f", and {alone} alone" if alone else ""),
    )


def _clients_are_enough(
    limits: Limits, num_clients: int, steps: int, convolves: bool, few: str
) -> Decision:
    if num_clients >= limits.enough_clients:
        reason = f"{few}, but of at least {limits.enough_clients} clients"
        return Decision(True, reason)
    enough = num_clients > 1 and steps >= limits.enough_steps and not convolves
    if enough:
        few += f", but at least {limits.enough_steps} in all"
    return Decision(enough, few)


def when_vectorized(
    limits: Limits, batch_clients: bool | None, on_cpus: bool = True
) -> str:
    """Returns which cohorts are vectorized, in words.

    Args:
      limits: The limits of the context.
      batch_clients: The context's option.
      on_cpus: Whether clients are trained on CPUs.
    """
    if batch_clients:
        return "batch_clients is True"
    if on_cpus:
        return (
            f"vectorized if there are at least {limits.enough_clients} clients, or "
            f"{limits.enough_steps} steps, and state and convolutions are small"
        )
    return (
        f"vectorized if at least {limits.steps_together} steps come together on "
        f"average, and at most {limits.alone_for_one} times as many are taken alone"
    )


def most_together(limits: Limits, client_bytes: int, patch_bytes: int = 0) -> int:
    """Returns how many clients at most are trained in one group.

    Args:
      limits: The limits of the context.
      client_bytes: About what the state of one takes, in bytes.
      patch_bytes: What the patches of one client's step take, in bytes.
    """
    client_bytes = max(1, client_bytes)
    most = min(
        limits.many_clients,
        limits.stack_bytes // client_bytes,
        limits.patch_stack_bytes // max(1, patch_bytes),
    )
    most = max(limits.few_clients, most)
    return max(1, min(most, limits.most_stack_bytes // client_bytes))


def chunks(
    limits: Limits,
    num_clients: int,
    at_least: int,
    client_bytes: int,
    patch_bytes: int = 0,
) -> list[range]:
    """Returns the clients in parts of about one size, to be trained in turn.

    Args:
      limits: The limits of the context.
      num_clients: The number of clients.
      at_least: The number of parts, if there are as many clients.
      client_bytes: About what the state of one takes, in bytes.
      patch_bytes: What the patches of one client's step take, in bytes.
    """
    if not num_clients:
        return []
    most = most_together(limits, client_bytes, patch_bytes)
    parts = max(-(-num_clients // most), min(at_least, num_clients))
    bounds = [num_clients * part // parts for part in range(parts + 1)]
    return [range(*pair) for pair in itertools.pairwise(bounds)]


def padded_size(num_clients: int) -> int:
    """Returns for how many clients to build the function of a group.

    Cohorts whose size changes from round to round must not need new functions each
    time: a function serves groups of a few clients less, too.

    Args:
      num_clients: The number of clients of the group.
    """
    unit = next(unit for size, unit in _UNITS if num_clients <= size)
    return -(-num_clients // unit) * unit


def padded_sizes(sizes: Sequence[int]) -> list[int]:
    """Returns for how many clients to build the function of each of a cohort's groups.

    One function is to serve nearly all of them, since it takes seconds to build: the
    size of the largest group is that of all that are more than half as large, and
    of the last one, whose clients take the fewest steps.

    Args:
      sizes: The numbers of the clients of the groups.
    """
    most = padded_size(max(sizes))
    return [
        most if 2 * size > most or number == len(sizes) else padded_size(size)
        for number, size in enumerate(sizes, 1)
    ]


def groups(
    limits: Limits,
    num_steps: Sequence[int],
    last_batches: Sequence[Any],
    at_least: int,
    client_bytes: int,
    step_bytes: int,
    patch_bytes: int = 0,
) -> list[Sequence[int]]:
    """Returns who is trained in one group.

    Clients of equal numbers of steps and last batches stay in their order. Others are
    sorted by that number, so that those of a group are through at about the same time,
    then by the last batch, which is taken together where it is of one size; the groups
    are of one size, and the last is of those who are left.

    Args:
      limits: The limits of the context.
      num_steps: The number of steps of every client.
      last_batches: The size of the last batch of every client.
      at_least: The number of groups, if there are as many clients.
      client_bytes: About what the state of one takes, in bytes.
      step_bytes: The size of the batch of one step, in bytes.
      patch_bytes: What the patches of one client's step take, in bytes.
    """
    keys = list(zip(num_steps, last_batches, strict=True))
    clients = range(len(keys))
    found: Sequence[Sequence[int]]
    if all(key == keys[0] for key in keys):
        found = chunks(limits, len(keys), at_least, client_bytes, patch_bytes)
    else:
        most = limits.sorted_stack_bytes // max(1, client_bytes)
        most = max(limits.few_sorted_clients, min(limits.many_sorted_clients, most))
        most = min(most, most_together(limits, client_bytes, patch_bytes))
        parts = max(-(-len(keys) // most), min(at_least, len(keys)))
        order = sorted(clients, key=keys.__getitem__, reverse=True)
        size = min(most, padded_size(-(-len(order) // parts)))
        bounds = [*range(0, len(order), size), len(order)]
        if len(bounds) <= at_least:
            bounds = [len(order) * part // parts for part in range(parts + 1)]
        found = [order[start:end] for start, end in itertools.pairwise(bounds)]
    return [
        part
        for group in found
        for part in _within_bytes(limits, group, num_steps, step_bytes)
    ]


def few_together(limits: Limits, num_clients: int, on_cpus: bool) -> int:
    """Returns how many clients take a step faster one by one than in their group.

    A masked client is carried along: on CPUs, a step on the stacks of ten clients takes
    as long as some four alone, while on other devices operations take about as long for
    ten as for one.

    Args:
      limits: The limits of the context.
      num_clients: The number of the group's clients.
      on_cpus: Whether they are trained on CPUs.
    """
    return num_clients // limits.clients_for_one if on_cpus else 0


def _within_bytes(
    limits: Limits, group: Sequence[int], num_steps: Sequence[int], step_bytes: int
) -> list[Sequence[int]]:
    """Halves a group until its batches, and its padding, take few bytes."""
    most_steps = max(num_steps[client] for client in group)
    fits = len(group) * most_steps * step_bytes <= limits.group_bytes
    if fits or len(group) <= limits.few_clients:
        return [group]
    half = len(group) // 2
    return [
        part
        for parts in (group[:half], group[half:])
        for part in _within_bytes(limits, parts, num_steps, step_bytes)
    ]
