"""A learning process beside the store of its clients' states.

The methods whose clients keep a state take it in and give it back with every round.
`ProcessWithClientStates` does that between a process and a store, so that a loop need
not know of it: one's own, `run_training`'s, or one of TFF's.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_drift import checks, compat
from tff_drift.algorithms import CLIENT_STATES, StatefulLearningProcess
from tff_drift.client_states import (
    ClientStates,
    ClientStatesError,
    InMemoryClientStates,
)
from tff_drift.simulation.cohorts import Cohort, Selection, run_round


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
    round, and a store that others wrote in between, rather than to train on states that
    do not fit. Of a store that holds states already, or was written by hand, or a
    server state that has been trained before, `begin` says that they belong together.

    `next` is not a computation to build others from: it runs in this program. Under an
    asynchronous context (`tff.framework.AsyncContext`) it returns an awaitable, under
    a `tff.program.FederatedContext` references to values.

    Attributes:
      client_states: The store.
      process: The process that was given.
      control_variate: The process's own, see `StatefulLearningProcess`.
      message_down: Likewise.
      message_up: Likewise.
      num_clients: Likewise.
      needs_full_participation: Likewise.
      settings: Likewise.
      weight_places: Likewise.
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
            `process.initial_client_state`; by default in RAM. What it holds belongs to
            its latest version, unless it was changed since.

        Raises:
          TypeError: If `process` is not one whose clients keep a state, or
            `client_states` no store.
          ValueError: If `client_states` is a store of other states.
        """
        what = "one whose clients keep a state, such as build_scaffold returns"
        remedy = "Use others as they are."
        checks.check_instance("process", process, StatefulLearningProcess, what, remedy)
        if client_states is None:
            client_states = InMemoryClientStates(process.initial_client_state)
        checks.check_instance("client_states", client_states, ClientStates)
        _check_store_fits(process, client_states)
        self.process = process
        self.control_variate = process.control_variate
        self.message_down = process.message_down
        self.message_up = process.message_up
        self.num_clients = process.num_clients
        self.needs_full_participation = process.needs_full_participation
        self.settings = process.settings
        self.weight_places = process.weight_places
        self.client_states = client_states
        # The round of the server state that the store belongs to; None while it is
        # between two, or if nobody has said.
        self._round: int | None = 0
        if client_states.versions:
            changed = client_states.has_changes
            self._round = None if changed else max(client_states.versions)
        elif len(client_states):
            self._round = None
        # What the store counted when it was of that round.
        self._num_writes = client_states.num_writes
        self._can_go_back = False
        super().__init__(
            process.initialize,
            _Next(self, _next_type(process)),
            process.get_model_weights,
            process.set_model_weights,
            get_hparams_fn=process.get_hparams,
            set_hparams_fn=process.set_hparams,
        )

    def begin(self, state: Any) -> None:
        """Says that the store holds the clients' states of a server state.

        Args:
          state: The server state that the next round begins with.

        Raises:
          TypeError: If it is not a server state of this kind of process.
        """
        self._set_round(rounds_of(state))

    def _set_round(self, rounds: int) -> None:
        self._num_writes = self.client_states.num_writes
        self._round = rounds

    def is_in_step(self, state: Any) -> bool:
        """Returns whether the store holds the clients' states of a server state.

        Args:
          state: The server state.

        Raises:
          TypeError: If it is not a server state of this kind of process.
        """
        return self._round == rounds_of(state) and not self._is_changed()

    def _is_changed(self) -> bool:
        return self._num_writes != self.client_states.num_writes

    def keep_versions(self) -> None:
        """Allows `next` to repeat the last round, from a version that the store holds.

        For loops that may discard a round and train it again, such as `train_model`.
        """
        self._can_go_back = True

    def go_to(self, state: Any, fingerprint: str | None = None) -> None:
        """Brings the store to a server state, if it holds that version.

        Args:
          state: The server state.
          fingerprint: That of the version, if it is known.

        Raises:
          ClientStatesError: If the store does not hold the version, or other states
            under it.
          TypeError: If it is not a server state of this kind of process.
        """
        rounds = rounds_of(state)
        self.client_states.restore(rounds, fingerprint)
        self._set_round(rounds)

    def enter(self, state: Any) -> int:
        """Returns the rounds of a server state that is about to be trained from.

        Args:
          state: The server state.

        Raises:
          ClientStatesError: If the store is at another round, or was written by
            others.
          TypeError: If it is not a server state of this kind of process.
        """
        rounds = rounds_of(state)
        if self._round is not None and self._is_changed():
            raise ClientStatesError(
                "client_states was written since this process was made or ended its "
                "last round, by another process or by hand. Give each process a store "
                "of its own; if its states do belong to state, call begin(state)."
            )
        if self._can_go_back and self._round == rounds + 1:
            self.go_to(state)
        if self._round != rounds:
            held = "no round" if self._round is None else f"{self._round} rounds"
            raise ClientStatesError(
                f"client_states holds the states of {len(self.client_states)} clients "
                f"after {held}, but state is the server's after {rounds}. Restore its "
                "version of that round, or begin with an empty store and the initial "
                "state; if they do belong together, call begin(state)."
            )
        return rounds

    def replace(self, rounds: int, keep: Callable[[], object]) -> None:
        """Makes the store hold the states of the next server state.

        Args:
          rounds: The rounds of the server state that the round began with.
          keep: Replaces the states.
        """
        # Between these lines the store is of no round: an interrupt that comes there
        # must not save it.
        self._round = None
        keep()
        self._set_round(rounds + 1)

    def run_round(self, state: Any, cohort: Cohort) -> Any:
        """Runs a round, and keeps the clients' new states.

        Args:
          state: The server state.
          cohort: The clients, with their data.

        Returns:
          The output of the round without the clients' states, see `Cohort.run`.

        Raises:
          ClientStatesError: If the store is at another round than the server state, or
            was written by others.
          TypeError: If `state` is not a server state of this kind of process.
          ValueError: If the method needs all clients, and the cohort has fewer.
        """
        check_participation(self.process, len(cohort.clients))
        replacing = functools.partial(self.replace, self.enter(state))
        cohort = dataclasses.replace(
            cohort, states=self.client_states, replacing=replacing
        )
        return run_round(self.process, state, cohort)

    def _next(self, state: Any, client_data: Mapping[str, Any]) -> Any:
        what = "the cohort's data by client id, such as {'ann': dataset}"
        checks.check_instance("client_data", client_data, Mapping, what)
        cohort = Cohort(0, list(client_data), client_data)
        if isinstance(client_data, Selection):
            cohort = dataclasses.replace(
                cohort, round_number=client_data.round_number, data=client_data.train
            )
        return self.run_round(state, cohort)


