"""The forms in which arguments and results travel between processes."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_drift import compat
from tff_drift.execution import containers
from tff_drift.execution.batches_on_demand import BatchesOnDemand

# What Ray raises of an object that it cannot send.
UNSENDABLE = (AttributeError, TypeError, pickle.PicklingError, tf.errors.OpError)


def why_unsendable(error: Exception) -> str:
    """Returns on one line why an object cannot be sent, of one of `UNSENDABLE`."""
    # Around pickle's error Ray puts a report of several lines.
    lines = str(error.__cause__ or error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _struct(elements: list[tuple[Any, Any]]) -> compat.structure.Struct:
    return compat.structure.Struct(elements)


def _reduce(struct: compat.structure.Struct) -> Any:
    return _struct, (list(compat.structure.iter_elements(struct)),)


# Left to itself, pickle does not find its way back to one.
copyreg.pickle(compat.structure.Struct, _reduce)


@dataclasses.dataclass(frozen=True)
class SentDataset:
    """A `tf.data.Dataset`, as the message that TFF makes of it."""

    message: Any


@dataclasses.dataclass(frozen=True)
class Sent:
    """Something that an actor fetches once and keeps.

    Attributes:
      key: What it is known by.
      reference: A list of one reference: on its own, Ray would fetch it at every call.
    """

    key: str
    reference: list[Any]


class Kept:
    """An actor's cache of what it made of what it was sent, the last used ones."""

    def __init__(
        self, fetch: Callable[[Any], Any], make: Callable[[Any], Any], most: int
    ) -> None:
        """Keeps nothing yet.

        Args:
          fetch: Returns the object of a reference.
          make: Makes of such an object what is kept.
          most: How many to keep.
        """
        self._fetch = fetch
        self._make = make
        self._most = most
        self._kept: collections.OrderedDict[str, Any] = collections.OrderedDict()

    def find(self, sent: Sent) -> Any:
        """Returns what was made of something that was sent; makes it if it is new."""
        if sent.key not in self._kept:
            self._kept[sent.key] = self._make(self._fetch(sent.reference[0]))
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(sent.key)
        return self._kept[sent.key]

    def forget(self, key: str) -> None:
        """Keeps what was sent under a key no longer."""
        self._kept.pop(key, None)


@dataclasses.dataclass(frozen=True)
class SentRound:
    """A client's batches of a round, by name: they are made where it is trained.

    Attributes:
      source: The clients' data, as it was sent.
      client_id: The client.
      round_number: The round.
      data: In this process, the data itself, which actors keep as long as it is there.
    """

    source: Sent
    client_id: str
    round_number: int
    data: Any = None

    def __reduce__(self) -> Any:
        return SentRound, (self.source, self.client_id, self.round_number)


@dataclasses.dataclass(frozen=True)
class SentState:
    """A client's state, by the name of the client; see `PartOfStates`.

    Attributes:
      client_id: The client.
      states: In this process, the `StatesOfRound` that it is one of.
    """

    client_id: str
    states: Any = None

    def __reduce__(self) -> Any:
        return SentState, (self.client_id,)


@dataclasses.dataclass(frozen=True)
class PartOfStates:
    """The place at which an actor finds the states that `SentState`s name.

    Attributes:
      store: A `shards.Store`.
      num_shards: How many shards it has.
      versions: Of the shards at this actor the versions to take states from.
      returned: The shards whose clients' new states to return, in this order.
    """

    store: Sent
    num_shards: int
    versions: dict[int, int]
    returned: list[int]


@dataclasses.dataclass(frozen=True)
class Part:
    """An actor's part of an argument.

    Attributes:
      columns: The lists of its clients' values, see `partition.separate`, packed.
      states: Where their states are that `SentState`s name; None if there are none.
    """

    columns: list[list[Any]]
    states: PartOfStates | None = None


def _has_sequences(type_signature: compat.Type) -> bool:
    if isinstance(type_signature, compat.FederatedType):
        return _has_sequences(type_signature.member)
    if isinstance(type_signature, compat.StructType):
        return any(map(_has_sequences, type_signature.children()))
    return isinstance(type_signature, compat.SequenceType)


def _map_sequences(value: Any, type_signature: compat.Type, function: Any) -> Any:
    """Returns a value whose sequences went through a function of them and their type.

    So do the states that are there by name. The structures on the way to them are
    `tff.structure.Struct`s then.
    """
    if isinstance(value, SentState):
        return function(value, type_signature)
    if not _has_sequences(type_signature):
        return value
    if isinstance(type_signature, compat.SequenceType):
        return function(value, type_signature)
    if isinstance(type_signature, compat.FederatedType):
        member = type_signature.member
        if value is None:  # Of clients, see `partition.separate`.
            return None
        if type_signature.all_equal:
            return _map_sequences(value, member, function)
        return [_map_sequences(each, member, function) for each in value]
    return compat.structure.Struct(
        (name, _map_sequences(element, element_type, function))
        for element, (name, element_type) in zip(
            containers.struct_elements(value, type_signature),
            compat.structure.iter_elements(type_signature),
            strict=True,
        )
    )


def pack(
    value: Any,
    type_signature: compat.Type,
    note: Callable[[SentRound | SentState], None] | None = None,
) -> Any:
    """Returns a value in a form that can be sent.

    Args:
      value: A value, with datasets, lists of batches or anything else for sequences.
      type_signature: Its type.
      note: Called with the name of what is there.

    Returns:
      The value with `SentDataset`s for the datasets.

    Raises:
      TypeError: If the value is not of that type.
    """

    def pack_sequence(sequence: Any, type_: compat.SequenceType) -> Any:
        if isinstance(sequence, (SentRound, SentState)) and note is not None:
            note(sequence)
        if isinstance(sequence, BatchesOnDemand):
            return list(sequence)
        if not isinstance(sequence, tf.data.Dataset):
            return sequence
        message, _ = compat.framework.serialize_value(sequence, type_)
        return SentDataset(message)

    return _map_sequences(value, type_signature, pack_sequence)


def unpack(
    value: Any,
    type_signature: compat.Type,
    find: Callable[[SentRound | SentState], Any] | None = None,
) -> Any:
    """Undoes `pack`.

    Args:
      value: What it returned.
      type_signature: The type.
      find: Returns what a `SentRound` or a `SentState` names.

    Returns:
      The value.
    """

    def unpack_sequence(sequence: Any, type_: compat.SequenceType) -> Any:
        if isinstance(sequence, (SentRound, SentState)) and find is not None:
            return find(sequence)
        if not isinstance(sequence, SentDataset):
            return sequence
        return compat.framework.deserialize_value(sequence.message, type_)[0]

    return _map_sequences(value, type_signature, unpack_sequence)
