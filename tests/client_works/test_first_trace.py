"""Batches that would fail at their first trace are refused in one line."""

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, models
from tff_drift.models.keras2 import check_batches

L = tf.keras.layers


def spec_of(inputs, labels):
    return tf.TensorSpec(*inputs), tf.TensorSpec(*labels)


OF_NUMBERS = ([None, 5], tf.float32)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            spec_of(OF_NUMBERS, ([None], tf.string)),
            TypeError,
            r"strings in y, .*y\.astype",
        ),
        (
            spec_of(([None, 5], tf.string), ([None], tf.int32)),
            TypeError,
            "strings in x,",
        ),
        (
            spec_of(OF_NUMBERS, ([None, 3], tf.float32)),
            ValueError,
            r"take such batches: .*\(6,\).*\(2, 3\)\. Build them",
        ),
    ],
    ids=["labels", "inputs", "one-hot"],
)
def test_batches_that_would_fail_in_a_round_are_refused(spec, error, message):
    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([L.Dense(3, input_shape=[5])]),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            spec,
        )

    with pytest.raises(error, match=message) as raised:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(raised.value)) < 600


def test_strings_are_taken_where_a_layer_looks_them_up():
    lookup = [
        tf.keras.Input([], dtype=tf.string),
        L.StringLookup(vocabulary=["a", "b"], output_mode="one_hot"),
        L.Dense(3),
    ]
    spec = spec_of(([None], tf.string), ([None], tf.int32))
    check_batches(
        models.from_keras2(
            tf.keras.Sequential(lookup),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            spec,
        )
    )


def test_rows_of_labels_are_taken_of_outputs_that_are_one_long_row():
    steps = [
        L.Embedding(6, 4, input_shape=[3]),
        L.Lambda(lambda x: tf.reshape(x, [-1, 4])),
    ]
    spec = spec_of(([None, 3], tf.int32), ([None, 3], tf.int32))
    check_batches(
        models.from_keras2(
            tf.keras.Sequential(steps),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            spec,
        )
    )
