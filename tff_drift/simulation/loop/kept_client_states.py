"""A learning process beside the store of its clients' states.

The methods whose clients keep a state take it in and give it back with every round.
`ProcessWithClientStates` does that between a process and a store, so that a loop need
not know of it: one's own, `run_training`'s, or one of TFF's.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
import tree

from tff_drift import compat, execution
from tff_drift.algorithms import CLIENT_STATES, StatefulLearningProcess
from tff_drift.client_states import (
    ClientStates,
    ClientStatesError,
    InMemoryClientStates,
)
from tff_drift.simulation.loop.client_state_types import (
    check_store_fits,
    next_type,
    rounds_of,
    unstack_client_states,
    without_client_states,
)

# Of the ids of a cohort to their data.
Cohort = Mapping[str, Any]


class ProcessWithClientStates(tff.learning.templates.LearningProcess):
    """A learning process whose clients' states are kept beside it, in a store.

    A round takes the cohort's datasets by client id:

    >>> kept = ProcessWithClientStates(process)           # doctest: +SKIP
    >>> state = kept.initialize()                         # doctest: +SKIP
    >>> state, metrics = kept.next(state, {"ann": dataset, "bob": dataset})
    ... # doctest: +SKIP

    `next` gathers the states of the cohort's clients, runs the process's own `next`,
    scatters the new states, and returns the output without them. Everything else is
    the process's own. So TFF's loops, `tff.simulation.run_training_process` and
    `tff.learning.programs.train_model`, train these methods as they train others, with
    `tff_drift.simulation.ClientDataSource` and `ClientStatesProgramStateManager`.

    The clients' states belong to one server state: the one that the last `next`
    returned. `next` counts rounds in the server state, and refuses one of another
    round, rather than to train on states that do not fit. Of a store that holds states
    already, or a server state that has been trained before, `begin` says that they
    belong together.

    `next` is no computation to build others from: it runs in this program. Under an
    asynchronous context (`tff.framework.AsyncContext`) it returns an awaitable, under
    a `tff.program.FederatedContext` references to values.

    Attributes:
      client_states: The store.
      process: The process that was given.
    """

    def __init__(
        self,
        process: StatefulLearningProcess,
        client_states: ClientStates | None = None,
    ) -> None:
        """Puts a store beside a process.

        Args:
          process: A process of `tff_drift.algorithms` whose clients keep a state.
          client_states: Where they are kept, a store made with
            `process.initial_client_state`; by default in RAM.

        Raises:
          TypeError: If `process` is none whose clients keep a state, or
            `client_states` no store.
          ValueError: If `client_states` is a store of other states.
        """
        if not isinstance(process, StatefulLearningProcess):
            raise TypeError(
                "process must be one whose clients keep a state, such as "
                f"tff_drift.algorithms.build_scaffold returns, found {process!r}. Use "
                "others as they are."
            )
        if client_states is None:
            client_states = InMemoryClientStates(process.initial_client_state)
        if not isinstance(client_states, ClientStates):
            raise TypeError(
                "client_states must be a store of tff_drift.client_states, found "
                f"{client_states!r}."
            )
        check_store_fits(process, client_states)
        self.process = process
        self.client_states = client_states
        # The round of the server state that the store belongs to; None while it is
        # between two, or if nobody has said.
        self._round: int | None = max(
            client_states.versions, default=None if len(client_states) else 0
        )
        self._can_go_back = False
        super().__init__(
            process.initialize,
            _Next(self, next_type(process)),
            process.get_model_weights,
            process.set_model_weights,
            get_hparams_fn=process.get_hparams,
            set_hparams_fn=process.set_hparams,
        )

    @property
    def control_variate(self) -> compat.Computation | None:
        """The process's own, see `StatefulLearningProcess`."""
        return self.process.control_variate

    @property
    def num_clients(self) -> int | None:
        """The process's own, see `StatefulLearningProcess`."""
        return self.process.num_clients

    def begin(self, state: Any) -> None:
        """Says that the store holds the clients' states of a server state.

        Args:
          state: The server state that the next round begins with.

        Raises:
          TypeError: If it is no server state of this kind of process.
        """
        self._round = rounds_of(state)

    def is_in_step(self, state: Any) -> bool:
        """Returns whether the store holds the clients' states of a server state.

        Args:
          state: The server state.

        Raises:
          TypeError: If it is no server state of this kind of process.
        """
        return self._round == rounds_of(state)

    def keep_versions(self) -> None:
        """Lets `next` go back by one round, to a version that the store holds.

        For loops that may discard a round and train it again, such as `train_model`.
        """
        self._can_go_back = True

    def go_to(self, state: Any) -> None:
        """Brings the store to a server state, if it holds that version.

        Args:
          state: The server state.

        Raises:
          ClientStatesError: If the store is at another round, and does not hold this
            one as a version.
          TypeError: If it is no server state of this kind of process.
        """
        rounds = rounds_of(state)
        if self._round != rounds:
            self.client_states.restore(rounds)
            self._round = rounds

    def _enter(self, state: Any) -> int:
        """Returns the round of a state that is about to be trained from."""
        rounds = rounds_of(state)
        if self._can_go_back and self._round == rounds + 1:
            self.go_to(state)
        if self._round != rounds:
            held = "no round" if self._round is None else f"{self._round} rounds"
            raise ClientStatesError(
                f"client_states holds the states of {len(self.client_states)} clients "
                f"after {held}, but state is the server's after {rounds}. Restore "
                "the store's version of that round, or begin with an empty store and "
                "the process's initial state; if they do belong together, call "
                "begin(state)."
            )
        return rounds

    def _gather(self, cohort: Cohort) -> list[Any]:
        return self.client_states.gather(list(cohort), copy=False)

    def _scatter(self, rounds: int, cohort: Cohort, new: _NewStates) -> None:
        names = list(cohort)
        # Between these lines the store is of no round: an interrupt that comes there
        # must not save it.
        self._round = None
        self.client_states.scatter(
            [names[index] for index in new.indices], new.states, copy=new.are_views
        )
        self._round = rounds + 1

    def _next(self, state: Any, cohort: Cohort) -> Any:
        if not isinstance(cohort, Mapping):
            raise TypeError(
                "A round takes the cohort's data by client id, found "
                f"{type(cohort).__name__}. Give for instance {{'ann': dataset}}."
            )
        context = compat.get_context_stack().current
        if isinstance(context, compat.FederatedContext):
            return self._next_of_program(state, cohort)
        rounds = self._enter(state)
        client_data = [
            collections.OrderedDict(
                examples=examples, state=client_state, index=np.int32(index)
            )
            for index, (examples, client_state) in enumerate(
                zip(cohort.values(), self._gather(cohort))
            )
        ]
        stays = execution.current_preferences().prefers_states_at_clients(
            self.client_states.state_nbytes, len(client_data)
        )
        computation = self.process.next_at_clients if stays else self.process.next
        result = computation(state, client_data)
        if inspect.isawaitable(result):
            return self._end_later(rounds, cohort, result, stays)
        return self._end(rounds, cohort, result, stays)

    async def _end_later(
        self, rounds: int, cohort: Cohort, result: Any, at_clients: bool
    ) -> Any:
        return self._end(rounds, cohort, await result, at_clients)

    def _end(
        self, rounds: int, cohort: Cohort, result: Any, at_clients: bool
    ) -> tff.learning.templates.LearningProcessOutput:
        """Keeps the new states that a round returned, and returns the rest."""
        initial = self.process.initial_client_state
        if at_clients:
            output, kept = result
            new = _NewStates(
                [int(each["index"]) for each in kept],
                [
                    tree.unflatten_as(initial, tree.flatten(dict(each["state"])))
                    for each in kept
                ],
                are_views=False,
            )
        else:
            output = result
            collected = output.metrics[CLIENT_STATES]
            new = _NewStates(*unstack_client_states(collected, initial), are_views=True)
        self._scatter(rounds, cohort, new)
        return without_client_states(output)

    def _next_of_program(self, state: Any, cohort: Cohort) -> Any:
        """Runs a round in a federated program; returns references to its output."""
        if any(
            isinstance(leaf, compat.MaterializableValueReference)
            for leaf in tree.flatten(state)
        ):
            raise TypeError(
                "state holds references to values, but the clients' states to go with "
                "it must be known. Await tff.program.materialize_value(state) first, "
                "as tff.learning.programs.train_model does."
            )
        rounds = self._enter(state)
        leaves = [tree.flatten(each) for each in self._gather(cohort)]
        output = self._next_of_columns(
            state,
            list(cohort.values()),
            [list(column) for column in zip(*leaves)],
            [np.int32(index) for index in range(len(cohort))],
        )

        async def end() -> list[Any]:
            values = await compat.materialize_value(output)
            return tree.flatten(self._end(rounds, cohort, values, at_clients=False))

        ending = asyncio.get_running_loop().create_task(end())
        visible = without_client_states(output)
        references = [
            _Reference(ending, index, reference.type_signature)
            for index, reference in enumerate(tree.flatten(visible))
        ]
        return tree.unflatten_as(visible, references)

    @functools.cached_property
    def _next_of_columns(self) -> compat.Computation:
        """`next` on a list per tensor of the clients' data, and one of examples.

        TFF's contexts of federated programs take datasets and tensors at the clients,
        but no structures of them.
        """
        parameter: Any = self.process.next.type_signature.parameter
        client_type = parameter[1].member
        initial = self.process.initial_client_state
        leaf_types = [
            compat.FederatedType(
                compat.TensorType(leaf.dtype, leaf.shape), compat.CLIENTS
            )
            for leaf in map(np.asarray, tree.flatten(initial))
        ]

        @compat.federated_computation(
            parameter[0],
            compat.FederatedType(client_type.examples, compat.CLIENTS),
            compat.to_type(leaf_types),
            compat.FederatedType(np.int32, compat.CLIENTS),
        )
        def next_of_columns(
            state: Any, examples: Any, leaves: Any, indices: Any
        ) -> Any:
            columns = [leaves[index] for index in range(len(leaf_types))]
            client_data = collections.OrderedDict(
                examples=examples,
                state=tree.unflatten_as(initial, columns),
                index=indices,
            )
            return self.process.next(state, compat.federated_zip(client_data))

        return next_of_columns


class _Next(compat.Computation):
    """`next` of a `ProcessWithClientStates`, as TFF's loops call it."""

    def __init__(
        self, process: ProcessWithClientStates, type_signature: compat.FunctionType
    ) -> None:
        self._process = process
        self._type_signature = type_signature

    @property
    def type_signature(self) -> compat.FunctionType:
        return self._type_signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._process._next(*args, **kwargs)

    def __hash__(self) -> int:
        return id(self)


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


class _NewStates(NamedTuple):
    """The states that a cohort's clients return.

    Attributes:
      indices: The indices that were given to the clients.
      states: The new state of each.
      are_views: Whether the states are parts of arrays of the whole cohort, which one
        of them would keep in RAM.
    """

    indices: list[int]
    states: list[Any]
    are_views: bool
