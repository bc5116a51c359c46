"""Deals clients to actors, by their data or in their order.

Of the argument of a computation, or those of which a function is called.
"""

from __future__ import annotations

import dataclasses
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from tff_drift import compat
from tff_drift.execution import containers
from tff_drift.execution.on_ray import partition, wire
from tff_drift.execution.on_ray.actors import Actors, Call
from tff_drift.execution.on_ray.client_states import StatesOfRound
from tff_drift.execution.on_ray.sources import ClientSource, SentSource, SentSources

# Where a client's data comes from, and its id.
_Client = tuple[SentSource, str]


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument, sharded among actors.

    Attributes:
      shared: What all clients share, see `partition.separate`.
      packed: The same, packed and stored for all actors.
      dealt: The indices of each actor's clients.
      parts: The part of each actor.
      states: The clients' states, if they stay at the actors.
      names: Client index → the key of its state, if it stays at the actors.
    """

    shared: Any
    packed: Any
    dealt: list[list[int]]
    parts: list[wire.Part]
    states: StatesOfRound | None = None
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def calls(self, computation: wire.Sent, keeps_states: bool = False) -> list[Call]:
        """Returns the calls that run a computation on this argument.

        Args:
          computation: The computation.
          keeps_states: Whether they return the clients' new states beside the result.
        """
        return [self._call(number, computation, keeps_states) for number in self.busy]

    def _call(self, number: int, computation: wire.Sent, keeps_states: bool) -> Call:
        part = self.parts[number]
        if self.states is None:
            return Call(number, "run", (computation, self.packed, part))
        names = [self.names[client] for client in self.dealt[number]]
        states, visiting = self.states.of_actor(number, names)
        if not keeps_states:
            states = dataclasses.replace(states, returned=[])
        part = dataclasses.replace(part, states=states)
        arguments = (computation, self.packed, part, *visiting)
        return Call(number, "run", arguments, 1 + len(states.returned))

    @property
    def busy(self) -> list[int]:
        """The actors that have clients; the first, if there is no client."""
        return [k for k, part in enumerate(self.dealt) if part] or [0]


class Dealer:
    """Deals the clients of arguments to actors.

    Attributes:
      sources: The sources of clients that were sent to the actors.
    """

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.sources = SentSources(len(actors), actors.put, actors.forget_after)

    def deal(self, value: Any, parameter: compat.Type, whole: bool) -> Argument:
        """Deals the clients of an argument to actors.

        Args:
          value: The argument.
          parameter: Its type.
          whole: Whether one actor is to have all of them.
        """
        count = containers.cardinalities(value, parameter).get(compat.CLIENTS, 0)
        shared, columns = partition.separate(value, parameter)
        packer = _Packer()
        packed = [
            [packer.pack(client, each, type_) for client, each in enumerate(column)]
            for column, type_ in zip(
                columns, partition.client_types(parameter), strict=True
            )
        ]
        num_actors = len(self._actors)
        if whole:
            dealt = [list(range(count)), *([] for _ in range(num_actors - 1))]
        elif len(packer.rounds) == count:
            rounds = [packer.rounds[client] for client in range(count)]
            dealt = self.deal_clients(
                [(self.sources.find(each.data), each.client_id) for each in rounds]
            )
        else:
            dealt = partition.deal_in_order(count, num_actors)
        parts = [
            wire.Part([[column[client] for client in clients] for column in packed])
            for clients in dealt
        ]
        stored = self._actors.put(wire.pack(shared, parameter))
        return Argument(shared, stored, dealt, parts, packer.states, packer.names)

    def deal_clients(self, clients: Sequence[_Client]) -> list[list[int]]:
        """Deals clients by where their data is and how many examples they have.

        Args:
          clients: Of each client its source and its id.

        Returns:
          The numbers of each actor's clients.
        """
        num_actors = len(self._actors)
        homes = [partition.home(client_id, num_actors) for _, client_id in clients]
        self._count_examples(clients, homes)
        loads = [source.examples[client_id] for source, client_id in clients]
        return partition.deal(homes, loads, num_actors)

    def load_ahead(
        self, client_source: ClientSource, client_ids: Sequence[str]
    ) -> None:
        """Makes actors load the clients that they will train next."""
        source = self.sources.find(client_source)
        if not source.is_loaded:
            return
        num_actors = len(self._actors)
        homes = [partition.home(each, num_actors) for each in client_ids]
        # To count the others' examples is to wait until they are loaded.
        known = all(each in source.examples for each in client_ids)
        loads = [source.examples[each] if known else 0 for each in client_ids]
        dealt = partition.deal(homes, loads, num_actors)
        self._actors.tell(
            [
                Call(number, "load_ahead", (source.sent, [client_ids[k] for k in part]))
                for number, part in enumerate(dealt)
                if part
            ]
        )

    def _count_examples(self, clients: Sequence[_Client], homes: Sequence[int]) -> None:
        """Asks actors for the examples of the clients that have not been seen."""
        wanted: dict[tuple[int, int], tuple[SentSource, list[str]]] = {}
        for (source, client_id), number in zip(clients, homes, strict=True):
            if client_id not in source.examples:
                _, ids = wanted.setdefault((id(source), number), (source, []))
                ids.append(client_id)
        counts = self._actors.run(
            [
                Call(number, "count", (source.sent, ids))
                for (_, number), (source, ids) in wanted.items()
            ]
        )
        for (source, ids), found in zip(wanted.values(), counts, strict=True):
            source.examples.update(zip(ids, found, strict=True))


class _Packer:
    """Packs the values of clients.

    Attributes:
      rounds: Client index → the key of its data, of clients whose data stays at the
        actors.
      names: Client index → the key of its state, of clients whose states stay there.
      states: The states of the round, which these keys are of.
    """

    def __init__(self) -> None:
        self.rounds: dict[int, wire.SentRound] = {}
        self.names: dict[int, str] = {}
        self.states: Any = None

    def pack(self, client: int, value: Any, type_signature: compat.Type) -> Any:
        """Returns a client's value in a form that can be sent."""

        def note(named: wire.SentRound | wire.SentState) -> None:
            if isinstance(named, wire.SentState):
                self.states = named.states
                self.names[client] = named.client_id
            else:
                self.rounds[client] = named

        return wire.pack(value, type_signature, note)


