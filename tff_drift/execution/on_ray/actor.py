"""An actor, which runs its clients on the local context."""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

import tff_drift
from tff_drift import compat
from tff_drift.execution.local import create_local_execution_context
from tff_drift.execution.on_ray import cluster, partition, shards, wire
from tff_drift.execution.on_ray.sources import Sources

# Programs that build one process after the other leave computations behind.
_KEPT_COMPUTATIONS = 64
# Evaluations on training and test clients, of a few models.
_KEPT_FUNCTIONS = 8


def versions() -> dict[str, str]:
    """Returns the versions that driver and actors must have in common."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "tff_drift": tff_drift.__version__,
        "TensorFlow": tf.__version__,
        "TensorFlow Federated": tff.__version__,
    }


class Actor:
    """Runs computations on some of the clients, in a process of Ray's.

    Every call brings, or refers to, all that it needs: an actor that was started anew
    goes on where the lost one was.
    """

    def __init__(self, processors: int, max_concurrent_clients: int) -> None:
        """Starts the local context.

        Args:
          processors: How many threads TensorFlow may keep busy.
          max_concurrent_clients: How many clients are trained at a time.
        """
        tf.config.threading.set_intra_op_parallelism_threads(processors)
        tf.config.threading.set_inter_op_parallelism_threads(processors)
        self._fetch = cluster.import_ray().get
        self._context = create_local_execution_context(
            max_concurrent_clients=max_concurrent_clients
        )
        self._sources = Sources(self._fetch)
        self._shards = shards.Shards(self._fetch)
        self._functions = wire.Kept(self._fetch, lambda build: build(), _KEPT_FUNCTIONS)
        self._computations = wire.Kept(
            self._fetch, compat.framework.deserialize_computation, _KEPT_COMPUTATIONS
        )

    def describe(self) -> dict[str, Any]:
        """Returns the versions, the node, the process and its use of processors."""
        return {
            "versions": versions(),
            "node": platform.node(),
            "pid": os.getpid(),
            "processor_seconds": time.process_time(),
            "gpus": len(tf.config.list_physical_devices("GPU")),
        }

    def run(
        self,
        computation: wire.Sent,
        shared: Any,
        part: wire.Part,
        *visiting: shards.ArraysByClient,
    ) -> Any:
        """Runs a computation.

        Args:
          computation: A serialized `tff.Computation`.
          shared: The part of the argument that all clients share, see
            `partition.separate`.
          part: The clients' part.
          *visiting: The states of clients whose shards are at other actors.

        Returns:
          The result, packed by `wire.pack`; beside it the new states of the clients of
          each shard, if the part says which.
        """
        found = self._computations.find(computation)
        states = None
        if part.states is not None:
            states = shards.StatesOfPart(self._shards, part, visiting)
        result = self._context.invoke(
            found, self._argument(found, shared, part, states)
        )
        new: list[shards.ArraysByClient] = []
        if states is not None:
            result, new = states.take(result, found)
        packed = wire.pack(result, found.type_signature.result)
        return (packed, *new) if new else packed

    def explain(
        self, computation: wire.Sent, shared: Any, part: wire.Part | None
    ) -> str:
        """Returns what the local context says of a computation, see `run`."""
        found = self._computations.find(computation)
        argument = None if part is None else self._argument(found, shared, part)
        return self._context.explain(found, argument)

    def count(self, source: wire.Sent, client_ids: Sequence[str]) -> list[int]:
        """Returns how many examples clients train on in a round."""
        return self._sources.count(source, client_ids)

    def load_ahead(self, source: wire.Sent, client_ids: Sequence[str]) -> None:
        """Begins to load clients that train next, while this actor trains others."""
        self._sources.load_ahead(source, client_ids)

    def map_clients(
        self,
        function: wire.Sent,
        source: wire.Sent,
        client_ids: Sequence[str],
        *arguments: Any,
    ) -> list[Any]:
        """Returns what a function returns of clients and arguments."""
        clients = [(self._sources.part_of(source, each), each) for each in client_ids]
        return list(self._functions.find(function)(clients, *arguments))

    def forget(self, key: str) -> None:
        """Keeps what was sent under a key no longer, whatever it is."""
        self._sources.forget(key)
        self._functions.forget(key)
        self._computations.forget(key)

    def of_shards(self, method: str, *arguments: Any) -> Any:
        """Returns what a method of `Shards` returns."""
        return getattr(self._shards, method)(*arguments)

    def _argument(
        self,
        computation: Any,
        shared: Any,
        part: wire.Part,
        states: shards.StatesOfPart | None = None,
    ) -> Any:
        parameter = computation.type_signature.parameter

        def find(named: wire.SentRound | wire.SentState) -> Any:
            if isinstance(named, wire.SentRound):
                return self._sources.batches(named)
            assert states is not None
            return states.state(named.client_id)

        unpack = functools.partial(wire.unpack, find=find)
        columns = [
            [unpack(value, type_) for value in column]
            for column, type_ in zip(
                part.columns, partition.client_types(parameter), strict=True
            )
        ]
        return partition.fill(unpack(shared, parameter), parameter, iter(columns))
