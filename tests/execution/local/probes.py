"""Every intrinsic of TFF's language, to be applied to values of any kind.

A probe takes what is `Given`, all of it of one kind, and returns what an intrinsic
makes of it. All probes of a kind are one computation, which is compiled once.
"""

import collections
import functools
from typing import Any, NamedTuple

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

CLIENTS, SERVER = tff.CLIENTS, tff.SERVER
Tensor, Sequence, Ordered = tff.TensorType, tff.SequenceType, collections.OrderedDict
NUMBERS = Sequence(np.int64)

tf_computation = tff.tensorflow.computation


class Kind(NamedTuple):
    """A type, and three values of it."""

    type: Any
    values: list


class Point(NamedTuple):
    y: Any
    x: Any


@attrs.define(eq=False)
class Pair:
    second: Any
    first: Any


def _arrays(dtype, *values):
    return [np.array(value, dtype) for value in values]


def _each(make):
    return [make(k) for k in (1, 2, 3)]


_BFLOAT16 = tf.bfloat16.as_numpy_dtype


def _together(**kinds):
    """Returns the kind of structures of a value of each kind, by name."""
    values = [
        Ordered((name, kind.values[k]) for name, kind in kinds.items())
        for k in range(3)
    ]
    return Kind(Ordered((name, kind.type) for name, kind in kinds.items()), values)


_INT = Kind(np.int32, [1, -2, 3])
_STRING = Kind(np.str_, ["a", "", b"\x00\xff"])
_PAIR = Kind((np.int32, np.float32), _each(lambda k: (k, k / 2)))
_ONE_NAME = Kind(Ordered(a=np.int32), _each(lambda k: Ordered(a=k)))
_ONE_IN_ONE = Kind([[np.int32]], _each(lambda k: [[k]]))
_ONE_TUPLE = Kind([np.int32], _each(lambda k: [k]))
_FLOATS = _together(
    vector=Kind(Tensor(np.float32, [2]), _arrays(np.float32, [1, 2], [3, 4], [5, 6])),
    half=Kind(np.float16, [0.5, 2.0, -3.25]),
    no_rows=Kind(Tensor(np.float64, [0, 2]), [np.zeros([0, 2])] * 3),
)
_NUMBERS = _together(
    byte=Kind(np.uint8, [1, 2, 200]),
    bfloat16=Kind(_BFLOAT16, _arrays(_BFLOAT16, 0.5, 2.0, -3.0)),
    a_long=Kind(np.int64, [2**40, 2, 3]),
)
_CONTAINERS = _together(
    pair=_PAIR,
    named_tuple=Kind(Point(np.int32, np.float32), _each(lambda k: Point(k, k / 2))),
    attrs=Kind(Pair(np.int32, np.float32), _each(lambda k: Pair(k, k / 2))),
    a_list=Kind([np.int32, np.int32], _each(lambda k: [k, -k])),
    one_name=_ONE_NAME,
    one_in_one=_ONE_IN_ONE,
)
_NO_NUMBERS = _together(
    z=_STRING,
    words=Kind(
        Tensor(np.str_, [2]), _arrays(object, ["a", "bb"], ["", "c"], ["x", "y"])
    ),
    a_bool=Kind(np.bool_, [True, False, True]),
)
_RAGGED = _together(
    vector=Kind(Tensor(np.float32, [None]), _arrays(np.float32, [1, 2], [], [5])),
    words=Kind(
        Tensor(np.str_, [None]), [np.array(v, object) for v in (["a"], ["b", "c"], [])]
    ),
    empty=Kind([], [[], [], []]),
    number=_INT,
)
_SEQUENCES = _together(
    ints=Kind(Sequence(np.int32), [[1, 2], [], [4, 5, 6]]),
    dataset=Kind(NUMBERS, [tf.data.Dataset.range(k) for k in (2, 0, 3)]),
    strings=Kind(Sequence(np.str_), [["a"], ["b", ""], ["c"]]),
    nested=Kind(
        Sequence(Ordered(z=(np.int32, [np.str_]), a=np.float32)),
        _each(lambda k: [Ordered(z=(j, ["s" * j]), a=0.5) for j in range(k)]),
    ),
    tensor=_INT,
)
_SUMMED = {
    "int": _INT,
    "one_tuple": _ONE_TUPLE,
    "floats": _FLOATS,
    "numbers": _NUMBERS,
    "containers": _CONTAINERS,
}
KINDS = {
    **_SUMMED,
    "complex": Kind(np.complex64, [1 + 2j, 0.5j, 3 + 0j]),
    "string": _STRING,
    "no_numbers": _NO_NUMBERS,
    "ragged": _RAGGED,
    "empty": Kind([], [[], [], []]),
    "sequence": Kind(Sequence(np.int32), [[1, 2], [], [4, 5, 6]]),
    "sequences": _SEQUENCES,
    "one_tuple_of_sequence": Kind([Sequence(np.int32)], _each(lambda k: [[k] * k])),
}


