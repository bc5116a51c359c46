"""The actors as the driver sees them: their losses, retries and time limits."""

from __future__ import annotations

import _thread
import contextlib
import dataclasses
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from tff_drift import checks
from tff_drift.execution.on_ray import cluster
from tff_drift.execution.on_ray.actor import Actor, versions
from tff_drift.execution.on_ray.stored import StoredObjects, reference_of
from tff_drift.execution.worker import WorkerError

# Those that have not ended.
_open: weakref.WeakSet[Actors] = weakref.WeakSet()
# Between calls of an actor that cannot be reached.
_PAUSE_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a method of an actor.

    Attributes:
      actor: The number of the actor.
      method: The name of its method.
      arguments: The arguments, of which references are resolved, and calls are made:
        what they return is the argument.
      num_results: How many results the method returns.
    """

    actor: int
    method: str
    arguments: tuple[Any, ...]
    num_results: int = 1


class Actors:
    """Actors that share the clients of a computation, each its own part.

    Ray starts an actor anew that is lost, where there is room for it, and repeats the
    call that was lost with it. Objects that Ray lost are stored again.

    Attributes:
      places: Where they are, in their order.
    """

    def __init__(
        self,
        ray: Any,
        places: Sequence[cluster.Place],
        max_concurrent_clients: int | None,
        *,
        start_seconds: float,
        part_seconds: float,
        max_retries: int,
    ) -> None:
        """Starts the actors.

        Args:
          ray: The package, connected.
          places: What each actor is to have.
          max_concurrent_clients: How many clients each trains at a time; None for two
            more than it has processors.
          start_seconds: How long they may take to start, and to start anew when their
            node is gone.
          part_seconds: How long one may take for its part of a computation.
          max_retries: How often a part is run again whose actor was lost.

        Raises:
          WorkerError: If they find no room, do not start, or have other versions than
            this process.
        """
        self.places: tuple[cluster.Place, ...] = tuple(places)
        self._ray = ray
        self._session: tuple[str, str] | None = cluster.session(ray)
        others = [each for each in _open if each._session == self._session]
        cluster.check_room(ray, places, [p for each in others for p in each.places])
        self._is_closed = False
        self._start_seconds = start_seconds
        self._part_seconds = part_seconds
        self._max_retries = max_retries
        self._max_concurrent_clients = max_concurrent_clients
        self._stored = StoredObjects(ray.put)
        self._actors = [self._start(place) for place in places]
        _open.add(self)
        try:
            self._check(start_seconds)
        except BaseException:
            self.close()
            raise

    def _start(self, place: cluster.Place) -> Any:
        strategy: Any = "SPREAD"
        if place.node is not None:
            scheduling = self._ray.util.scheduling_strategies
            strategy = scheduling.NodeAffinitySchedulingStrategy(place.node, soft=True)
        remote = self._ray.remote(Actor).options(
            num_cpus=place.processors,
            num_gpus=place.gpus,
            max_restarts=-1,
            max_task_retries=self._max_retries,
            scheduling_strategy=strategy,
        )
        processors = max(1, int(place.processors))
        return remote.remote(processors, self._max_concurrent_clients or processors + 2)

    def _check(self, start_seconds: float) -> None:
        """Waits for the actors and compares their versions with this process's."""
        answers = [actor.describe.remote() for actor in self._actors]
        _, late = self._ray.wait(
            answers, num_returns=len(answers), timeout=start_seconds
        )
        if late:
            self.close()
            place = self.places[answers.index(late[0])]
            raise WorkerError(
                f"{len(late)} of {len(answers)} actors did not start within "
                f"{start_seconds:g} seconds. Each asks for {place.processors:g} "
                f"processors and {place.gpus:g} GPUs; free in Ray's cluster: "
                f"{self._ray.available_resources()}. Ask for fewer actors, or less for "
                "each, or let the cluster grow."
            )
        self.described = self._guarded(lambda: self._ray.get(answers))
        for found in self.described:
            theirs, ours = found["versions"], versions()
            differing = [name for name in ours if theirs[name] != ours[name]]
            if differing:
                raise WorkerError(
                    f"The actor on node {checks.shown(found['node'])} has "
                    + ", ".join(f"{name} {theirs[name]}" for name in differing)
                    + ", this process "
                    + ", ".join(f"{name} {ours[name]}" for name in differing)
                    + ". Install the same versions on every node."
                )

    def __len__(self) -> int:
        return len(self._actors)

    def describe(self) -> list[dict[str, Any]]:
        """Returns what the actors say of themselves, see `Actor.describe`."""
        return self.run([Call(number, "describe", ()) for number in range(len(self))])

    def put(self, value: Any) -> Any:
        """Stores an object for all actors.

        Args:
          value: The object, or a weak reference to it. It is kept, to be stored again.

        Returns:
          What stands for it in the arguments of calls, where actors find a reference.

        Raises:
          WorkerError: If the actors have been closed, or Ray itself has ended.
        """
        self._check_is_open()
        return self._stored.put(value)

    def tell(self, calls: Sequence[Call]) -> None:
        """Calls methods of actors whose results nobody waits for.

        Args:
          calls: The calls.

        Raises:
          WorkerError: If the actors have been closed, or Ray itself has ended.
        """
        self._check_is_open()
        for call in calls:
            # Else Ray tells the user of each that an actor has missed by its end.
            self._call(call, call.arguments, max_task_retries=0)

    def _begin(self, calls: Mapping[int, Call]) -> dict[int, list[Any]]:
        """Makes calls; returns references to their results."""
        # An actor does what it is asked in order: what others wait for comes first.
        arguments = {
            number: [
                self._call(each, each.arguments)[0] if isinstance(each, Call) else each
                for each in call.arguments
            ]
            for number, call in calls.items()
        }
        return {
            number: self._call(call, arguments[number])
            for number, call in calls.items()
        }

    def _call(self, call: Call, arguments: Sequence[Any], **options: Any) -> list[Any]:
        method = getattr(self._actors[call.actor], call.method)
        resolved = map(reference_of, arguments)
        options["num_returns"] = call.num_results
        found = method.options(**options).remote(*resolved)
        return found if call.num_results > 1 else [found]

    def forget_after(self, owner: Any, key: str) -> None:
        """Frees what actors were sent once an object is gone.

        Nobody waits for it, and nothing is said where actors have ended.

        Args:
          owner: The object. If it outlives the actors, it does not keep them.
          key: The key of the `wire.Sent`. Should it be sent once more, it is fetched.
        """
        weakref.finalize(owner, _forget, weakref.ref(self), key).atexit = False

    def forget(self, key: str) -> None:
        """Frees what actors were sent, if they still run."""
        with contextlib.suppress(Exception):
            # Ray would start another instance by itself where there is none.
            if self._ray.is_initialized():
                self.tell([Call(n, "forget", (key,)) for n in range(len(self))])

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Calls methods of actors side by side.

        Args:
          calls: The calls.

        Returns:
          The results, in the order of the calls; where there are several, the first
          one and references to the others.

        Raises:
          WorkerError: If an actor was lost too often or took too long too often, the
            actors have been closed, or Ray itself has ended.
          Exception: What a method raised.
        """
        return self.begin(calls)()

    def begin(self, calls: Sequence[Call]) -> Callable[[], list[Any]]:
        """Calls methods of actors side by side, and waits for nothing.

        Args:
          calls: The calls.

        Returns:
          What waits for their results, and returns and raises what `run` does.

        Raises:
          WorkerError: If the actors have been closed, or Ray itself has ended.
        """
        self._check_is_open()
        begun = self._guarded(lambda: self._begin(dict(enumerate(calls))))
        return lambda: self._guarded(lambda: self._wait(calls, begun))

    def _wait(self, calls: Sequence[Call], waiting: dict[int, list[Any]]) -> list[Any]:
        results: dict[int, Any] = {}
        num_late, num_lost = 0, 0
        while waiting:
            answers = [answer for answer, *_ in waiting.values()]
            _, late = self._ray.wait(
                answers, num_returns=len(answers), timeout=self._part_seconds
            )
            if late:
                num_late += 1
                late_ones = {
                    number: calls[number]
                    for number, (answer, *_) in waiting.items()
                    if answer in late
                }
                self._start_anew({call.actor for call in late_ones.values()}, num_late)
                # Ray waits without end for an object that it has lost.
                self._stored.store_again()
                waiting.update(self._begin(late_ones))
                continue
            again = []
            for number, (answer, *others) in waiting.items():
                try:
                    found = self._ray.get(answer)
                except self._ray.exceptions.RayError as error:
                    # Once more is enough, unless the part is what loses its actors.
                    if not self._is_unavailable(error) or num_lost:
                        raise
                    again.append(number)
                else:
                    results[number] = (found, *others) if others else found
            if again:
                num_lost += 1
                self._wait_until_reachable({calls[number].actor for number in again})
            waiting = self._begin({number: calls[number] for number in again})
        return [results[number] for number in range(len(calls))]

    def _wait_until_reachable(self, numbers: set[int]) -> None:
        """Waits for actors that may be on a node whose end Ray has yet to notice.

        Until it has, calls are refused at once, which uses up their retries.
        """
        give_up = time.monotonic() + self._start_seconds
        for number in numbers:
            while True:
                try:
                    self._ray.get(self._actors[number].describe.remote())
                    break
                except self._ray.exceptions.ActorUnavailableError:
                    if time.monotonic() > give_up:
                        raise
                time.sleep(_PAUSE_SECONDS)

    def _is_unavailable(self, error: Exception) -> bool:
        kind = self._ray.exceptions.ActorUnavailableError
        return isinstance(error, kind) or isinstance(
            getattr(error, "cause", None), kind
        )

    def _start_anew(self, numbers: set[int], num_late: int) -> None:
        """Puts new actors in the place of some, whose calls end."""
        for number in numbers:
            message = (
                f"Actor {number} of {len(self)} did not finish its part within "
                f"{self._part_seconds:g} seconds"
            )
            if num_late > self._max_retries:
                raise WorkerError(
                    f"{message}, {num_late} times. Raise part_seconds if parts rightly "
                    "take that long, or train fewer clients in a round."
                )
            logging.warning("%s. It is started anew.", message)
            self._ray.kill(self._actors[number], no_restart=True)
            self._actors[number] = self._start(self.places[number])
        started = [self._actors[number].describe.remote() for number in numbers]
        # What takes longer counts as a part's.
        self._ray.wait(started, num_returns=len(started), timeout=self._start_seconds)

    def _guarded(self, function: Callable[[], Any]) -> Any:
        """Calls a function, and turns Ray's errors into ours."""
        errors = self._ray.exceptions
        try:
            return function()
        except errors.RayTaskError as error:
            # What the actor raised, as if it had been raised here.
            cause = error.cause
            if isinstance(cause, Exception) and not isinstance(cause, errors.RayError):
                raise cause from error
            raise WorkerError(str(error)) from error
        except (errors.OutOfMemoryError, errors.RayActorError) as error:
            raise WorkerError(
                f"An actor was lost {self._max_retries + 1} times with the same part "
                f"of the clients: {_first_lines(error)} If it ran out of memory, lower "
                "max_concurrent_clients or the cohort, or use more nodes. A run with "
                "output_dir continues from its checkpoint when it is started again."
            ) from error
        except errors.RayError as error:
            raise WorkerError(
                f"Ray lost a part of the computation: {_first_lines(error)} A run with "
                "output_dir continues from its checkpoint when it is started again."
            ) from error

    def _check_is_open(self) -> None:
        """Raises if the actors are gone for good.

        Ray would start another instance by itself where there is none.
        """
        if self._is_closed:
            raise WorkerError(
                "This context is closed, and its actors on Ray have ended. Set another "
                "one by set_ray_execution_context()."
            )
        if cluster.session(self._ray) != self._session:
            raise WorkerError(
                "Ray ended, by ray.shutdown() for instance, and the actors of this "
                "context with it. Set another one by set_ray_execution_context(). A "
                "run with output_dir continues from its checkpoint."
            )

    def close(self) -> None:
        """Ends the actors, if they have not ended."""
        is_open = not self._is_closed
        self._is_closed = True
        _open.discard(self)
        if not is_open or cluster.session(self._ray) != self._session:
            return
        for actor in self._actors:
            self._ray.kill(actor, no_restart=True)


def _forget(reference: weakref.ref[Actors], key: str) -> None:
    actors = reference()
    if actors is not None:
        # Objects end in the middle of any call, one of Ray's too, which must not be
        # entered twice. Without room for a thread, what comes later takes its place.
        with contextlib.suppress(RuntimeError):
            _thread.start_new_thread(actors.forget, (key,))


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:4])