def rounds_of(state: Any) -> int:
    """Returns the rounds that a server state has been trained for.

    Args:
      state: The server state of a process whose clients keep a state.

    Raises:
      TypeError: If it is not one, or a reference to one.
    """
    client_work = getattr(state, "client_work", None)
    if not isinstance(client_work, Mapping) or "round_number" not in client_work:
        raise TypeError(
            "state must be the server state of a process whose clients keep a state, "
            f"found {type(state).__name__}. Give what initialize or next returned."
        )
    rounds = client_work["round_number"]
    if isinstance(rounds, compat.MaterializableValueReference):
        raise TypeError(
            "state holds references to values, which the clients' states have to go "
            "with. Await tff.program.materialize_value(state) first."
        )
    return int(rounds)


def _next_type(process: StatefulLearningProcess) -> compat.FunctionType:
    """Returns the type of `next` without the clients' states."""
    parameter: Any = process.next.type_signature.parameter
    result: Any = process.next.type_signature.result
    metrics = result.metrics.member
    seen = collections.OrderedDict(
        (name, metrics[name])
        for name in compat.structure_names(metrics)
        if name != CLIENT_STATES
    )
    return compat.FunctionType(
        compat.to_type(
            collections.OrderedDict(
                state=parameter[0],
                client_data=compat.FederatedType(
                    parameter[1].member.examples, compat.CLIENTS
                ),
            )
        ),
        compat.to_type(
            tff.learning.templates.LearningProcessOutput(
                result.state, compat.FederatedType(compat.to_type(seen), compat.SERVER)
            )
        ),
    )


def _check_store_fits(process: StatefulLearningProcess, store: ClientStates) -> None:
    """Raises a `ValueError` unless a store is for the clients of a process."""

    def shapes(state: Any) -> list[tuple[Any, Any, Any]]:
        return [
            (path, np.asarray(leaf).shape, np.asarray(leaf).dtype)
            for path, leaf in tree.flatten_with_path(state)
        ]

    if shapes(store.initial_state) != shapes(process.initial_client_state):
        raise ValueError(
            "client_states was made for other states than those of this process's "
            "clients. Make it with process.initial_client_state."
        )


def check_participation(process: Any, cohort_size: int) -> None:
    """Raises if a process needs all clients in every round and gets fewer.

    Args:
      process: Any process.
      cohort_size: The clients of a round.

    Raises:
      ValueError: If they are too few.
    """
    needs_all = getattr(process, "needs_full_participation", False)
    num_clients = process.num_clients if needs_all else 0
    if cohort_size < num_clients:
        raise ValueError(
            f"cohort_size is {cohort_size}, but this method needs all {num_clients} "
            f"clients in every round. Give {num_clients}, or take another method."
        )


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
