"""The execution context that spreads clients over actors on Ray."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import platform
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tff_drift import checks, compat
from tff_drift.execution.local import create_local_execution_context
from tff_drift.execution.on_ray import partition, wire
from tff_drift.execution.on_ray.actors import Actors, Call
from tff_drift.execution.on_ray.client_states import RayClientStates, StatesOfRound
from tff_drift.execution.on_ray.dealing import Argument, Dealer, SentFunctions
from tff_drift.execution.on_ray.sources import ClientSource
from tff_drift.execution.round_runner import RoundRunner
from tff_drift.models import value_files


@dataclasses.dataclass(frozen=True)
class _Plan:
    """A computation, prepared.

    Attributes:
      form: Its mergeable form, None if it has none.
      clients: What actors compute of it: of the form, all up to the merge, else the
        whole.
      after_merge: What actors compute after the merge, None if this process does.
    """

    form: compat.framework.MergeableCompForm | None
    clients: wire.Sent
    after_merge: wire.Sent | None = None


class RayExecutionContext(RoundRunner, compat.framework.SyncContext):
    """Runs TFF computations, see `create_ray_execution_context`."""

    def __init__(
        self, actors: Actors, address: str, default_num_clients: int = 0
    ) -> None:
        self._actors = actors
        self._address = address
        # For the server's part, and for what takes nothing of single clients.
        self._here = create_local_execution_context(
            default_num_clients=default_num_clients
        )
        self._dealer = Dealer(actors)
        self._functions = SentFunctions(actors, self._dealer)
        # By the identity of a computation, with which they go: to hash one is to
        # serialize all of it.
        self._plans: dict[int, tuple[weakref.ref[Any], _Plan]] = {}
        self._lock = threading.RLock()

    def run_round(self, process: Any, server_state: Any, cohort: Any) -> Any:
        """Runs a round, see `RoundRunner.run_round`.

        Batches are made, and states of a store of these actors are kept, where clients
        are trained. Other states are collected, since what actors send is merged. The
        clients that train next are loaded meanwhile, see `load_ahead`.

        Args:
          process: The process.
          server_state: The server state.
          cohort: The clients, a `tff_drift.simulation.Cohort`.

        Returns:
          The output of the round, without the clients' states.
        """
        if cohort.next_clients:
            self.load_ahead(cohort.data, cohort.next_clients)
        store = cohort.states
        if isinstance(store, RayClientStates) and store.actors is self._actors:
            cohort = dataclasses.replace(cohort, states=StatesOfRound(store))
        return cohort.run(process, server_state, self.by_name(cohort))

    def by_name(self, cohort: Any) -> list[Any]:
        """Returns what stands for each client's data, so that it stays at the actors.

        What was given for each client goes in as it is.

        Args:
          cohort: The clients, a `tff_drift.simulation.Cohort`.
        """
        if isinstance(cohort.data, Mapping):
            return cohort.batches()
        with self._lock:
            source = self._dealer.sources.find(cohort.data).sent
        return [
            wire.SentRound(source, client_id, cohort.round_number, cohort.data)
            for client_id in cohort.clients
        ]

    def open_client_states(
        self, initial_state: Any, path: str | os.PathLike[str] | None = None
    ) -> RayClientStates:
        """Returns a store of client states that the actors keep.

        Args:
          initial_state: The state of a client that has not been seen, such as
            `process.initial_client_state`. A store that exists must have been made
            with an equal one.
          path: A folder that all nodes share, as for `DiskClientStates`; None for the
            temporary folders of the nodes, where the states end with the store.

        Raises:
          ClientStatesError: If the folder cannot be used, holds other files, or holds a
            store that is damaged or that was made with another `initial_state`.
          TypeError: If a leaf of `initial_state` is neither numbers nor booleans, or
            `path` is not a path.
          ValueError: If `initial_state` holds no array.
        """
        return RayClientStates(self._actors, initial_state, path)

    def load_ahead(self, source: ClientSource, client_ids: Sequence[str]) -> None:
        """Makes the actors load clients that train next, while they train others.

        Each loads its own, where they are not in RAM, as many as half of the cache of
        `ClientDatasets` holds. Whatever comes of it changes no result.

        Args:
          source: The clients' data.
          client_ids: The clients of the next round.

        Raises:
          TypeError: As in `invoke`, of the function that loads clients.
        """
        with self._lock:
            self._dealer.load_ahead(source, client_ids)

    def map_clients(
        self,
        build: Callable[[], Any],
        source: ClientSource,
        client_ids: Sequence[str],
        *arguments: Any,
    ) -> list[Any] | None:
        """Calls a function of clients where their data is.

        Args:
          build: Makes the function, once at each actor: of a list of pairs, a source
            that has a client and the client's id, and of the arguments to a result for
            each pair.
          source: The clients' data.
          client_ids: The clients.
          *arguments: What the function is given besides.

        Returns:
          The results in the order of the clients; None if `build` cannot be sent, which
          is reported once.

        Raises:
          TypeError: As in `invoke`, like WorkerError.
          Exception: What the function raises.
        """
        with self._lock:
            return self._functions.call(build, source, client_ids, arguments)

    @property
    def actors(self) -> Sequence[Mapping[str, Any]]:
        """Each actor's `node`, `pid`, `gpus` and `versions` when it was started."""
        return self._actors.described

    def ask_actors(self) -> Sequence[Mapping[str, Any]]:
        """Returns `actors` as of now, and the `processor_seconds` of each so far.

        An actor that was started anew has another `pid`, and few seconds.

        Raises:
          WorkerError: As in `invoke`, also once the context is closed.
        """
        with self._lock:
            return self._actors.describe()

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation.

        Args:
          comp: A `tff.Computation`.
          arg: Its argument, None if it has none.

        Returns:
          The result, as TFF's native execution context returns it.

        Raises:
          NotImplementedError: If the computation holds something that the local
            context does not support; the message names it.
          TypeError: If the argument is not of the parameter's type, or the function
            that loads clients holds what cannot be sent, such as a lock.
          ValueError: If parts of the argument are of different numbers of clients.
          WorkerError: If an actor was lost or took too long too often, the context is
            closed, or Ray ended.
          tf.errors.OpError: If an operation fails, such as an assertion of the
            computation.
        """
        # Out of any graph that the caller may be building.
        with self._lock, tf.init_scope():
            parameter = comp.type_signature.parameter
            if not partition.client_types(parameter):
                return self._here.invoke(comp, arg)
            plan = self._plan(comp)
            argument = self._dealer.deal(arg, parameter, whole=plan.form is None)
            results = self._run(plan.clients, argument, keeps_states=True)
            if plan.form is None:
                return _join(results, comp.type_signature.result, argument.dealt)
            if argument.states is not None and plan.after_merge is None:
                # While this process merges and takes the server's step.
                argument.states.begin()
            merge = functools.partial(self._merge, plan.form)
            return self._after_merge(plan, argument, functools.reduce(merge, results))

    def _merge(
        self, form: compat.framework.MergeableCompForm, one: Any, two: Any
    ) -> Any:
        return self._here.invoke(form.merge, (one, two))

    def _after_merge(self, plan: _Plan, argument: Argument, merged: Any) -> Any:
        assert plan.form is not None
        types = plan.form.after_merge.type_signature
        if plan.after_merge is None:
            # What does not depend on the clients needs none.
            nobody = partition.fill(
                argument.shared,
                types.parameter[0],
                iter([[] for _ in partition.client_types(types.parameter[0])]),
            )
            return self._here.invoke(plan.form.after_merge, (nobody, merged))
        shared = wire.pack(argument.shared, types.parameter[0])
        packed = self._actors.put((shared, merged))
        argument = dataclasses.replace(argument, packed=packed)
        results = self._run(plan.after_merge, argument)
        return _join(results, types.result, [argument.dealt[k] for k in argument.busy])

    def _run(
        self, computation: wire.Sent, argument: Argument, keeps_states: bool = False
    ) -> list[Any]:
        states = argument.states
        if states is None or not keeps_states:
            return self._actors.run(argument.calls(computation))
        results = []
        new: list[tuple[int, Any]] = []
        calls = argument.calls(computation, keeps_states=True)
        for call, (result, *references) in zip(
            calls, self._actors.run(calls), strict=True
        ):
            results.append(result)
            new += zip(call.arguments[2].states.returned, references, strict=True)
        states.new = new
        return results

    def _plan(self, computation: Any) -> _Plan:
        key = id(computation)
        if key not in self._plans:
            plan = self._compile(computation)
            for sent in (plan.clients, plan.after_merge):
                if sent is not None:
                    self._actors.forget_after(computation, sent.key)
            forget = weakref.ref(computation, lambda _: self._plans.pop(key, None))
            self._plans[key] = forget, plan
        return self._plans[key][1]

    def _compile(self, computation: Any) -> _Plan:
        try:
            form = tff.backends.native.compile_to_mergeable_comp_form(computation)
        except ValueError as error:
            logging.warning(
                "A computation cannot be spread over actors, because one of its "
                "aggregations depends on another or is secure. It runs on one actor. "
                "(%s)",
                str(error).splitlines()[0],
            )
            return _Plan(None, self._send(computation))
        after_merge = None
        if partition.client_types(form.after_merge.type_signature.result):
            after_merge = self._send(form.after_merge)
        return _Plan(form, self._send(form.up_to_merge), after_merge)

    def _send(self, computation: Any) -> wire.Sent:
        message = compat.framework.serialize_computation(computation)
        serialized = message.SerializeToString(deterministic=True)
        values = value_files.values_of(serialized)
        if values and all(
            each["node"] == platform.node() for each in self._actors.describe()
        ):
            values = {}
        key = hashlib.sha256(serialized).hexdigest()
        return wire.Sent(key, [self._actors.put((message, values))])

    def explain(self, computation: Any, argument: Any = None) -> str:
        """Says what a computation does here, and where, without running it.

        Args:
          computation: A `tff.Computation`.
          argument: An argument as `computation` takes it, a tuple if it takes several.
            Without one, what depends on the cohort is reported as a condition.

        Returns:
          The explanation, several lines of text: which actors there are, what they
          and this process compute, and what the local context of the first actor says
          of its part (see `LocalExecutionContext.explain`). It is for people and may
          change between versions.

        Raises:
          NotImplementedError: As in `invoke`, like TypeError, ValueError, WorkerError.
        """
        checks.check_instance("computation", computation, compat.Computation)
        parameter = computation.type_signature.parameter
        if not partition.client_types(parameter):
            text = self._here.explain(computation, argument)
            return f"in this process, for it takes no clients:\n{_indented(text)}"
        with self._lock, tf.init_scope():
            plan = self._plan(computation)
            shared, part, numbers = None, None, []
            if argument is not None:
                dealt = self._dealer.deal(argument, parameter, whole=plan.form is None)
                first = dealt.busy[0]
                shared, part = dealt.packed, dealt.parts[first]
                numbers = [len(clients) for clients in dealt.dealt]
            call = Call(0, "explain", (plan.clients, shared, part))
            (text,) = self._actors.run([call])
        return "\n".join([*self._explain_actors(plan, numbers), _indented(text)])

    def _explain_actors(self, plan: _Plan, numbers: Sequence[int]) -> list[str]:
        lines = [f"on Ray at {self._address}, {len(self._actors)} actors:"]
        for number, (place, found) in enumerate(
            zip(self._actors.places, self._actors.described, strict=True)
        ):
            line = (
                f"  {number}: on {found['node']}, {place.processors:g} processors, "
                f"{place.gpus:g} GPUs"
            )
            lines.append(line + (f", {numbers[number]} clients" if numbers else ""))
        if plan.form is None:
            return [*lines, "all of it on actor 0, for it cannot be split:"]
        after = "in this process" if plan.after_merge is None else "on the actors"
        return [
            *lines,
            "the actors' aggregates are merged in this process, in the actors' order",
            f"what comes after the merge is computed {after}",
            "up to the merge, on each actor for its own clients; actor 0 says:",
        ]

    def close(self) -> None:
        """Ends the actors; Ray itself runs on."""
        self._actors.close()


def _join(
    results: Sequence[Any], type_signature: compat.Type, parts: Sequence[Sequence[int]]
) -> Any:
    """Unpacks what actors returned, and joins it; see `partition.join`."""
    unpacked = (wire.unpack(result, type_signature) for result in results)
    # Structures that hold sequences come back as `tff.structure.Struct`s.
    restored = [compat.type_to_py_container(each, type_signature) for each in unpacked]
    return partition.join(restored, type_signature, parts)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
