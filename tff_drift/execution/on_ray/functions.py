"""Functions of clients, called at the actors that have the clients' data."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from tff_drift.execution.on_ray import wire
from tff_drift.execution.on_ray.actors import Actors, Call
from tff_drift.execution.on_ray.dealing import Dealer
from tff_drift.execution.on_ray.sources import ClientSource


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
