"""The numbers by which the local context decides, to be tuned to a machine.

They are constants, and nothing is measured at run time: a resumed run has to decide as
the run before it did, or the last bits of its results change.
"""

from __future__ import annotations

import dataclasses

from tff_drift import checks

# What has to be there, or is divided by.
_AT_LEAST_1 = frozenset(
    {
        "clients_for_one",
        "few_clients",
        "few_sorted_clients",
        "functions",
        "saved_bytes_for_one",
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The numbers by which the local context decides how clients are trained.

    The defaults were measured on a machine of two processors, and serve others, too.
    Another machine is tuned by giving `create_local_execution_context` other limits:

    >>> limits = Limits(largest_state_bytes=2**23)
    >>> context = create_local_execution_context(limits=limits)    # doctest: +SKIP

    Under other limits other clients are trained together, and results agree to the
    tolerance of floating-point sums. Whoever resumes a run and wants the same bits
    gives the same limits. All numbers are integers.

    Attributes:
      plans: How many plans of the computations used last stay, with their functions,
        when their computations are gone, for programs that make equal ones again.
      functions: For how many sizes of groups the functions of one computation stay.
      cohorts: How many cohorts are remembered, to know those that come again.
      stack_bytes: What the states of the clients that are trained at a time take at
        most, so that they stay in the processor's cache.
      few_clients: Where that leaves fewer clients than this, there may be as many,
        within `most_stack_bytes`.
      many_clients: How many clients are trained at a time at most.
      most_stack_bytes: What the states of few clients take at most.
      steps_together: From so many clients on, on average over the steps, stacks of
        small models are faster; with fewer they gain too little for the seconds that
        building their functions takes.
      alone_for_one: How many steps at most may be taken alone for each that is taken
        together. If nearly all are, a single graph takes two fifths of the time of
        sequential clients.
      largest_masked_bytes: On CPUs, up to which size of its state a model is vectorized
        if some clients are masked, and carried along for nothing.
      largest_state_bytes: Likewise if none are: a step of a larger model is bound by
        RAM.
      most_patch_values: On CPUs, convolutions of many clients are products of patches
        and filters. Making the patches takes longer than a convolution, which is made
        up for by fewer operations if the patches of all convolutions of a client's step
        and their gradients have at most so many values.
      largest_patches: Up to how many values of an example's patches the product is
        quicker than one convolution.
      rows_for_one: Clients train on the rows of tables that their batches name where
        at most one row in so many is named: picking rows and putting them back costs a
        few passes over the tables.
      small_table_bytes: Likewise of tables that take at least this.
      few_steps_back: Clients of unequal sizes that go back over their batches, as UGA's
        do, are vectorized if they take so many steps: building their function takes
        more than ten seconds, and a step in it saves about half a millisecond.
      read_bytes: The batches of a cohort are read for vectorizing if they take at most
        this.
      group_bytes: What the batches of a group, put together, take at most, unless it is
        of few clients.
      saved_bytes_for_one: How many times as many bytes loops may write for later ones,
        such as UGA's iterates.
      sorted_stack_bytes: Clients of unequal numbers of steps are vectorized in smaller
        groups, sorted by that number, so that few are masked and several processors
        have one: of states that take about this.
      few_sorted_clients: How many clients are in such a group at least: steps of the
        smallest models take less time than what a group costs besides.
      many_sorted_clients: How many are in it at most.
      clients_for_one: On CPUs, steps that at most one in so many of a group's clients
        take are taken one by one.
      collected_state_bytes: From which size of one client's state on the states of a
        cohort are returned one by one: collecting them copies them.

    Raises:
      TypeError: If a limit is not an integer.
      ValueError: If it is below 0, or below 1 where there has to be one.
    """

    plans: int = 8
    functions: int = 64
    cohorts: int = 64
    stack_bytes: int = 10 * 2**20
    few_clients: int = 8
    many_clients: int = 256
    most_stack_bytes: int = 2**27
    steps_together: int = 4
    alone_for_one: int = 8
    largest_masked_bytes: int = 5 * 2**18
    largest_state_bytes: int = 5 * 2**19
    most_patch_values: int = 400_000
    largest_patches: int = 15_000
    rows_for_one: int = 2
    small_table_bytes: int = 2**16
    few_steps_back: int = 1000
    read_bytes: int = 2**31
    group_bytes: int = 2**28
    saved_bytes_for_one: int = 4
    sorted_stack_bytes: int = 3 * 2**18
    few_sorted_clients: int = 10
    many_sorted_clients: int = 64
    clients_for_one: int = 3
    collected_state_bytes: int = 2**20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            least = 1 if field.name in _AT_LEAST_1 else 0
            value = getattr(self, field.name)
            checks.check_integer(f"limits: {field.name}", value, least)
