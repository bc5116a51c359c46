"""Metrics of a Keras 2 model are Keras' own."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.client_works import against_keras
from tests.client_works.keras2_models import (
    FEATURES,
    NEXT,
    TOKENS,
    embedded,
    loss_of,
    penalized,
    regularized,
)
from tff_drift import algorithms, models, simulation
from tff_drift.models.keras2 import as_in_fit

L = tf.keras.layers


class Tripled(tf.keras.metrics.Mean):
    """A mean of Keras with a variable more, and a value of its own."""

    def __init__(self, name="tripled", dtype=None):
        super().__init__(name, dtype)
        self.factor = self.add_weight("factor")

    def result(self):
        return self.factor * super().result()


class Noted(tf.keras.metrics.Mean):
    """A mean of Keras with a variable more."""

    def __init__(self, name="noted", dtype=None):
        super().__init__(name, dtype)
        self.note = self.add_weight("note")


METRICS = (
    tf.keras.metrics.Sum,
    tf.keras.metrics.SparseCategoricalAccuracy,
    tf.keras.metrics.RootMeanSquaredError,
    functools.partial(tf.keras.metrics.AUC, name="auc"),
    Tripled,
    Noted,
)


@pytest.mark.parametrize("are_made", [True, False])
def test_values_of_metrics_are_those_of_keras(are_made):
    metrics = {metric.name: metric for metric in (make() for make in METRICS)}
    for metric in metrics.values():
        for place, variable in enumerate(metric.variables, start=3):
            variable.assign(tf.fill(variable.shape, float(place)))
    sums = {
        name: [variable.numpy() for variable in metric.variables]
        for name, metric in metrics.items()
    }
    # TFF's own.
    sums["loss"], sums["num_batches"] = np.float32([3, 4]), [np.int64(3)]
    sums["num_examples"] = [np.int64(7)]

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tff.learning.models.from_keras_model(
            penalized(),
            loss_of((FEATURES, FEATURES)),
            against_keras.spec_of((FEATURES, FEATURES)),
            metrics=[make() for make in METRICS] if are_made else list(METRICS),
        )
        values = {
            name: finalize([tf.constant(value) for value in sums[name]])
            for name, finalize in as_in_fit(model).metric_finalizers().items()
        }
        session.run(tf.compat.v1.global_variables_initializer())
        found = session.run(values)

    expected = {name: metric.result().numpy() for name, metric in metrics.items()}
    assert found == {**expected, "loss": 0.75, "num_batches": 3, "num_examples": 7}


class Unweighted(tf.keras.metrics.Mean):
    def update_state(self, y_true, y_pred):
        return super().update_state(y_pred)


def test_a_metric_that_can_leave_nothing_out_is_refused_where_there_is_a_mask():
    def model_fn(build, batch):
        return tff.learning.models.from_keras_model(
            build(),
            loss_of(batch),
            against_keras.spec_of(batch),
            metrics=[lambda: Unweighted("mine")],
        )

    with pytest.raises(ValueError, match="'mine' cannot leave out the steps that a ma"):
        algorithms.build_fed_avg(lambda: model_fn(embedded, (TOKENS, NEXT)), 0.1)
    algorithms.build_fed_avg(lambda: model_fn(regularized, (FEATURES, FEATURES)), 0.1)


F1 = {"average": "macro"}
LATE = {
    "f1": lambda: tf.keras.metrics.F1Score(**F1, name="late"),
    "r2": lambda: tf.keras.metrics.R2Score(name="late"),
    "auc": lambda: tf.keras.metrics.AUC(multi_label=True, name="late"),
}


@pytest.mark.parametrize(
    "is_made", tiers.first(["object"], {"object": True, "function": False})
)
@pytest.mark.parametrize("name", tiers.first(["auc"], list(LATE)))
def test_metrics_that_make_their_variables_late(name, is_made):
    """Summed over two clients they are Keras' own of all examples."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(12, 5)).astype(np.float32)
    y = np.eye(3, dtype=np.float32)[draw.integers(3, size=12)]
    make = LATE[name]

    def net():
        return tf.keras.Sequential([L.Dense(3, "softmax", input_shape=[5])])

    keras_model = net()
    keras_model.compile("sgd", "mse", [make()])
    expected = keras_model.evaluate(x, y, verbose=0, return_dict=True)
    weights = tff.learning.models.ModelWeights(keras_model.get_weights(), [])

    def model_fn():
        return tff.learning.models.from_keras_model(
            net(),
            tf.keras.losses.MeanSquaredError(),
            against_keras.spec_of((x, y)),
            metrics=[make() if is_made else make],
        )

    test = simulation.ClientDatasets.from_arrays(
        {"a": (x[:5], y[:5]), "b": (x[5:], y[5:])}, batch_size=4
    )
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    np.testing.assert_allclose(
        evaluate(weights)["late"], expected["late"], rtol=1e-5, atol=1e-6
    )
    with against_keras.local():
        process = algorithms.build_fed_avg(model_fn, 1e-30)
        state = process.set_model_weights(process.initialize(), weights)
        data = [test.training_data(each, 0) for each in "ab"]
        metrics = process.next(state, data).metrics["client_work"]["train"]
    np.testing.assert_allclose(metrics["late"], expected["late"], rtol=1e-5, atol=1e-6)


def test_a_late_metric_that_cannot_count_the_labels_is_refused():
    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([L.Dense(3, input_shape=[5])]),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            (tf.TensorSpec([None, 5]), tf.TensorSpec([None], tf.int64)),
            metrics=[tf.keras.metrics.F1Score()],
        )

    with pytest.raises(ValueError, match="'f1_score' makes its variables") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(error.value)) < 1200


def test_metrics_of_intersection_over_union():
    """Of [0, 1, 1] found as [0, 1, 0], each class has one in common of two."""
    x = np.float32([[1, 0], [0, 1], [1, 0]])
    y = np.array([0, 1, 1])

    class Chosen(L.Layer):
        def call(self, inputs):
            return tf.cast(tf.argmax(inputs, axis=1)[:, None], tf.float32)

    def model_fn():
        dense = L.Dense(2, input_shape=[2], use_bias=False)
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([dense, Chosen()]),
            tf.keras.losses.MeanSquaredError(),
            against_keras.spec_of((x, y)),
            metrics=[
                tf.keras.metrics.MeanIoU(2, name="mean"),
                tf.keras.metrics.IoU(2, [1], name="one"),
                tf.keras.metrics.BinaryIoU([0], name="binary"),
            ],
        )

    test = simulation.ClientDatasets.from_arrays(
        {"a": (x[:1], y[:1]), "b": (x[1:], y[1:])}, batch_size=2
    )
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    weights = tff.learning.models.ModelWeights([np.eye(2, dtype=np.float32)], [])
    found = evaluate(weights)
    for name in ("mean", "one", "binary"):
        np.testing.assert_allclose(found[name], 0.5, rtol=1e-6)
    # Training has the metrics forget between clients.
    algorithms.build_fed_avg(model_fn, 0.1)


def test_a_metric_of_outputs_of_several_shapes_is_refused():
    inputs = tf.keras.Input([5])
    outputs = [L.Dense(3)(inputs), L.Dense(1)(inputs)]
    labels = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 1])

    def model_fn():
        return models.from_keras2(
            tf.keras.Model(inputs, outputs),
            [
                tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                tf.keras.losses.MeanSquaredError(),
            ],
            (tf.TensorSpec([None, 5]), labels),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
        )

    with pytest.raises(ValueError, match=r"'accuracy' of all outputs .* of your own"):
        algorithms.build_fed_avg(model_fn, 0.1)
