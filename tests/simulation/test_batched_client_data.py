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


def _made_by(make, preprocess=None):
    """Examples of a client whose dataset a function makes."""
    data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(["c"], make)
    if preprocess is not None:
        data = data.preprocess(preprocess)
    return simulation.ClientDatasets.from_client_data(data, batch_size=2).examples("c")


def _pairs():
    return tf.data.Dataset.from_tensor_slices((_X, _Y))


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda _: _pairs().batch(4), 7),
        (lambda _: _pairs().batch(3, drop_remainder=True), 6),
        (lambda _: _pairs().batch(3, True).map(lambda x, y: (x, y)).batch(2, True), 6),
        (lambda _: tf.function(lambda: _pairs().batch(4))().prefetch(1), 7),
        (lambda _: tf.function(lambda each: each.batch(4))(_pairs()), 7),
    ],
)
@pytest.mark.parametrize("preprocess", [None, lambda d: d.map(lambda x, y: (x, y))])
def test_batches_that_a_function_returns_are_taken_apart(make, rows, preprocess):
    for each in (make, tf.function(make)):
        found = _made_by(each, preprocess)
        np.testing.assert_array_equal(found[0], _X[:rows])
        np.testing.assert_array_equal(found[1], _Y[:rows])


def _parsed(client_id):
    """Sequences whose length only the text knows, and those that follow."""
    lines = tf.data.Dataset.from_tensor_slices(["1 2 3 4", "6 7 8 9"])
    tokens = lines.map(lambda line: tf.strings.to_number(tf.strings.split(line)))
    return tokens.map(lambda each: (each[:-1], each[1:]))


@pytest.mark.parametrize(
    "preprocess",
    [
        None,
        lambda d: d.map(lambda x, y: (x, y)),
        lambda d: d.batch(2),
        tf.function(lambda d: d.batch(2)),
    ],
)
@pytest.mark.parametrize("is_function", [False, True])
def test_sequences_that_a_function_returns_are_no_batches(is_function, preprocess):
    found = _made_by(tf.function(_parsed) if is_function else _parsed, preprocess)
    np.testing.assert_array_equal(found[0], [[1, 2, 3], [6, 7, 8]])
    np.testing.assert_array_equal(found[1], [[2, 3, 4], [7, 8, 9]])


@pytest.mark.parametrize("count", [1, 3])
def test_batches_that_a_condition_chooses_are_taken_apart(count):
    clients = {str(each): {"x": _X + each, "y": _Y} for each in range(count)}
    data = tff.simulation.datasets.TestClientData(clients)
    for rows, drop in ((7, False), (6, True)):
        batches = data.preprocess(lambda d, drop=drop: d.batch(3, drop))
        found = simulation.ClientDatasets.from_client_data(batches, batch_size=2)
        for each in range(count):
            examples = found.examples(str(each))
            np.testing.assert_array_equal(examples["x"], _X[:rows] + each)


def _chosen(one, other):
    return lambda client_id: tf.cond(
        tf.equal(client_id, "c"), lambda: one(client_id), lambda: other(client_id)
    )


def test_sequences_that_a_condition_chooses_are_no_batches():
    def switched(client_id):
        first = tf.strings.length(client_id) - 1
        return tf.switch_case(first, [lambda: _parsed(client_id)] * 2)

    for make in (_chosen(_parsed, lambda each: _parsed(each).skip(1)), switched):
        found = _made_by(make)
        np.testing.assert_array_equal(found[0], [[1, 2, 3], [6, 7, 8]])


def _from_outside(make):
    """What a graph is given as a dataset, without the way in which it was made."""
    dataset = make("")
    return lambda _: dataset.map(lambda x, y: (x, y))


def test_what_may_be_batches_or_sequences_is_refused_with_a_remedy():
    numbers = tf.data.Dataset.range(1, 4)

    def batches(_):
        return _pairs().batch(4)

    for make in (
        _from_outside(batches),
        _from_outside(_parsed),
        _chosen(lambda _: numbers.batch(4), lambda _: numbers.map(tf.range)),
    ):
        with pytest.raises(ValueError, match="batches, or sequences") as caught:
            _made_by(make)
        assert "\n" not in str(caught.value)
    found = _made_by(_from_outside(batches), lambda d: d.unbatch())
    np.testing.assert_array_equal(found[0], _X)

    def with_lengths(dataset):
        return dataset.map(
            lambda x, y: (tf.ensure_shape(x, [3]), tf.ensure_shape(y, [3]))
        )

    found = _made_by(_from_outside(_parsed), with_lengths)
    np.testing.assert_array_equal(found[0], [[1, 2, 3], [6, 7, 8]])


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
