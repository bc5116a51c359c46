"""The rewrite of `Dataset.reduce`, on graphs of its own."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import assert_same, call
from tff_drift.execution.local.graphs import dataset_loops


def _operations(graph_def):
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes.extend(function.node_def)
    return [node.op for node in nodes]


def _reduce_graph():
    with tf.Graph().as_default() as graph:
        weight = tf.compat.v1.placeholder(tf.int64, [], name="weight")
        tf.data.Dataset.range(4).reduce(
            (tf.constant(0, tf.int64), "x"),
            lambda state, i: (state[0] + weight * i, state[1] + "y"),
        )
    return graph.as_graph_def()


def test_replaces_a_reduction_at_the_top():
    graph_def = _reduce_graph()
    name = next(n.name for n in graph_def.node if n.op == "ReduceDataset")
    dataset_loops.splice_dataset_loops(graph_def)
    assert "ReduceDataset" not in _operations(graph_def)
    with tf.Graph().as_default():
        results = tf.graph_util.import_graph_def(
            graph_def,
            {"weight:0": tf.constant(3, tf.int64)},
            [f"{name}:0", f"{name}:1"],
        )
        with tf.compat.v1.Session() as session:
            assert session.run(results) == [18, b"xyyyy"]


@pytest.mark.parametrize("change", ["step", "state", "arguments"])
def test_leaves_unknown_forms_alone(change):
    graph_def = _reduce_graph()
    node = next(n for n in graph_def.node if n.op == "ReduceDataset")
    if change == "step":
        node.attr["f"].func.name = "elsewhere"
    elif change == "state":
        node.attr["Tstate"].list.type[0] = tf.int32.as_datatype_enum
    else:
        del node.input[-1]
    before = graph_def.SerializeToString(deterministic=True)
    dataset_loops.splice_dataset_loops(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


def _loops():
    """Reductions inside functions, inside one another, with state and resources."""

    @tf.function
    def nested(ds, start):
        def outer(state, i):
            inner = tf.data.Dataset.range(i).reduce(start, lambda s, j: s * 2 + j)
            return state + inner, tf.concat([state[None], [inner]], 0)[0]

        first, second = ds.reduce((start, start), lambda state, i: outer(state[0], i))
        return first, second

    @tff.tensorflow.computation(tff.SequenceType(np.int64), np.int64)
    def computation(ds, start):
        counter = tf.Variable(tf.constant(0, tf.int64))

        @tf.function
        def count(ds):
            for i in ds:
                counter.assign_add(i)
            ds.reduce(tf.constant(0), lambda s, i: (counter.assign_add(1), s)[1])
            return counter.read_value()

        empty = ds.take(0).reduce(start, lambda s, i: s + i)
        return nested(ds, start), count(ds), empty

    return computation


def test_loops_in_functions_and_in_loops(local, native):
    computation = _loops()
    args = (tf.data.Dataset.range(5), 7)
    result = call(local, computation, *args)
    assert_same(result, call(native, computation, *args))
    assert result[1] == 0 + 1 + 2 + 3 + 4 + 5
    assert result[2] == 7