def _leaves(value):
    if isinstance(value, Pair):
        value = [value.second, value.first]
    if isinstance(value, collections.abc.Mapping):
        value = [value[name] for name in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def _digest_of_leaf(leaf):
    if isinstance(leaf, tf.data.Dataset):
        return leaf.reduce(np.int64(1), lambda total, each: 3 * total + digest(each))
    size = tf.size(leaf, tf.int64)
    if leaf.dtype == tf.string:
        leaf = tf.strings.to_hash_bucket_fast(leaf, 1000)
    if leaf.dtype.is_complex:
        leaf = tf.math.real(leaf) + 2 * tf.math.imag(leaf)
    whole = tf.cast(8 * tf.cast(leaf, tf.float64), tf.int64)
    return tf.reduce_sum(whole) + 11 * size


def digest(value):
    """Returns a number that depends on all of a value."""
    parts = map(_digest_of_leaf, _leaves(value))
    return functools.reduce(lambda total, part: 5 * total + part, parts, np.int64(7))


def _copy(value):
    if isinstance(value, tf.data.Dataset):
        return value
    if isinstance(value, Pair):
        return Pair(second=_copy(value.second), first=_copy(value.first))
    if isinstance(value, Point):
        return Point(*map(_copy, value))
    if isinstance(value, collections.abc.Mapping):
        return type(value)((name, _copy(each)) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copy, value))
    return tf.identity(value)


zero = tf_computation(lambda: tf.constant(0, tf.int64))
plus = tf_computation(lambda a, b: a + b, np.int64, np.int64)
same = tf_computation(lambda a: a, np.int64)


class Given(NamedTuple):
    """What a probe may use, all of one kind; `data` gives every client numbers."""

    type: Any
    at_clients: Any
    at_server: Any
    all_equal: Any
    unplaced: Any
    data: Any

    @property
    def copy(self):
        return tf_computation(_copy, self.type)

    @property
    def digest(self):
        return tf_computation(digest, self.type)

    @property
    def beside_data(self):
        """Of a value and numbers, which make clients fit for stacks."""

        def both(value, data):
            return data.reduce(digest(value), lambda a, b: 3 * a + b)

        return tf_computation(both, self.type, NUMBERS)


def mapped(given):
    return (
        tff.federated_map(given.copy, given.at_clients),
        tff.federated_map(given.copy, given.at_server),
        tff.federated_map(given.copy, given.all_equal),
        tff.federated_map(given.digest, given.all_equal),
    )


def mapped_beside_data(given):
    broadcast = tff.federated_broadcast(given.at_server)
    return [
        tff.federated_map(given.beside_data, (value, given.data))
        for value in (given.at_clients, given.all_equal, broadcast)
    ]


def unchanged(given):
    return given.at_clients, given.all_equal, given.at_server, given.unplaced


