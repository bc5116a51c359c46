"""Batches that would fail at their first trace are refused in one line."""

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.models import client_arrays, softmax_regression
from tff_drift import algorithms, models
from tff_drift.models.keras2 import check_batches
from tff_drift.simulation import ClientDatasets, build_evaluation

L = tf.keras.layers
TEST = ClientDatasets.from_arrays({"a": client_arrays([3])[0]}, batch_size=2)


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


def with_metrics(labels=([None], tf.int32), **metrics):
    """A function that builds a classifier of three classes with metrics."""
    losses = tf.keras.losses
    loss = losses.SparseCategoricalCrossentropy()
    if len(labels[0]) > 1:
        loss = losses.CategoricalCrossentropy()
    return lambda: models.from_keras2(
        tf.keras.Sequential([L.Dense(3, "softmax", input_shape=[5])]),
        loss,
        spec_of(OF_NUMBERS, labels),
        **{name: [make()] for name, make in metrics.items()},
    )


K = tf.keras.metrics


@pytest.mark.parametrize(
    "make",
    [
        K.Accuracy,
        K.AUC,
        K.BinaryAccuracy,
        K.KLDivergence,
        K.MeanAbsoluteError,
        K.Recall,
    ],
)
def test_metrics_that_cannot_count_numbers_of_classes_are_refused(make):
    message = rf"metrics has {make.__name__} .* and outputs of .*SparseCat.*one-hot"
    with pytest.raises(ValueError, match=message) as raised:
        algorithms.build_fed_avg(with_metrics(metrics=make), 0.1)
    assert len(str(raised.value)) < 400
    check_batches(with_metrics(([None, 3], tf.float32), metrics=make)())


class Own(K.Metric):
    """A metric of one's own takes any labels."""

    def __init__(self):
        super().__init__(name="own")
        self.total = self.add_weight("total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        del sample_weight
        self.total.assign_add(tf.reduce_sum(tf.gather(y_pred, y_true, batch_dims=1)))

    def result(self):
        return self.total.read_value()


def test_metrics_that_count_numbers_of_classes_are_taken():
    def mean_of_rows(labels, predictions):
        return tf.gather(predictions, labels, batch_dims=1)

    for make in (
        K.SparseCategoricalAccuracy,
        K.SparseTopKCategoricalAccuracy,
        K.CategoricalAccuracy,
        lambda: K.MeanMetricWrapper(mean_of_rows, name="rows"),
        Own,
    ):
        check_batches(with_metrics(metrics=make)())
    # As in `fit`, labels of weighted metrics are columns.
    check_batches(with_metrics(weighted_metrics=K.MeanAbsoluteError)())


@pytest.mark.parametrize("build", [algorithms.build_fed_avg, build_evaluation])
def test_functions_that_run_eagerly_are_refused(build):
    second = (0.1,) if build is algorithms.build_fed_avg else (TEST,)
    tf.config.run_functions_eagerly(True)
    try:
        with pytest.raises(ValueError, match=r"run_functions_eagerly\(False\) before"):
            build(softmax_regression, *second)
    finally:
        tf.config.run_functions_eagerly(False)
