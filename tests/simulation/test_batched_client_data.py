"""ClientData that holds batches, as TFF's tutorials make them."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import simulation

_X = np.arange(21, dtype=np.float32).reshape(7, 3)
_Y = np.arange(7)


def _client_data():
    return tff.simulation.datasets.TestClientData({"c": {"x": _X, "y": _Y}})


def _examples(preprocess):
    data = _client_data().preprocess(preprocess)
    return simulation.ClientDatasets.from_client_data(data, batch_size=2).examples("c")


def _reshaped(batch):
    return collections.OrderedDict(
        x=tf.reshape(batch["x"], [-1, 3]), y=tf.reshape(batch["y"], [-1, 1])
    )


def _lengths(dataset):
    """Sequences of 1 to 7 numbers."""
    return dataset.map(lambda each: {"x": tf.range(each["y"] + 1), "y": each["y"]})


def _numbers(dataset):
    """The numbers of all examples, one by one."""
    return dataset.map(lambda each: each["x"]).unbatch()


@pytest.mark.parametrize(
    ("preprocess", "rows"),
    [
        (lambda d: d, 7),
        (lambda d: d.batch(4), 7),
        (lambda d: d.batch(4, num_parallel_calls=2), 7),
        (lambda d: d.batch(4, drop_remainder=True), 4),
        (lambda d: d.batch(4).prefetch(2).cache(), 7),
        (lambda d: d.padded_batch(4), 7),
        (lambda d: d.batch(4).rebatch(3), 7),
        (lambda d: d.batch(3, True).batch(2, True), 6),
        (lambda d: d.batch(4).unbatch(), 7),
        (lambda d: d.filter(lambda each: each["y"] < 5).batch(2), 5),
        (lambda d: d.flat_map(tf.data.Dataset.from_tensors).batch(4), 7),
    ],
)
def test_batches_are_taken_apart(preprocess, rows):
    found = _examples(preprocess)
    np.testing.assert_array_equal(found["x"], _X[:rows])
    np.testing.assert_array_equal(found["y"], _Y[:rows])


def test_the_preprocessing_of_tffs_tutorials_is_taken_apart():
    found = _examples(
        lambda d: d.repeat(2).shuffle(10, seed=1).batch(4).map(_reshaped).prefetch(2)
    )
    assert found["y"].shape == (14, 1)
    assert sorted(found["y"][:, 0]) == sorted([*_Y, *_Y])
    np.testing.assert_array_equal(found["x"], _X[found["y"][:, 0]])


def test_batches_that_a_function_returns_are_taken_apart():
    @tf.function
    def make(client_id):
        return tf.data.Dataset.from_tensor_slices((_X, _Y)).batch(4)

    data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(["c"], make)
    datasets = simulation.ClientDatasets.from_client_data(data, batch_size=2)
    np.testing.assert_array_equal(datasets.examples("c")[0], _X)


def test_sequences_are_no_batches():
    def sequences(dataset):
        return _numbers(dataset).batch(5, drop_remainder=True)

    expected = np.arange(20).reshape(4, 5)
    np.testing.assert_array_equal(_examples(sequences), expected)
    for drop in (True, False):
        found = _examples(lambda d, drop=drop: sequences(d).batch(2, drop))
        np.testing.assert_array_equal(found, expected)


def test_windows_are_no_batches():
    def windows(dataset):
        cut = _numbers(dataset).window(3, shift=1, drop_remainder=True)
        return cut.flat_map(lambda window: window.batch(3, drop_remainder=True))

    expected = np.lib.stride_tricks.sliding_window_view(np.arange(21), 3)
    np.testing.assert_array_equal(_examples(windows), expected)
    np.testing.assert_array_equal(_examples(lambda d: windows(d).batch(4)), expected)


def test_padding_to_a_size_that_is_given_makes_examples_of_it():
    found = _examples(
        lambda d: _lengths(d).padded_batch(4, padded_shapes={"x": [8], "y": []})
    )
    assert found["x"].shape == (7, 8)
    assert found["x"][2].tolist() == [0, 1, 2, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("preprocess", "message"),
    [
        (_lengths, r"such as \[1\] and \[2\].*padded_batch"),
        (
            lambda d: _lengths(d).padded_batch(4),
            r"such as \[4\] and \[7\].*padded_batc",
        ),
        (lambda d: d.batch(4).batch(2), r"such as \[4,3\] and \[3,3\]"),
        (lambda d: d.repeat(), r"without end.*epochs="),
        (lambda d: d.repeat().batch(3), r"without end.*epochs="),
        (lambda d: d.take(0).batch(3), "has no examples"),
        (lambda d: d.batch(9, drop_remainder=True), "has no examples"),
        (lambda d: _lengths(d).ragged_batch(4), r"RaggedTensorSpec.*to_tensor"),
        (
            lambda d: d.map(lambda each: tf.sparse.from_dense(each["x"])),
            "SparseTensorSpec.*to_dense",
        ),
        (
            lambda d: d.map(
                lambda each: tf.reshape(each["x"], [tf.cast(each["y"], tf.int32), -1])
            ),
            "Client 'c' cannot be read .*Check",
        ),
    ],
)
def test_what_makes_no_examples_is_refused_in_one_line(preprocess, message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        _examples(preprocess)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1200
