"""Loading and caching of clients' examples."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from tff_drift import checks, compat

# A structure (tuple, dictionary, ...) of arrays whose first dimensions are
# equal: row i of every array belongs to example i.
Examples = Any

_OPTIONS = ("max_examples", "cache_bytes", "transform")

# `examples, generator -> examples`: see `ClientDatasets`.
Transform = Callable[[Examples, "np.random.Generator | None"], Examples]


def _leaves(examples: Examples) -> list[np.ndarray]:
    return tf.nest.flatten(examples)


def num_rows(examples: Examples) -> int:
    """Returns the number of examples."""
    return len(_leaves(examples)[0])


def take(examples: Examples, rows: Any) -> Examples:
    """Returns the examples at `rows`, an index array or a slice; all if it is None."""
    if rows is None:
        return examples
    return tf.nest.map_structure(lambda leaf: leaf[rows], examples)


def _num_bytes(examples: Examples) -> int:
    """Returns the RAM that `examples` hold, strings included."""
    total = 0
    for leaf in _leaves(examples):
        total += leaf.nbytes
        if leaf.dtype == object:
            total += sum(len(item) for item in leaf.flat)
    return total


def batch_spec(examples: Examples) -> Any:
    """Returns the `tf.TensorSpec`s of a batch of such examples."""
    return tf.nest.map_structure(
        lambda leaf: tf.TensorSpec((None, *leaf.shape[1:]), tf.as_dtype(leaf.dtype)),
        examples,
    )


def with_tuples(examples: Examples) -> Examples:
    """Returns a structure with tuples for its lists.

    TensorFlow takes a list of arrays for one array of them, and not for a structure.
    """
    return tree.traverse(
        lambda each: tuple(each) if isinstance(each, list) else None,
        examples,
        top_down=False,
    )


def checked_ids(client_ids: Iterable[str]) -> tuple[str, ...]:
    """Returns the ids of clients.

    Args:
      client_ids: The ids.

    Raises:
      TypeError: If they are not strings.
      ValueError: If there is none, or one appears twice.
    """
    if isinstance(client_ids, (str, bytes)) or not isinstance(client_ids, Iterable):
        raise TypeError(
            "client_ids must be a sequence of strings, found "
            f"{checks.shown(client_ids)}."
        )
    checked = tuple(client_ids)
    if not checked:
        raise ValueError("client_ids is empty. Give at least one client id.")
    for client_id in checked:
        if not isinstance(client_id, str):
            raise TypeError(
                f"client_ids must be strings, found {checks.shown(client_id)}. Give "
                "str() of it."
            )
        if not client_id.isascii():
            _check_is_text(client_id)
    if len(set(checked)) < len(checked):
        twice = collections.Counter(checked).most_common(1)[0][0]
        raise ValueError(
            f"client_ids holds {twice!r} more than once. Give each id once."
        )
    return checked


def _check_is_text(client_id: str) -> None:
    try:
        client_id.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"client_ids holds {client_id!r}, which is not valid text: it has half a "
            "character. Read the ids in their own encoding."
        ) from error


def checked(client_id: str, examples: Examples) -> Examples:
    """Returns a client's examples as arrays.

    Args:
      client_id: The client's id, for messages.
      examples: The structure of arrays or of what NumPy makes arrays of.

    Returns:
      The structure of arrays, with tuples for lists.

    Raises:
      ValueError: If there is no array or no example, if the arrays differ in their
        first dimension, or if TFF has no type for an array.
    """
    examples = with_tuples(examples)
    _check_not_masked(client_id, examples)
    try:
        arrays = tf.nest.map_structure(np.asarray, examples)
    except ValueError as error:
        raise ValueError(
            f"Client {client_id!r} has rows of different shapes, which make no array "
            f"({error}). Give all rows of an array one shape."
        ) from error
    leaves = _leaves(arrays)
    if not leaves:
        raise ValueError(
            f"Client {client_id!r} has examples without any array: {examples!r}. "
            "Give a structure of arrays, such as (x, y)."
        )
    shapes = [leaf.shape for leaf in leaves]
    if any(not shape for shape in shapes):
        raise ValueError(
            f"Client {client_id!r} has an array without a first dimension for the "
            f"examples; the shapes are {shapes}. Stack the examples of each array."
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            f"Client {client_id!r} has arrays with different first dimensions: the "
            f"shapes are {shapes}. Give every array one row per example."
        )
    if shapes[0][0] == 0:
        raise ValueError(
            f"Client {client_id!r} has no examples. Leave it out of `client_ids`."
        )
    for leaf in leaves:
        if not _has_type(leaf):
            raise ValueError(
                f"Client {client_id!r} has an array of {leaf.dtype}, such as "
                f"{leaf.ravel()[:1].tolist()}, for which TensorFlow Federated has no "
                "type. Give numbers or strings."
            )
    return arrays


def _check_not_masked(client_id: str, examples: Examples) -> None:
    """Raises if a value is masked: an array of its own would hold what is below it."""
    for leaf in tf.nest.flatten(examples):
        if isinstance(leaf, np.ma.MaskedArray) and np.ma.getmaskarray(leaf).any():
            hidden = np.ma.getmaskarray(leaf).reshape(len(leaf), -1).any(axis=1)
            raise ValueError(
                f"Client {client_id!r}, example {int(np.argmax(hidden))}, has a masked "
                "value. Fill masked values, or leave such examples out."
            )


def _has_type(array: np.ndarray) -> bool:
    if array.dtype == object:
        return all(isinstance(item, (str, bytes)) for item in array.flat)
    if array.dtype.kind == "U":
        return True
    return _is_of_tff(array.dtype)


@functools.lru_cache
def _is_of_tff(dtype: np.dtype[Any]) -> bool:
    try:
        compat.tensorflow_to_type(tf.TensorSpec([None], dtype))
    except (NotImplementedError, TypeError):  # Of floats of eight bits, of dates.
        return False
    return True


def check_known(
    client_id: str, known: Collection[str], client_ids: Sequence[str]
) -> None:
    """Raises unless a client is one of some.

    Args:
      client_id: The client's id.
      known: The ids that there are.
      client_ids: The same, in order.

    Raises:
      TypeError: If the id is not a string.
      ValueError: If there is no such client.
    """
    if not isinstance(client_id, str):
        raise TypeError(f"client_id must be a string, found {checks.shown(client_id)}.")
    if client_id not in known:
        raise ValueError(
            f"Unknown client_id {client_id!r}. There are {len(client_ids)} clients, "
            f"{client_ids[0]!r} to {client_ids[-1]!r}: see client_ids."
        )


def checked_clients(clients: Mapping[str, Examples]) -> dict[str, Examples]:
    """Returns the examples of clients as arrays.

    Args:
      clients: Each client's examples by its id.

    Raises:
      TypeError: If `clients` is not a mapping.
      ValueError: If it is empty; and as in `checked`.
    """
    if not isinstance(clients, Mapping):
        raise TypeError(
            "clients must have each client's arrays by its id, such as "
            f'{{"ann": (x, y)}}, found {type(clients).__name__}.'
        )
    if not clients:
        raise ValueError("clients is empty. Give at least one client's arrays.")
    return {each: checked(each, examples) for each, examples in clients.items()}


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
            f"transform returned {checks.shown(found)} of client {client_id!r} in "
            f"training, and {checks.shown(expected)} outside. Let it return the same "
            "structure and dtypes in both, as array.astype(dtype) makes them."
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
            checks.check_callable(
                "transform", transform, "a function of examples and a generator"
            )
        self.load_client = load_client
        # Of NumPy's integers, which JSON does not know.
        self.max_examples = None if max_examples is None else int(max_examples)
        self.cache_bytes = int(cache_bytes)
        self.transform = transform
        self.used_bytes = 0
        self._examples: collections.OrderedDict[str, Examples] = (
            collections.OrderedDict()
        )
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
        """Returns a store of the same clients with a cache of its own.

        Args:
          **options: What changes of `max_examples`, `cache_bytes` and `transform`.
        """
        kept = {name: getattr(self, name) for name in _OPTIONS}
        return ExampleStore(self.load_client, **{**kept, **options})

    @property
    def holds_examples(self) -> bool:
        """Whether the examples of all clients are in RAM, not to be loaded."""
        return isinstance(self.load_client, InRam)

    def only(self, client_ids: Sequence[str]) -> ExampleStore:
        """Returns a store of the examples of some clients, which are in RAM."""
        assert isinstance(self.load_client, InRam)
        clients = {each: self.load_client.clients[each] for each in client_ids}
        other = ExampleStore(
            InRam(clients), self.max_examples, self.cache_bytes, self.transform
        )
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
        known = self.known_spec
        if known is not None:
            return known
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
        result = _checked_result(
            "transform", client_id, self.transform(examples, generator)
        )
        if num_rows(result) != num_rows(examples):
            raise ValueError(
                f"transform made {num_rows(result)} examples of the "
                f"{num_rows(examples)} of client {client_id!r}. Let it keep their "
                "number."
            )
        if generator is not None and self._transformed_spec is not None:
            _check_same_dtypes(client_id, batch_spec(result), self._transformed_spec)
        return result

    def _num_bytes(self, examples: Examples) -> int:
        """Returns the RAM that they take because they are kept here."""
        held = self.holds_examples and self.max_examples is None
        return 0 if held else _num_bytes(examples)

    def _load(self, client_id: str) -> Examples:
        examples = _checked_result(
            "load_client", client_id, self.load_client(client_id)
        )
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
                f"Client {client_id!r} has examples of another type than the clients "
                f"before it: {spec}, expected {self._spec}. Give all clients the same "
                "structure, dtypes and shapes."
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