def placed(given):
    return (
        tff.federated_broadcast(given.at_server),
        tff.federated_value(given.unplaced, CLIENTS),
        tff.federated_value(given.unplaced, SERVER),
        tff.federated_map(
            given.beside_data,
            (tff.federated_value(given.unplaced, CLIENTS), given.data),
        ),
    )


def zipped(given):
    return (
        tff.federated_zip((given.at_clients, given.at_clients)),
        tff.federated_zip(Ordered(b=given.at_clients, a=[given.data])),
        tff.federated_zip([given.at_clients]),
        tff.federated_zip((given.at_clients, given.all_equal)),
        tff.federated_zip((given.all_equal, given.all_equal)),
        tff.federated_zip([given.at_server, given.at_server]),
        tff.federated_zip(Ordered(b=given.at_server)),
    )


def tuples(given):
    @tff.federated_computation(given.type, np.int64)
    def swap(a, b):
        return Ordered(z=b, y=a, c=(a,), b=[])

    swapped = swap(given.unplaced, given.digest(given.unplaced))
    return swapped, swapped.c[0], swapped[0], swap(swapped.y, swapped.z)


def aggregated(given):
    add = tf_computation(lambda a, value: 3 * a + digest(value), np.int64, given.type)
    last = tf_computation(lambda a, value: _copy(value), given.type, given.type)
    return (
        tff.federated_aggregate(given.at_clients, zero(), add, plus, same),
        tff.federated_aggregate(
            given.at_clients, given.unplaced, last, last, given.copy
        ),
        tff.federated_sum(tff.federated_map(given.digest, given.at_clients)),
    )


def selected(given):
    select = tf_computation(lambda v, k: (digest(v), k), given.type, np.int32)
    keys = tff.federated_map(
        tf_computation(lambda _: tf.constant([0, 2]), given.type), given.at_clients
    )
    limit = tff.federated_value(3, SERVER)
    selection = tff.federated_select(keys, limit, given.at_server, select)
    digest_all = tf_computation(digest, selection.type_signature.member)
    return tff.federated_map(digest_all, selection)


def summed(given):
    return (
        tff.federated_sum(given.at_clients),
        tff.federated_sum(given.all_equal),
        tff.federated_sum(tff.federated_map(given.copy, given.at_clients)),
    )


def averaged(given):
    weight = tf_computation(
        lambda value: tf.cast(digest(value) % 3 + 1, tf.float32), given.type
    )
    return (
        tff.federated_mean(given.at_clients),
        tff.federated_mean(
            given.at_clients, tff.federated_map(weight, given.at_clients)
        ),
    )


def extremes(given):
    return tff.federated_min(given.at_clients), tff.federated_max(given.at_clients)


OF_ALL = (
    mapped,
    mapped_beside_data,
    unchanged,
    placed,
    zipped,
    tuples,
    aggregated,
    selected,
)


def of(name):
    """Returns the probes that TFF has for a kind."""
    probes = [*OF_ALL]
    if name in (*_SUMMED, "complex"):
        probes.append(summed)
    if name in ("floats", "complex"):
        probes.append(averaged)
    if name in ("int", "one_tuple", "floats", "containers"):
        probes.append(extremes)
    return probes


def computation(kind, probes, num_clients=3):
    """Returns a computation of probes, and its arguments."""
    value_type = tff.to_type(kind.type)

    @tff.federated_computation(
        tff.FederatedType(value_type, CLIENTS),
        tff.FederatedType(value_type, SERVER),
        tff.FederatedType(value_type, CLIENTS, all_equal=True),
        value_type,
        tff.FederatedType(NUMBERS, CLIENTS),
    )
    def all_probes(at_clients, at_server, all_equal, unplaced, data):
        given = Given(value_type, at_clients, at_server, all_equal, unplaced, data)
        return Ordered((probe.__name__, probe(given)) for probe in probes)

    first, _, last = kind.values
    data = [[1, 2, 3], [4, 5], [6]][:num_clients]
    return all_probes, (kind.values[:num_clients], first, first, last, data)
