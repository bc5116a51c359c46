import collections
from typing import NamedTuple

import attrs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import assert_same, call, containers

CLIENTS, SERVER = tff.CLIENTS, tff.SERVER


class Point(NamedTuple):
    x: float
    y: float


@attrs.define(eq=False)
class Pair:
    first: object
    second: object


def cases():
    """Computations of the core language, with arguments."""

    @tff.tensorflow.computation(np.int32, np.float32)
    def containers_out(a, b):
        return collections.OrderedDict(
            z=Point(a, b), a=[a, (b, a)], m=Pair(first=a, second={"k": b})
        )

    yield "containers", containers_out, (3, 2.5)

    @tff.tensorflow.computation
    def constants():
        return tf.constant(1.5), tf.constant([True, False]), tf.constant("text")

    yield "no_argument", constants, ()

    @tff.federated_computation(np.float32, np.int32)
    def swap(a, b):
        return collections.OrderedDict(second=b, first=a)

    yield "lambda", swap, (1.0, 2)

    add = tff.tensorflow.computation(lambda a, b: a + b, (np.int32, np.int32))

    @tff.federated_computation(np.int32)
    def nested_lambda(x):
        @tff.federated_computation(np.int32)
        def thrice(y):
            return add(y, add(y, y))

        return thrice(thrice(x)), 7

    yield "nested_lambda", nested_lambda, (2,)

    @tff.tensorflow.computation(tff.TensorType(np.float32, [None, 2]), np.int64)
    def shapes(x, i):
        return tf.concat([x, x], 0), tf.zeros([0, 3]), x[i], tf.cast(i, tf.int8)

    yield "unknown_shape", shapes, (np.ones([3, 2], np.float32), 1)

    @tff.tensorflow.computation(
        np.uint8, np.float16, np.float64, np.complex64, np.bool_, np.uint64
    )
    def dtypes(a, b, c, d, e, f):
        return [tf.identity(value) for value in (a, b, c, d, e, f)]

    yield "dtypes", dtypes, (1, 2.0, 3.0, 4.0 + 1j, True, 2**63)

    @tff.tensorflow.computation(np.str_, tff.TensorType(np.str_, [2]))
    def strings(a, b):
        return tf.strings.join([a, "é"]), b, tf.constant([b"\x00\xff", b"b\x00"])

    yield "strings", strings, ("a", np.array(["p", "q"], object))

    @tff.tensorflow.computation(np.float32)
    def variables(x):
        v, w = tf.Variable(2.0), tf.Variable([1, 2])
        with tf.control_dependencies([v.assign_add(x), w.assign([3, 4])]):
            return v.read_value(), w.read_value()

    yield "variables", variables, (1.0,)

    @tff.tensorflow.computation(np.str_)
    def tables(key):
        initializer = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        static = tf.lookup.StaticHashTable(initializer, -1)
        mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        dense = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.int64, default_value=-1, empty_key=-2, deleted_key=-3
        )
        insertions = [
            mutable.insert(key, 5),
            dense.insert(tf.constant(4, tf.int64), tf.constant(8, tf.int64)),
        ]
        with tf.control_dependencies(insertions):
            return (
                static.lookup(key),
                mutable.lookup(key),
                mutable.size(),
                dense.lookup(tf.constant(4, tf.int64)),
            )

    yield "tables", tables, ("b",)

    element = collections.OrderedDict(
        b=tff.TensorType(np.float32, [None]), a=(np.int32, np.str_)
    )
    elements = [
        collections.OrderedDict(b=np.ones(n, np.float32), a=(n, "s" * n))
        for n in (2, 2, 3)
    ]

    @tff.tensorflow.computation(tff.SequenceType(element))
    def dataset_in_out(ds):
        total = ds.reduce(0.0, lambda s, e: s + tf.reduce_sum(e["b"]))
        return total, ds.map(lambda e: (e["a"][1], e["b"]))

    yield "sequence_list", dataset_in_out, (elements,)
    for name, items in (("sequence_empty", []), ("sequence_one", elements[:1])):
        yield name, dataset_in_out, (items,)

    @tff.tensorflow.computation(np.int64)
    def dataset_out(n):
        return tf.data.Dataset.range(n).map(
            lambda i: collections.OrderedDict(y=i, x=tf.cast(i, tf.float32))
        )

    yield "sequence_out", dataset_out, (3,)

    start = tff.tensorflow.computation(lambda: (0, 1))
    first = tff.tensorflow.computation(lambda x, y: x, np.int32, np.int32)
    square = tff.tensorflow.computation(lambda x: (x * x, x), np.int32)
    total = tff.tensorflow.computation(
        lambda s, e: (s[0] + e, s[1] * e), (np.int32, np.int32), np.int32
    )

    @tff.federated_computation(tff.SequenceType(np.int32))
    def sequence_intrinsics(xs):
        squares = tff.sequence_map(square, xs)
        return tff.sequence_reduce(tff.sequence_map(first, squares), start(), total)

    yield (
        "sequence_intrinsics",
        sequence_intrinsics,
        (tf.data.Dataset.range(1, 5).map(lambda i: tf.cast(i, tf.int32)),),
    )

    @tff.federated_computation(
        tff.FederatedType(np.int32, CLIENTS),
        tff.FederatedType(np.float32, SERVER),
        tff.FederatedType((np.float32, np.int32), CLIENTS),
    )
    def federated(x, y, z):
        double = tff.tensorflow.computation(lambda v: v * 2, np.int32)
        scale = tff.tensorflow.computation(
            lambda a, b: a * b[0], np.float32, (np.float32, np.int32)
        )
        broadcast = tff.federated_broadcast(y)
        scaled = tff.federated_map(scale, (broadcast, z))
        return collections.OrderedDict(
            doubled=tff.federated_map(double, x),
            equal=tff.federated_map(
                tff.tensorflow.computation(lambda v: v + 1, np.float32), broadcast
            ),
            sum=tff.federated_sum(z),
            mean=tff.federated_mean(scaled),
            weighted=tff.federated_mean(scaled, scaled),
            least=tff.federated_min(x),
            most=tff.federated_max(scaled),
            at_server=tff.federated_eval(constants, SERVER),
            at_clients=tff.federated_eval(constants, CLIENTS),
            placed=tff.federated_value(3, SERVER),
            placed_clients=tff.federated_value(3, CLIENTS),
            sum_of_equal=tff.federated_sum(tff.federated_value(2, CLIENTS)),
            zipped=tff.federated_zip((x, z)),
        )

    yield "federated", federated, ([1, 2, 3], 0.5, [(1.0, 1), (2.5, 2), (0.1, 3)])

    @tff.federated_computation(
        tff.FederatedType(np.float32, CLIENTS), tff.FederatedType(np.float32, CLIENTS)
    )
    def empty(x, y):
        return tff.federated_sum(x), tff.federated_mean(x, y), tff.federated_mean(x)

    yield "no_clients", empty, ([], [])
    yield "two_phases", two_phases(), ([1.0, 2.0, 6.0],)
    yield "collect", collect(), ([1.0, 2.0, 6.0],)


