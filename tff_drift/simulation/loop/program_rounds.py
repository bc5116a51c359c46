"""Rounds of methods whose clients keep a state, in TFF's federated programs.

A program's context returns references to values before they are computed. The clients'
new states are kept when the round has ended, before any value of its output is seen.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import tree

from tff_drift import compat
from tff_drift.algorithms import StatefulLearningProcess
from tff_drift.simulation.cohorts import Cohort, without_client_states


def check_no_references(state: Any) -> None:
    """Raises a `TypeError` if a server state holds references to values."""
    if any(
        isinstance(leaf, compat.MaterializableValueReference)
        for leaf in tree.flatten(state)
    ):
        raise TypeError(
            "state holds references to values, but the clients' states to go with "
            "it must be known. Await tff.program.materialize_value(state) first, "
            "as tff.learning.programs.train_model does."
        )


def next_of_program(
    process: StatefulLearningProcess,
    next_of_columns: compat.Computation,
    state: Any,
    cohort: Cohort,
    data: Sequence[Any],
) -> Any:
    """Runs a round in a federated program.

    Args:
      process: The process.
      next_of_columns: What `build_next_of_columns` made of it.
      state: The server state.
      cohort: The clients, with their states.
      data: The clients' datasets.

    Returns:
      References to the output of the round, without the clients' states.
    """
    assert cohort.states is not None
    states = cohort.states.gather(list(cohort.clients), copy=False)
    leaves = [tree.flatten(each) for each in states]
    output = next_of_columns(
        state,
        list(data),
        [list(column) for column in zip(*leaves)],
        [np.int32(index) for index in range(len(data))],
    )

    async def end_later() -> list[Any]:
        values = await compat.materialize_value(output)
        return tree.flatten(cohort.end(process, values))

    ending = asyncio.get_running_loop().create_task(end_later())
    visible = without_client_states(output)
    references = [
        _Reference(ending, index, reference.type_signature)
        for index, reference in enumerate(tree.flatten(visible))
    ]
    return tree.unflatten_as(visible, references)


def build_next_of_columns(process: StatefulLearningProcess) -> compat.Computation:
    """Builds `next` on a list per tensor of the clients' data, and one of examples.

    TFF's contexts of federated programs take datasets and tensors at the clients,
    but no structures of them.

    Args:
      process: The process.
    """
    parameter: Any = process.next.type_signature.parameter
    client_type = parameter[1].member
    initial = process.initial_client_state
    leaf_types = [
        compat.FederatedType(compat.TensorType(leaf.dtype, leaf.shape), compat.CLIENTS)
        for leaf in map(np.asarray, tree.flatten(initial))
    ]

    @compat.federated_computation(
        parameter[0],
        compat.FederatedType(client_type.examples, compat.CLIENTS),
        compat.to_type(leaf_types),
        compat.FederatedType(np.int32, compat.CLIENTS),
    )
    def next_of_columns(state: Any, examples: Any, leaves: Any, indices: Any) -> Any:
        columns = [leaves[index] for index in range(len(leaf_types))]
        client_data = collections.OrderedDict(
            examples=examples,
            state=tree.unflatten_as(initial, columns),
            index=indices,
        )
        return process.next(state, compat.federated_zip(client_data))

    return next_of_columns


class _Reference(compat.MaterializableValueReference):
    """A value of the output of a round that is under way."""

    def __init__(self, ending: asyncio.Task[list[Any]], index: int, type_: Any) -> None:
        self._ending = ending
        self._index = index
        self._type_signature = type_

    @property
    def type_signature(self) -> Any:
        return self._type_signature

    async def get_value(self) -> Any:
        return (await self._ending)[self._index]
