import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_drift.simulation.records import metrics


def test_training_columns():
    process_metrics = collections.OrderedDict(
        distributor=(),
        client_work=collections.OrderedDict(
            train=collections.OrderedDict(
                loss=np.float32(0.1), accuracy=0.25, num_examples=np.int64(7)
            ),
            rejected_clients=np.int32(1),
        ),
        aggregator=collections.OrderedDict(
            mean_value=(), clipping_norm=np.float32(2.5), was_clipped=np.bool_(True)
        ),
        finalizer=[np.array([1.0, 2.0])],
    )
    row = metrics.training_columns(process_metrics)
    assert list(row.items()) == [
        ("train_loss", 0.1),
        ("train_accuracy", 0.25),
        ("train_num_examples", 7),
        ("client_work/rejected_clients", 1),
        ("aggregator/clipping_norm", 2.5),
        ("aggregator/was_clipped", 1),
        ("finalizer/0/0", 1.0),
        ("finalizer/0/1", 2.0),
    ]


def test_metrics_that_become_one_column_are_an_error():
    with pytest.raises(
        ValueError,
        match="process returned 'client_work/train/top 5' and "
        "'client_work/train/top_5', which are both the column 'train_top_5'",
    ):
        metrics.training_columns({"client_work": {"train": {"top 5": 1, "top_5": 2}}})
    with pytest.raises(ValueError, match="both the column 'train_loss'"):
        metrics.training_columns(
            {"train_loss": 1, "client_work": {"train": {"loss": 2}}}
        )


@pytest.mark.parametrize(
    "column", ["round", "seconds", "cohort_size", "bytes_up", "total_examples"]
)
def test_columns_of_the_driver_are_not_for_the_process(column):
    with pytest.raises(
        ValueError, match=f"process returned the metric '{column}', but '{column}' is"
    ):
        metrics.training_columns({column: np.int32(7)})


def test_columns_of_an_evaluation():
    found = {"loss": np.float32(3.0), "deep": {"er": 1}}
    row = metrics.columns_of("evaluation", found)
    assert row == {"loss": 3.0, "deep/er": 1}


def test_numbers_in_bfloat16_are_numbers():
    # It has eight significant bits: 205 / 2048 is the nearest to 0.1.
    vector = tf.constant([1.5, 0.1], tf.bfloat16)
    found = {"a": vector[0], "v": vector, "np": vector[1].numpy(), "t": tf.constant(2)}
    tenth = pytest.approx(205 / 2048)
    expected = {"a": 1.5, "v/0": 1.5, "v/1": tenth, "np": tenth, "t": 2}
    assert metrics.columns_of("evaluation", found) == expected
    assert metrics.flatten_metrics(found) == expected
    with pytest.raises(TypeError, match=r"evaluation returned an array of shape \(17,"):
        metrics.columns_of("evaluation", {"a": tf.zeros(17, tf.bfloat16)})


def test_what_is_no_number_of_a_table_is_left_out():
    structure = {
        "name": b"x",
        "none": None,
        "matrix": np.eye(2),
        "long": np.zeros(17),
        "short": np.zeros(16, np.int32),
        "odd name, with a comma\n": 1,
    }
    row = metrics.flatten_metrics(structure)
    assert set(row) == {*(f"short/{i}" for i in range(16)), "odd_name_with_a_comma_"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.1), 0.1),
        (np.float32(16777216), 16777216.0),
        (np.float32(1e-45), 1e-45),
        (np.float64(0.1) + 0.2, 0.30000000000000004),
        (True, 1),
        (np.int64(2**53 + 1), 2**53 + 1),
        (np.array(3, np.uint8), 3),
        (np.float32(np.inf), np.inf),
    ],
)
def test_plain_number_keeps_value_and_kind(value, expected):
    number = metrics.plain_number(value)
    assert number == expected
    assert type(number) is type(expected)
    with np.printoptions(legacy="1.13", precision=2):
        assert metrics.plain_number(value) == expected
    # The number names the value that it came from.
    assert np.asarray(value).dtype.type(number) == np.asarray(value)


def test_timing_columns_are_named_after_seconds():
    row = {"round": 1, "seconds": 0.5, "seconds_evaluation": 1.0, "train_loss": 2.0}
    assert metrics.without_timing(row) == {"round": 1, "train_loss": 2.0}