class SentFunctions:
    """The functions that were sent to actors, see `Actor.map_clients`."""

    def __init__(self, actors: Actors, dealer: Dealer) -> None:
        """Creates an empty one.

        Args:
          actors: The actors.
          dealer: Deals clients to them.
        """
        self._actors = actors
        self._dealer = dealer
        self._sent: weakref.WeakKeyDictionary[Any, wire.Sent | None]
        self._sent = weakref.WeakKeyDictionary()

    def call(
        self,
        build: Callable[[], Any],
        source: ClientSource,
        client_ids: Sequence[str],
        arguments: Sequence[Any],
    ) -> list[Any] | None:
        """Calls a function, see `RayExecutionContext.map_clients`."""
        if build not in self._sent:
            self._sent[build] = self._send(build)
        function = self._sent[build]
        if function is None:
            return None
        found = self._dealer.sources.find(source)
        dealt = self._dealer.deal_clients([(found, each) for each in client_ids])
        stored = [self._actors.put(argument) for argument in arguments]
        busy = [(number, part) for number, part in enumerate(dealt) if part]
        answers = self._actors.run(
            [
                Call(
                    number,
                    "map_clients",
                    (function, found.sent, [client_ids[k] for k in part], *stored),
                )
                for number, part in busy
            ]
        )
        by_number = {
            k: result
            for (_, part), results in zip(busy, answers, strict=True)
            for k, result in zip(part, results, strict=True)
        }
        return [by_number[k] for k in range(len(client_ids))]

    def _send(self, build: Callable[[], Any]) -> wire.Sent | None:
        try:
            sent = wire.Sent(uuid.uuid4().hex, [self._actors.put(weakref.ref(build))])
        except wire.UNSENDABLE as error:
            logging.warning(
                "A model cannot be sent to the actors, so that it is evaluated in this "
                "process: %s. Give a function of a module that builds it.",
                wire.why_unsendable(error),
            )
            return None
        self._actors.forget_after(build, sent.key)
        return sent
