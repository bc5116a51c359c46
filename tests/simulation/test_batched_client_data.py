"""ClientData that holds batches, as TFF's tutorials make them."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
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


def _second(one, other):
    return tf.data.Dataset.zip((one, other)).map(lambda _, each: each)


def _in_turns(dataset):
    """Batches of one, from two datasets by turns."""
    halves = [dataset.shard(2, each).batch(1, True) for each in range(2)]
    turns = tf.data.Dataset.range(6).map(lambda each: each % 2)
    return tf.data.Dataset.choose_from_datasets(halves, turns)


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
        (lambda d: d.flat_map(tf.data.Dataset.from_tensors).batch(4, True), 4),
        (lambda d: d.batch(3, True).flat_map(tf.data.Dataset.from_tensors), 6),
        (lambda d: d.batch(4).flat_map(tf.data.Dataset.from_tensor_slices), 7),
        (lambda d: d.batch(4).enumerate().map(lambda _, each: each), 7),
        (lambda d: d.batch(3, True).enumerate().map(lambda _, each: each), 6),
        (lambda d: _second(tf.data.Dataset.range(9), d.batch(3, True)), 6),
        (lambda d: _second(d.batch(4), d.batch(4)), 7),
        (lambda d: d.take(4).batch(2, True).concatenate(d.skip(4).batch(2, True)), 6),
        (_in_turns, 6),
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


_OF_BATCHES = [
    (lambda _: _pairs().batch(4), 7),
    (lambda _: _pairs().batch(3, drop_remainder=True), 6),
    (lambda _: _pairs().batch(3, True).map(lambda x, y: (x, y)).batch(2, True), 6),
    (lambda _: tf.function(lambda: _pairs().batch(4))().prefetch(1), 7),
    (lambda _: tf.function(lambda each: each.batch(4))(_pairs()), 7),
]


@pytest.mark.parametrize(
    ("make", "rows", "preprocess"),
    # Each function once in the first tier.
    tiers.first(
        range(0, 10, 2),
        [
            (make, rows, preprocess)
            for preprocess in (None, lambda d: d.map(lambda x, y: (x, y)))
            for make, rows in _OF_BATCHES
        ],
    ),
)
def test_batches_that_a_function_returns_are_taken_apart(make, rows, preprocess):
    for each in (make, tf.function(make)):
        found = _made_by(each, preprocess)
        np.testing.assert_array_equal(found[0], _X[:rows])
        np.testing.assert_array_equal(found[1], _Y[:rows])


def _numbered(texts):
    return texts.map(
        lambda text: (tf.strings.to_number([text, text]), tf.strings.to_number(text))
    )


def _lines(path):
    return _numbered(tf.data.TextLineDataset(path))


def _records(path):
    path = tf.strings.regex_replace(path, "lines$", "records")
    return _numbered(tf.data.TFRecordDataset(path, num_parallel_reads=1))


def _files(path):
    return tf.data.Dataset.from_tensors(path)


def _generated(_):
    return tf.data.Dataset.from_generator(
        lambda: map(float, range(7)), output_signature=tf.TensorSpec([])
    ).map(lambda each: (tf.stack([each, each]), each))


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        (_lines, 7),
        (lambda path: _lines(path).batch(4), 7),
        (lambda path: _lines(path).batch(4, True), 4),
        (lambda path: _lines(path).repeat(1).batch(3, True).prefetch(2), 6),
        (lambda path: _lines([path]).batch(3, True).batch(2, True), 6),
        (lambda path: _generated(path).batch(4, True), 4),
        (lambda path: _files(path).interleave(_lines).batch(4, True), 4),
        (
            lambda path: _files(path).interleave(
                lambda each: _lines(each).batch(3, True), num_parallel_calls=1
            ),
            6,
        ),
        (lambda path: _records(path).batch(4, True), 4),
        (
            lambda path: (
                tf.data.experimental.CsvDataset(path, [tf.float32])
                .map(lambda each: (tf.stack([each, each]), each))
                .batch(4, True)
            ),
            4,
        ),
    ],
)
def test_batches_of_what_is_read_from_files_are_taken_apart(tmp_path, read, rows):
    (tmp_path / "lines").write_text("".join(f"{each}\n" for each in range(7)))
    with tf.io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for each in range(7):
            writer.write(str(each))
    data = tff.simulation.datasets.FilePerUserClientData(
        {"c": str(tmp_path / "lines")}, read
    )
    found = simulation.ClientDatasets.from_client_data(data, batch_size=2)
    x, y = found.examples("c")
    np.testing.assert_array_equal(y, np.arange(rows))
    np.testing.assert_array_equal(x, np.stack([y, y], axis=1))


def _parsed(client_id):
    """Sequences whose length only the text knows, and those that follow."""
    lines = tf.data.Dataset.from_tensor_slices(["1 2 3 4", "6 7 8 9"])
    tokens = lines.map(lambda line: tf.strings.to_number(tf.strings.split(line)))
    return tokens.map(lambda each: (each[:-1], each[1:]))


@pytest.mark.parametrize(
    ("is_function", "preprocess"),
    # Each preprocessing once in the first tier.
    tiers.first(
        [0, 3, 4, 7],
        [
            (is_function, preprocess)
            for preprocess in (
                None,
                lambda d: d.map(lambda x, y: (x, y)),
                lambda d: d.batch(2),
                tf.function(lambda d: d.batch(2)),
            )
            for is_function in (False, True)
        ],
    ),
)
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


def _both(x, y):
    """An example and its mirror image."""
    return tf.data.Dataset.from_tensor_slices((tf.stack([x, x[::-1]]), [y, y]))


def _mirrored():
    return _pairs().flat_map(_both)


def test_examples_that_a_function_makes_of_each_are_no_batches():
    np.testing.assert_array_equal(_made_by(lambda _: _mirrored())[1], np.repeat(_Y, 2))
    for make in (
        lambda _: _mirrored().batch(4),
        lambda _: _mirrored().batch(4, drop_remainder=True).unbatch(),
    ):
        x, y = _made_by(make)
        np.testing.assert_array_equal(y, np.repeat(_Y, 2)[: len(y)])
        np.testing.assert_array_equal(x[::2], _X[: len(x[::2])])
        np.testing.assert_array_equal(x[1::2], _X[: len(x[1::2]), ::-1])


def test_what_may_be_batches_or_sequences_is_refused_with_a_remedy():
    numbers = tf.data.Dataset.range(1, 4)

    def batches(_):
        return _pairs().batch(4)

    for make in (
        _from_outside(batches),
        _from_outside(_parsed),
        _chosen(lambda _: numbers.batch(4), lambda _: numbers.map(tf.range)),
        lambda _: _mirrored().batch(4, drop_remainder=True),
        lambda _: _mirrored().shuffle(9).repeat(2).batch(4, True).batch(2).prefetch(1),
        lambda _: _pairs().interleave(_both).batch(4, drop_remainder=True),
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

    def flattened(dataset):
        numbers = dataset.flat_map(
            lambda each: tf.data.Dataset.from_tensor_slices(each["x"])
        )
        return numbers.batch(5, drop_remainder=True)

    np.testing.assert_array_equal(_examples(flattened), expected)
    found = _examples(lambda d: flattened(d).batch(2, drop_remainder=True))
    np.testing.assert_array_equal(found, expected)


def test_windows_are_no_batches():
    def windows(dataset):
        cut = _numbers(dataset).window(3, shift=1, drop_remainder=True)
        return cut.flat_map(lambda window: window.batch(3, drop_remainder=True))

    expected = np.lib.stride_tricks.sliding_window_view(np.arange(21), 3)
    np.testing.assert_array_equal(_examples(windows), expected)
    np.testing.assert_array_equal(_examples(lambda d: windows(d).batch(4)), expected)
    found = _examples(lambda d: windows(d).batch(4, drop_remainder=True))
    np.testing.assert_array_equal(found, expected[:16])

    def windows_of_examples(dataset):
        cut = dataset.map(lambda each: (each["x"], each["y"])).window(3, 1, 1, True)
        return cut.flat_map(
            lambda x, y: tf.data.Dataset.zip((x.batch(3, True), y.batch(3, True)))
        )

    for size in (None, 2):
        found = _examples(
            lambda d, size=size: (
                windows_of_examples(d)
                if size is None
                else windows_of_examples(d).batch(size, drop_remainder=True)
            )
        )
        rows = np.arange(5 if size is None else 4)[:, np.newaxis] + np.arange(3)
        np.testing.assert_array_equal(found[0], _X[rows])
        np.testing.assert_array_equal(found[1], rows)


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
