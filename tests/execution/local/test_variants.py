"""Datasets as they are read for stacks, with TensorFlow's iteration as the oracle."""

import numpy as np
import pytest
import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.local.data import sequences

_X = np.linspace(0, 1, 77 * 3, dtype=np.float32).reshape(77, 3)
# TensorFlow treats integers of 32 bits alone as its own.
_Y = np.arange(77, dtype=np.int32)
_TABLE = np.array([3, 1, 2], np.float32)


def _slices():
    return tf.data.Dataset.from_tensor_slices({"x": _X, "y": _Y})


def _shuffled():
    return _slices().shuffle(50, seed=7).batch(10)


def _captured_tensor():
    captured = tf.constant(_TABLE)
    return _slices().map(lambda d: tf.concat([d["x"], captured], 0))


def _looked_up():
    keys = tf.constant(["a", "b"])
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.constant([5, 6])), -1
    )
    words = tf.data.Dataset.from_tensor_slices(["a", "c", "b", "a"])
    return words.map(table.lookup).batch(3)


DATASETS = {
    "as_it_is": _slices,
    "shuffled": _shuffled,
    "mapped": lambda: _shuffled().map(lambda d: (d["x"][:, tf.newaxis], d["y"])),
    "cast": lambda: _slices().batch(8).map(lambda d: tf.cast(d["y"], tf.float32)),
    "divided": lambda: _shuffled().map(lambda d: (d["x"] - 0.3) / 255 * 7.1 / 3),
    "captured": lambda: _slices().map(lambda d: d["x"] + _TABLE),
    "captured_tensor": _captured_tensor,
    "looked_up": _looked_up,
    "filtered": lambda: _slices().filter(lambda d: d["y"] > 40).batch(7),
    "nested": lambda: _slices().flat_map(
        lambda d: tf.data.Dataset.from_tensor_slices(d["x"])
    ),
    "words": lambda: tf.data.Dataset.from_tensor_slices([["a", ""], ["b", "c"]]).map(
        lambda each: each[::-1]
    ),
    "repeated": lambda: _slices().shuffle(77, seed=1).repeat(2).batch(20).take(6),
    "not_reshuffled": lambda: (
        _slices().shuffle(9, seed=3, reshuffle_each_iteration=False).repeat(2).batch(50)
    ),
    "from_python": lambda: tf.data.Dataset.from_generator(
        lambda: iter([1.0, 2.0]), output_signature=tf.TensorSpec([], tf.float32)
    ).shuffle(2, seed=1),
    "nothing": lambda: _slices().batch(5).map(lambda d: d["x"]).take(0),
}


def _element_type(dataset):
    return compat.tensorflow_to_type(dataset.element_spec)


@pytest.mark.parametrize("name", list(DATASETS))
def test_elements_are_those_of_tensorflow(name):
    expected = [tf.nest.flatten(element) for element in DATASETS[name]()]
    dataset = DATASETS[name]()
    element_type = _element_type(dataset)
    # By TensorFlow, which rewrites it, and twice by us: as if it were new each time.
    iterated = tf.data.experimental.from_variant(
        sequences.to_variant(dataset), dataset.element_spec
    )
    readings = [map(tf.nest.flatten, iterated)]
    for _ in range(2):
        readings.append(sequences.read(sequences.to_variant(dataset), element_type))
    for elements in map(list, readings):
        assert len(elements) == len(expected)
        for element, of_tensorflow in zip(elements, expected, strict=True):
            for leaf, other in zip(element, of_tensorflow, strict=True):
                assert leaf.dtype == other.dtype
                np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize("count", [3, 5])
def test_a_wrong_number_of_elements_is_told(count):
    dataset = tf.data.Dataset.range(4).apply(
        tf.data.experimental.assert_cardinality(count)
    )
    variant = sequences.to_variant(dataset)
    with pytest.raises(tf.errors.FailedPreconditionError, match="xpected"):
        list(sequences.read(variant, _element_type(dataset)))


def _is_left_unoptimized(dataset):
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=sequences.to_variant(dataset)
    )
    graph_def = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    return [
        function.attr["experimental_ints_on_device"].b
        for function in graph_def.library.function
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mapped", [True]), ("cast", [True]), ("divided", [False]), ("captured", [False])],
)
def test_functions_without_arithmetic_are_left_unoptimized(name, expected):
    assert _is_left_unoptimized(DATASETS[name]()) == expected


def test_a_dataset_that_holds_much_is_not_copied_for_its_functions():
    rows = np.zeros([1024, 256], np.float32)
    small = tf.data.Dataset.from_tensor_slices(rows[:256]).map(lambda x: x[tf.newaxis])
    large = tf.data.Dataset.from_tensor_slices(rows).map(lambda x: x[tf.newaxis])
    assert _is_left_unoptimized(small) == [True]
    assert _is_left_unoptimized(large) == [False]


def test_a_dataset_that_cannot_be_copied_is_read_as_it_is(monkeypatch):
    # What TensorFlow returns of a graph of more than 2 GB, the limit of its messages.
    nothing = tf.constant(b"")
    monkeypatch.setattr(tf.raw_ops, "DatasetToGraphV2", lambda input_dataset: nothing)
    dataset = DATASETS["repeated"]()
    elements = list(
        sequences.read(sequences.to_variant(dataset), _element_type(dataset))
    )
    assert len(elements) == 6