def two_phases():
    """The clients' mean goes back to the clients, whose own values are kept."""
    draw = tff.tensorflow.computation(lambda x: x * x, np.float32)
    distance = tff.tensorflow.computation(
        lambda x, m: abs(x - m), np.float32, np.float32
    )

    @tff.federated_computation(tff.FederatedType(np.float32, CLIENTS))
    def computation(x):
        squares = tff.federated_map(draw, x)
        mean = tff.federated_mean(squares)
        distances = tff.federated_map(
            distance, (squares, tff.federated_broadcast(mean))
        )
        return tff.federated_max(distances), squares, mean, distances

    return computation


def collect():
    """An accumulator that grows."""

    @tff.tensorflow.computation
    def zero():
        return tf.zeros([0], tf.float32)

    vector = tff.TensorType(np.float32, [None])

    @tff.tensorflow.computation(vector, np.float32)
    def accumulate(state, x):
        return tf.concat([state, [x]], 0)

    @tff.tensorflow.computation(vector, vector)
    def merge(a, b):
        return tf.concat([a, b], 0)

    @tff.tensorflow.computation(vector)
    def report(a):
        return a * 2, tf.size(a)

    @tff.federated_computation(tff.FederatedType(np.float32, CLIENTS))
    def computation(x):
        return tff.federated_aggregate(x, zero(), accumulate, merge, report)

    return computation


