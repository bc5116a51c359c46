"""Loading and caching of clients' examples."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from tff_drift import aligned_memory, checks
from tff_drift.simulation.data.examples import (
    Examples,
    Transform,
    batch_spec,
    checked,
    num_bytes,
    num_rows,
    take,
)
from tff_drift.tensors import eagerly

# The options of a store, the others being those of `Batching`.
STORE_OPTIONS = ("max_examples", "cache_bytes", "transform")


@contextlib.contextmanager
def _naming_client(client_id: str, done: str) -> Iterator[None]:
    """Notes of which client examples are, where a user's function fails on them."""
    try:
        yield
    except Exception as error:
        client = checks.shown(client_id)
        if client not in str(error):
            error.add_note(f"While the examples of client {client} were {done}.")
        raise


@dataclasses.dataclass(frozen=True)
class InRam:
    """Loads examples that are in RAM as long as it is; see `checked_clients`.

    Attributes:
      clients: Each client's examples by its id.
    """

    clients: Mapping[str, Examples]

    def __call__(self, client_id: str) -> Examples:
        """Returns a client's examples."""
        return self.clients[client_id]


@dataclasses.dataclass(frozen=True)
class OfSource:
    """Loads examples of a source that is known as a whole, such as a user's files.

    A run that is resumed is compared by it, see `ClientDatasets.digest`.

    Attributes:
      load: Returns a client's examples, given its id.
      source_sha256: A hash of the source's contents.
    """

    load: Callable[[str], Examples]
    source_sha256: str

    def __call__(self, client_id: str) -> Examples:
        """Returns a client's examples."""
        return self.load(client_id)


def _checked_result(function: str, client_id: str, examples: Examples) -> Examples:
    """Returns what a user's function made, as arrays; an error names the function."""
    try:
        return checked(client_id, examples)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{function} returned no examples. {error}") from error


def _check_same_dtypes(client_id: str, spec: Any, outside: Any) -> None:
    """Raises if a transform returns other dtypes in training, which would be cast.

    Shapes may differ: images may be cropped in training alone.
    """
    found, expected = (
        tree.map_structure(lambda leaf: leaf.dtype, each) for each in (spec, outside)
    )
    if found != expected:
        raise ValueError(
            f"transform returned {checks.shown(found)} of client "
            f"{checks.shown(client_id)} in training, and {checks.shown(expected)} "
            "outside. Let it return the same in both: array.astype(dtype) helps."
        )


