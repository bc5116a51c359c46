"""The forms in which arguments and results travel between processes."""

from __future__ import annotations

import copyreg
import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_drift import compat
from tff_drift.execution import containers
from tff_drift.execution.batches_on_demand import BatchesOnDemand, RoundOfClient


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


@dataclasses.dataclass(frozen=True)
class SentRound:
    """A client's batches of a round, by name; see `RoundOfClient`.

    Attributes:
      source: The key of a `Sent` source.
      client_id: The client.
      round_number: The round.
    """

    source: str
    client_id: str
    round_number: int


@dataclasses.dataclass(frozen=True)
class Part:
    """An actor's part of an argument.

    Attributes:
      columns: The lists of its clients' values, see `partition.separate`, packed.
      sources: Where the clients' data comes from that `SentRound`s name.
    """

    columns: list[list[Any]]
    sources: list[Sent]


def _has_sequences(type_signature: compat.Type) -> bool:
    if isinstance(type_signature, compat.FederatedType):
        return _has_sequences(type_signature.member)
    if isinstance(type_signature, compat.StructType):
        return any(map(_has_sequences, type_signature.children()))
    return isinstance(type_signature, compat.SequenceType)


def _map_sequences(value: Any, type_signature: compat.Type, function: Any) -> Any:
    """Returns a value whose sequences went through a function of them and their type.

    The structures on the way to them are `tff.structure.Struct`s then.
    """
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
        )
    )


def pack(
    value: Any,
    type_signature: compat.Type,
    send_round: Callable[[RoundOfClient], SentRound] | None = None,
) -> Any:
    """Returns a value in a form that can be sent.

    Args:
      value: A value, with datasets, lists of batches or anything else for sequences.
      type_signature: Its type.
      send_round: What to send for a `RoundOfClient`.

    Returns:
      The value with `SentDataset`s for the datasets.

    Raises:
      TypeError: If the value is not of that type.
    """

    def pack_sequence(sequence: Any, type_: compat.SequenceType) -> Any:
        if isinstance(sequence, RoundOfClient) and send_round is not None:
            return send_round(sequence)
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
    make_round: Callable[[SentRound], Any] | None = None,
) -> Any:
    """Undoes `pack`.

    Args:
      value: What it returned.
      type_signature: The type.
      make_round: Returns the batches that a `SentRound` names.

    Returns:
      The value.
    """

    def unpack_sequence(sequence: Any, type_: compat.SequenceType) -> Any:
        if isinstance(sequence, SentRound) and make_round is not None:
            return make_round(sequence)
        if not isinstance(sequence, SentDataset):
            return sequence
        return compat.framework.deserialize_value(sequence.message, type_)[0]

    return _map_sequences(value, type_signature, unpack_sequence)