CASES = {name: (computation, args) for name, computation, args in cases()}


@pytest.fixture(scope="module")
def expected(native):
    results = {}

    def get(name):
        if name not in results:
            computation, args = CASES[name]
            results[name] = call(native, computation, *args)
        return results[name]

    return get


@pytest.mark.parametrize("name", list(CASES))
def test_results_are_those_of_the_native_context(name, local, expected):
    computation, args = CASES[name]
    result = call(local, computation, *args)
    assert_same(result, expected(name))
    assert containers(result) == containers(expected(name))


def select_rows(num_keys):
    value_type = collections.OrderedDict(
        a=tff.TensorType(np.float32, [3, 2]), b=tff.TensorType(np.str_, [3])
    )

    # The elements' names are sorted: TFF's worker mixes up others.
    @tff.tensorflow.computation(value_type, np.int32)
    def select(v, key):
        return collections.OrderedDict(
            name=tf.gather(v["b"], key), row=tf.gather(v["a"], key)
        )

    @tff.tensorflow.computation(tff.SequenceType(select.type_signature.result))
    def summarize(ds):
        return ds.reduce(0.0, lambda s, e: 10 * s + tf.reduce_sum(e["row"])), ds.reduce(
            "", lambda s, e: s + e["name"]
        )

    @tff.federated_computation(
        tff.FederatedType(tff.TensorType(np.int32, [num_keys]), CLIENTS),
        tff.FederatedType(np.int32, SERVER),
        tff.FederatedType(value_type, SERVER),
    )
    def computation(keys, max_key, v):
        selected = tff.federated_select(keys, max_key, v, select)
        return tff.federated_map(summarize, selected)

    return computation


ROWS = collections.OrderedDict(
    a=np.arange(6, dtype=np.float32).reshape(3, 2),
    b=np.array(["x", "y", "z"], object),
)


def test_federated_select(local, native):
    computation = select_rows(2)
    keys = [np.array(k, np.int32) for k in ([0, 2], [1, 1], [2, 0])]
    result = call(local, computation, keys, 3, ROWS)
    assert_same(result, call(native, computation, keys, 3, ROWS))
    assert result[2] == (91.0, b"zx")


def test_federated_select_without_keys(local):
    # TFF's worker makes no sequences without elements.
    keys = [np.zeros([0], np.int32)] * 2
    assert call(local, select_rows(0), keys, 3, ROWS) == [(0.0, b""), (0.0, b"")]


def test_results_that_only_the_local_context_returns(fast):
    """TFF's worker fails on these, see the messages of its errors."""
    double = tff.tensorflow.computation(lambda x: x * 2, np.int32)

    @tff.federated_computation(tff.SequenceType(np.int32))
    def mapped(xs):
        return tff.sequence_map(double, xs)

    assert [int(x) for x in call(fast, mapped, [1, 2])] == [2, 4]
    identity = tff.tensorflow.computation(lambda x: x, np.str_)
    assert call(fast, identity, "ä") == "ä".encode()

    @tff.federated_computation(tff.FederatedType(np.str_, CLIENTS))
    def at_clients(x):
        return tff.federated_map(identity, x)

    assert call(fast, at_clients, []) == []


def test_generator_datasets_work_in_process(fast):
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([1, 2, 3]), output_signature=tf.TensorSpec([], tf.int32)
    )
    total = tff.tensorflow.computation(
        lambda ds: ds.reduce(0, lambda a, b: a + b), tff.SequenceType(np.int32)
    )
    assert call(fast, total, dataset) == 6
