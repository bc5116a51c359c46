"""A store of clients' states, and the server state that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tff_drift.client_states import ClientStates, ClientStatesError
from tff_drift.simulation.loop.client_state_types import rounds_of


class StoreInStep:
    """Keeps count of the round that a store's client states are of.

    Attributes:
      client_states: The store.
    """

    def __init__(self, client_states: ClientStates) -> None:
        """Begins with a store.

        Args:
          client_states: The store. What it holds belongs to its latest version.
        """
        self.client_states = client_states
        # The round of the server state that the store belongs to; None while it is
        # between two, or if nobody has said.
        self._round: int | None = max(
            client_states.versions, default=None if len(client_states) else 0
        )
        self._can_go_back = False

    def begin(self, state: Any) -> None:
        """Says that the store holds the clients' states of a server state.

        Args:
          state: The server state that the next round begins with.

        Raises:
          TypeError: If it is not a server state of this kind of process.
        """
        self._round = rounds_of(state)

    def is_in_step(self, state: Any) -> bool:
        """Returns whether the store holds the clients' states of a server state.

        Args:
          state: The server state.

        Raises:
          TypeError: If it is not a server state of this kind of process.
        """
        return self._round == rounds_of(state)

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
        self._round = rounds

    def enter(self, state: Any) -> int:
        """Returns the rounds of a server state that is about to be trained from.

        Args:
          state: The server state.

        Raises:
          ClientStatesError: If the store is at another round.
          TypeError: If it is not a server state of this kind of process.
        """
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

    def gather(self, client_ids: Iterable[str]) -> list[Any]:
        """Returns clients' states.

        Args:
          client_ids: The clients.
        """
        return self.client_states.gather(list(client_ids), copy=False)

    def scatter(
        self, rounds: int, client_ids: list[str], states: list[Any], copy: bool
    ) -> None:
        """Keeps clients' new states, those of a server state after one more round.

        Args:
          rounds: The rounds of the server state that the round began with.
          client_ids: The clients.
          states: The new state of each.
          copy: Whether they are to be copied.
        """
        self.replace(
            rounds, lambda: self.client_states.scatter(client_ids, states, copy=copy)
        )

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
        self._round = rounds + 1