class ExampleStore:
    """Loads clients' examples and keeps those used last within a limit of RAM.

    Attributes:
      load_client: Returns a client's examples, given its id.
      max_examples: The number of examples kept of each client, `None` for all.
      cache_bytes: The RAM that cached examples may hold, in bytes.
      transform: Turns examples into those that models take, at each use; `None` if
        models take them as they are.
      used_bytes: The RAM that cached examples hold now, in bytes.
    """

    def __init__(
        self,
        load_client: Callable[[str], Examples],
        max_examples: int | None,
        cache_bytes: int,
        transform: Transform | None,
    ) -> None:
        checks.check_callable("load_client", load_client, "a function of a client id")
        if max_examples is not None:
            checks.check_integer("max_examples", max_examples)
        checks.check_integer("cache_bytes", cache_bytes, at_least=0)
        if transform is not None:
            what = "a function of examples and a generator"
            checks.check_callable("transform", transform, what)
        self.load_client = load_client
        # Of NumPy's integers, which JSON does not know.
        self.max_examples = None if max_examples is None else int(max_examples)
        self.cache_bytes = int(cache_bytes)
        self.transform = transform
        self.used_bytes = 0
        self._examples = collections.OrderedDict[str, Examples]()
        self._num_examples: dict[str, int] = {}
        self._spec: Any = None
        self._transformed_spec: Any = None
        self._make_locks()

    def _make_locks(self) -> None:
        # Clients are loaded one at a time, whichever thread asks, and who needs one
        # that is kept does not wait for that.
        self._loading = threading.RLock()
        self._lock = threading.Lock()

    def replace(self, **options: Any) -> ExampleStore:
        """Returns a store with other options and a cache of its own.

        Args:
          **options: Those of the arguments of `ExampleStore` that change.
        """
        kept = {name: getattr(self, name) for name in ("load_client", *STORE_OPTIONS)}
        return ExampleStore(**{**kept, **options})

    @property
    def holds_examples(self) -> bool:
        """Whether the examples of all clients are in RAM, not to be loaded."""
        return isinstance(self.load_client, InRam)

    @property
    def source(self) -> str | None:
        """The hash of what the examples are loaded from, if it is known."""
        load = self.load_client
        return load.source_sha256 if isinstance(load, OfSource) else None

    def only(self, client_ids: Sequence[str]) -> ExampleStore:
        """Returns a store of the examples of some clients, which are in RAM."""
        assert isinstance(self.load_client, InRam)
        clients = {each: self.load_client.clients[each] for each in client_ids}
        other = self.replace(load_client=InRam(clients))
        # So that the clients of all parts are compared with the same one.
        other._spec = self._spec
        return other

    def __getstate__(self) -> dict[str, Any]:
        # Another process loads, and keeps, what it needs.
        state = self.__dict__.copy()
        del state["_loading"], state["_lock"]
        return {**state, "_examples": collections.OrderedDict(), "used_bytes": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_locks()

    def spec(self, any_client_id: str) -> Any:
        """Returns the `tf.TensorSpec`s of a batch; reads a client if necessary."""
        # TFF calls model functions, which ask for it, in graphs.
        return self.known_spec or eagerly(lambda: self._read_spec(any_client_id))

    def _read_spec(self, any_client_id: str) -> Any:
        with self._loading:
            examples = self.examples(any_client_id)
            if self.transform is not None:
                first = take(examples, slice(0, 1))
                transformed = self.transformed(any_client_id, first, None)
                self._transformed_spec = batch_spec(transformed)
            return self.known_spec

    @property
    def known_spec(self) -> Any:
        """The `tf.TensorSpec`s of the clients' batches; None before one is read."""
        return self._spec if self.transform is None else self._transformed_spec

    @property
    def known_num_examples(self) -> Mapping[str, int]:
        """The numbers of examples of the clients that have been read."""
        return self._num_examples

    def num_examples(self, client_id: str) -> int:
        """Returns a client's number of examples, remembered after the first use."""
        if client_id not in self._num_examples:
            self.examples(client_id)
        return self._num_examples[client_id]

    def examples(self, client_id: str) -> Examples:
        """Returns a client's examples, from the cache where they are in it."""
        found = self._find(client_id)
        if found is None:
            found = eagerly(lambda: self._load_and_keep(client_id))
        return found

    def _load_and_keep(self, client_id: str) -> Examples:
        with self._loading:
            # Another thread may have loaded it meanwhile.
            found = self._find(client_id)
            if found is None:
                found = self._load(client_id)
                self._keep(client_id, found)
            return found

    def load_ahead(self, client_ids: Iterable[str]) -> None:
        """Loads clients that are needed next, as many as half of the cache holds.

        The other half is for those that are needed now.
        """
        left = 0 if self.holds_examples else self.cache_bytes // 2
        for client_id in client_ids:
            if left <= 0:
                break
            left -= self._num_bytes(self.examples(client_id))

    def transformed(
        self,
        client_id: str,
        examples: Examples,
        generator: np.random.Generator | None,
    ) -> Examples:
        """Returns examples of a client as models take them.

        Args:
          client_id: The client.
          examples: Some of its examples.
          generator: The generator of the client's round; `None` outside training.

        Raises:
          ValueError: If `transform` changes their number, or returns other dtypes in
            training than outside.
        """
        if self.transform is None:
            return examples
        # They may be those of the cache, or of the user, which are there for later
        # rounds too.
        given = tf.nest.map_structure(aligned_memory.read_only, examples)
        with _naming_client(client_id, "transformed"):
            returned = self.transform(given, generator)
        result = _checked_result("transform", client_id, returned)
        if num_rows(result) != num_rows(examples):
            found = f"{num_rows(result)} examples of the {num_rows(examples)}"
            raise ValueError(
                f"transform made {found} of client {checks.shown(client_id)}. Let it "
                "keep their number."
            )
        if generator is not None and self._transformed_spec is not None:
            _check_same_dtypes(client_id, batch_spec(result), self._transformed_spec)
        return result

    def _num_bytes(self, examples: Examples) -> int:
        """Returns the RAM that they take because they are kept here."""
        held = self.holds_examples and self.max_examples is None
        return 0 if held else num_bytes(examples)

    def _load(self, client_id: str) -> Examples:
        with _naming_client(client_id, "loaded"):
            returned = self.load_client(client_id)
        examples = _checked_result("load_client", client_id, returned)
        if self.max_examples is not None and num_rows(examples) > self.max_examples:
            # A copy, so that the rest of the client's arrays can be freed.
            examples = tf.nest.map_structure(
                lambda leaf: leaf[: self.max_examples].copy(), examples
            )
        spec = batch_spec(examples)
        if self._spec is None:
            self._spec = spec
        elif spec != self._spec:
            raise ValueError(
                f"Client {checks.shown(client_id)} has examples of another type than "
                f"the clients before it: {checks.shortened(spec)}, expected "
                f"{checks.shortened(self._spec)}. Give all one type."
            )
        return examples

    def _find(self, client_id: str) -> Examples | None:
        """Returns examples that are in the cache, None if they are not."""
        with self._lock:
            if client_id in self._examples:
                self._examples.move_to_end(client_id)
            return self._examples.get(client_id)

    def _keep(self, client_id: str, examples: Examples) -> None:
        size = self._num_bytes(examples)
        with self._lock:
            self._num_examples[client_id] = num_rows(examples)
            if size > self.cache_bytes:
                return
            while self.used_bytes + size > self.cache_bytes:
                _, dropped = self._examples.popitem(last=False)
                self.used_bytes -= self._num_bytes(dropped)
            self._examples[client_id] = examples
            self.used_bytes += size
