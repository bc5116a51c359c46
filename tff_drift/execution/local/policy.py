"""Every threshold of the local context, and the decisions that are made with them.

Pure functions of numbers and of names: nothing here runs, builds or reads anything.
A decision comes with its reason, which `LocalExecutionContext.explain` shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tff_drift import system

# Threads wait, for Python's lock and for each other's results: so many more than there
# are processors keep these busy.
_MORE_THREADS = 2
# Plans, with their functions, live as long as their computations; so many of those
# used last live on, for programs that make equal computations again and again.
RECENT_PLANS = 8
# Keeps compiled functions for at most this many group sizes.
CACHED_NUMBERS = 64
# So many cohorts are remembered, to tell those that come again.
COHORTS_REMEMBERED = 64

# The states of the clients that are trained at a time take at most this, so that they
# stay in the processor's cache.
_STACK_BYTES = 10 * 2**20
# Where that leaves fewer clients than this, there may be as many, within more bytes.
_FEW_CLIENTS = 8
_MANY_CLIENTS = 256
_MOST_STACK_BYTES = 2**27
# Stacks of small models are faster from so many clients on, on average over the steps;
# with fewer they gain too little for the seconds that building their functions takes.
_STEPS_PER_TURN = 4
# Where nearly all steps are taken alone, in one graph, that still takes two fifths of
# the time of clients one by one. Clients who share no step at all may be very few.
_ALONE_FOR_ONE = 8
# On CPUs, a step of a model whose state takes more than this is bound by RAM:
# vectorizing it gains nothing, and masked clients are carried along for nothing.
_LARGEST_MASKED_BYTES = 5 * 2**18
_LARGEST_STATE_BYTES = 5 * 2**19
# On CPUs, convolutions of many clients are products of patches and filters. Making the
# patches takes longer than a convolution, which is made up for by fewer operations if
# these patches, of all convolutions of a client's step and their gradients, have at
# most so many values.
_MOST_PATCH_VALUES = 400_000
# One convolution is as quick as the product from about so many values of an example's
# patches on.
_LARGEST_PATCHES = 15_000
# Up to which number of clients functions are for multiples of what.
_UNITS = ((8, 1), (64, 2), (float("inf"), 8))
# Picking rows of tables and putting them back costs a few passes over the tables, which
# is made up for where at most one row in so many is named, of tables that take more.
_ROWS_FOR_ONE, _SMALL_TABLES = 2, 2**16
# Building the function of clients of unequal sizes that go back, as UGA's do, takes
# more than ten seconds; a step in it saves about half a millisecond.
_FEW_STEPS_BACK = 1000
# The batches of a cohort are read for vectorizing if they take at most this.
READ_BYTES = 2**31
TOO_LARGE = f"the batches of the cohort take more than {READ_BYTES // 2**30} GiB"
# The batches of a group, put together, take at most this, unless it is of few clients.
_GROUP_BYTES = 2**28
# What loops write for later ones, such as UGA's iterates, may take so many times more.
_SAVED_BYTES_FOR_ONE = 4
# Clients of unequal numbers of steps are vectorized in smaller groups, sorted by that
# number, so that few are masked and several processors have one: of states that take
# about this, and of at least and at most so many clients. Steps of the smallest models
# take less time than what a group costs besides.
_SORTED_STACK_BYTES = 3 * 2**18
_FEW_SORTED, _MANY_SORTED = 10, 64
# On CPUs, steps that at most one in so many of a group's clients take are taken one by
# one.
_CLIENTS_PER_FEW = 3
# A dataset that holds more is copied, through a graph, more slowly than its functions
# are optimized: one millisecond and 3.5 for each MiB, where that takes three.
COPIED_DATASET_BYTES = 2**19
# From this size on, TensorFlow's usual two copies of an array are noticed.
_LARGE_ARRAY_BYTES = 2**16
# Collecting the states of a cohort copies them; from this size of one client's on,
# the copy costs more than returning them one by one.
_LARGE_STATE_BYTES = 2**20


class Decision(NamedTuple):
    """A decision.

    Attributes:
      holds: What was decided, yes or no.
      reason: Why, for people to read.
    """

    holds: bool
    reason: str


class LockstepSteps(NamedTuple):
    """Steps that clients of a group take together.

    Attributes:
      num_clients: How many clients take them.
      num_steps: How many steps each of these takes.
    """

    num_clients: int
    num_steps: int


def concurrent_clients(client_devices: Sequence[str]) -> int:
    """Returns how many clients are trained at a time by default.

    Args:
      client_devices: The devices given for clients, none if TensorFlow chooses.

    Returns:
      The number of the devices, or two more than that of the processors that this
      process may use: some threads always wait, for Python's lock or for each other.
    """
    return len(client_devices) or system.processors() + _MORE_THREADS


def keep_states_at_clients(client_bytes: int) -> bool:
    """Whether clients' new states are better returned one by one than collected.

    Args:
      client_bytes: The size of one client's state, in bytes.
    """
    return client_bytes > _LARGE_STATE_BYTES


def share_array(num_bytes: int) -> bool:
    """Whether an array is worth the effort of going in without a second copy.

    Args:
      num_bytes: Its size, in bytes.
    """
    return num_bytes >= _LARGE_ARRAY_BYTES


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


def vectorizing_may_pay(
    batch_clients: bool | None, fewest_patch_values: float
) -> Decision:
    """Decides whether a computation may gain from being vectorized.

    Args:
      batch_clients: The context's option.
      fewest_patch_values: As `num_patch_values` of `vectorizing_pays`, at least.
    """
    if batch_clients:
        return Decision(True, "batch_clients is True")
    return _convolutions_pay(fewest_patch_values)


def vectorizing_pays(
    groups: Sequence[Sequence[LockstepSteps]],
    state_bytes: int,
    on_cpus: bool,
    goes_back: bool = False,
    num_patch_values: float = 0,
) -> Decision:
    """Decides whether a cohort is faster vectorized than one client after the other.

    Args:
      groups: Of each group, who would take steps together.
      state_bytes: The size of what a client's steps change, in bytes.
      on_cpus: Whether clients are trained on CPUs.
      goes_back: Whether clients pass over their batches there and back.
      num_patch_values: How many values the patches have that the convolutions of a
        client's step, with their gradients, multiply with its filters; infinite if
        that is not known.
    """
    convolutions = _convolutions_pay(num_patch_values, on_cpus)
    if not convolutions.holds:
        return convolutions
    masked = any(len({turn.num_clients for turn in turns}) > 1 for turns in groups)
    most = _LARGEST_MASKED_BYTES if masked else _LARGEST_STATE_BYTES
    if on_cpus and state_bytes > most:
        sizes = "unequal sizes" if masked else "one size"
        return Decision(
            False,
            f"a client's state takes {state_bytes / 2**20:.1f} MiB, and clients of "
            f"{sizes} gain by vectorizing up to {most / 2**20:.1f} MiB",
        )
    steps = sum(turn.num_clients * turn.num_steps for turns in groups for turn in turns)
    if goes_back and masked and steps < _FEW_STEPS_BACK:
        return Decision(
            False,
            f"{steps} steps are few for the time that it takes to build the function "
            "of unequal clients that go back",
        )
    return _steps_come_together([turn for turns in groups for turn in turns])


def name_few_rows(bytes_on_rows: float, state_bytes: int) -> bool:
    """Whether steps are faster on the rows of tables that a client's batches name.

    Args:
      bytes_on_rows: The size of what they change there, in bytes.
      state_bytes: The size of what they change on whole tables, in bytes.
    """
    return state_bytes >= _SMALL_TABLES and _ROWS_FOR_ONE * bytes_on_rows <= state_bytes


def multiply_patches(num_values: int) -> bool:
    """Whether a convolution is faster as a product of patches and filters.

    Args:
      num_values: How many values the patches of an example have.
    """
    return num_values <= _LARGEST_PATCHES


def _convolutions_pay(num_patch_values: float, on_cpus: bool = True) -> Decision:
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
        num_patch_values <= _MOST_PATCH_VALUES,
        f"its convolutions take patches of {num_patch_values:,.0f} values in a step, "
        f"and gain by vectorizing up to {_MOST_PATCH_VALUES:,}",
    )


def _steps_come_together(turns: Sequence[LockstepSteps]) -> Decision:
    common = [turn for turn in turns if turn.num_clients > 1]
    together = sum(turn.num_clients * turn.num_steps for turn in common)
    taken = sum(turn.num_steps for turn in common)
    alone = sum(turn.num_steps for turn in turns) - taken
    if alone > _ALONE_FOR_ONE * together:
        return Decision(
            False, f"{together} steps come together, too few beside the {alone} alone"
        )
    enough = together >= _STEPS_PER_TURN * taken
    return Decision(
        enough,
        f"{together} steps come in {taken} lockstep steps, "
        f"{'at least' if enough else 'fewer than'} {_STEPS_PER_TURN} together on "
        "average" + (f", and {alone} alone" if alone else ""),
    )


def when_vectorized(batch_clients: bool | None) -> str:
    """Returns which cohorts are vectorized, in words.

    Args:
      batch_clients: The context's option.
    """
    if batch_clients:
        return "batch_clients is True"
    return (
        f"vectorized if at least {_STEPS_PER_TURN} steps come together on average, "
        f"at most {_ALONE_FOR_ONE} times as many are taken alone, and on CPUs state "
        "and convolutions are small"
    )


def most_together(client_bytes: int) -> int:
    """Returns how many clients at most are trained in one group.

    Args:
      client_bytes: About what the state of one takes, in bytes.
    """
    client_bytes = max(1, client_bytes)
    most = max(_FEW_CLIENTS, min(_MANY_CLIENTS, _STACK_BYTES // client_bytes))
    return max(1, min(most, _MOST_STACK_BYTES // client_bytes))


def chunks(num_clients: int, at_least: int, client_bytes: int) -> list[range]:
    """Returns the clients in parts of about one size, to be trained in turn.

    Args:
      num_clients: The number of clients.
      at_least: The number of parts, if there are as many clients.
      client_bytes: About what the state of one takes, in bytes.
    """
    if not num_clients:
        return []
    most = most_together(client_bytes)
    parts = max(-(-num_clients // most), min(at_least, num_clients))
    bounds = [num_clients * part // parts for part in range(parts + 1)]
    return [range(*pair) for pair in zip(bounds, bounds[1:])]


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
    num_steps: Sequence[int],
    last_batches: Sequence[Any],
    at_least: int,
    client_bytes: int,
    step_bytes: int,
) -> list[Sequence[int]]:
    """Returns who is trained in one group.

    Clients of equal numbers of steps and last batches stay in their order. Others are
    sorted by that number, so that those of a group are through at about the same time,
    then by the last batch, which is taken together where it is of one size; the groups
    are of one size, and the last is of those who are left.

    Args:
      num_steps: The number of steps of every client.
      last_batches: The size of the last batch of every client.
      at_least: The number of groups, if there are as many clients.
      client_bytes: About what the state of one takes, in bytes.
      step_bytes: The size of the batch of one step, in bytes.
    """
    return [
        part
        for group in _by_steps(
            list(zip(num_steps, last_batches)), at_least, client_bytes
        )
        for part in _within_bytes(group, num_steps, step_bytes)
    ]


def _by_steps(
    keys: Sequence[Any], at_least: int, client_bytes: int
) -> list[Sequence[int]]:
    clients = range(len(keys))
    if all(key == keys[0] for key in keys):
        return list(chunks(len(clients), at_least, client_bytes))
    most = _SORTED_STACK_BYTES // max(1, client_bytes)
    most = max(_FEW_SORTED, min(_MANY_SORTED, most))
    most = min(most, most_together(client_bytes))
    parts = max(-(-len(clients) // most), min(at_least, len(clients)))
    order = sorted(clients, key=keys.__getitem__, reverse=True)
    size = min(most, padded_size(-(-len(order) // parts)))
    bounds = [*range(0, len(order), size), len(order)]
    if len(bounds) <= at_least:
        bounds = [len(order) * part // parts for part in range(parts + 1)]
    return [order[start:end] for start, end in zip(bounds, bounds[1:])]


def step_bytes(batch_bytes: int, saved_bytes: int) -> int:
    """Returns what counts as the size of the batch of one step, in bytes.

    Args:
      batch_bytes: The size of the batch.
      saved_bytes: The size of what a step writes for a later loop.
    """
    return batch_bytes + saved_bytes // _SAVED_BYTES_FOR_ONE


def few_together(num_clients: int, on_cpus: bool) -> int:
    """Returns how many clients take a step faster one by one than in their group.

    A masked client is carried along: on CPUs, a step on the stacks of ten clients takes
    as long as some four alone, while on other devices operations take about as long for
    ten as for one.

    Args:
      num_clients: The number of the group's clients.
      on_cpus: Whether they are trained on CPUs.
    """
    return num_clients // _CLIENTS_PER_FEW if on_cpus else 0


def _within_bytes(
    group: Sequence[int], num_steps: Sequence[int], step_bytes: int
) -> list[Sequence[int]]:
    """Halves a group until its batches, and its padding, take few bytes."""
    most_steps = max(num_steps[client] for client in group)
    fits = len(group) * most_steps * step_bytes <= _GROUP_BYTES
    if fits or len(group) <= _FEW_CLIENTS:
        return [group]
    half = len(group) // 2
    return [
        part
        for parts in (group[:half], group[half:])
        for part in _within_bytes(parts, num_steps, step_bytes)
    ]
