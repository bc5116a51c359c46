"""Weights of examples and of classes count as in the `fit` of Keras 3."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import keras3_models
from tff_drift import algorithms, models, simulation

pytestmark = keras3_models.needed

DRAW = np.random.default_rng(5)
X = DRAW.normal(size=(6, 4)).astype(np.float32)
Y = np.array([0, 2, 1, 2, 0, 2])
WEIGHTS = np.array([1.0, 0.0, 2.5, 0.25, 3.0, 1.0], np.float32)
OF_CLASSES = {0: 0.5, 1: 20.0}
TOKENS = np.array([[1, 2, 0], [3, 1, 4]])
NEXT = np.array([[2, 1, 3], [1, 1, 2]])
OF_STEPS = np.array([[1.0, 0.5, 7.0], [2.0, 0.0, 4.0]], np.float32)


def dense():
    return keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(3)])


def tokens():
    words = keras.layers.Embedding(6, 3, mask_zero=True)
    first = keras.layers.Input([3], dtype="int64")
    return keras.Sequential([first, words, keras.layers.Dense(4)])


def two_outputs():
    inputs = keras.layers.Input([4])
    layers = [keras.layers.Dense(3, name=name) for name in "ab"]
    return keras.Model(inputs, [layer(inputs) for layer in layers])


TWO = [keras3_models.loss] * 2
CASES = {
    "examples": (dense, None, (X, Y, WEIGHTS), None),
    "classes": (dense, None, (X, Y), OF_CLASSES),
    "both": (dense, None, (X, Y, WEIGHTS), OF_CLASSES),
    "steps and a mask": (tokens, None, (TOKENS, NEXT, OF_STEPS), None),
    "two outputs": (two_outputs, TWO, (X, (Y, Y[::-1]), (WEIGHTS, 2 * WEIGHTS)), None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_a_step_of_keras(case):
    make, losses, batch, class_weight = CASES[case]
    loss = [each() for each in losses] if losses else keras3_models.loss()
    keras_model = make()
    copy = keras.models.clone_model(keras_model)
    copy.set_weights(keras_model.get_weights())
    copy.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    x, y, weights = (*batch, None)[:3]
    if weights is not None and class_weight:  # Which Keras 3 takes one at a time.
        of_labels = [class_weight.get(label, 1.0) for label in y.tolist()]
        weights, by_keras = weights * np.array(of_labels, np.float32), None
    else:
        by_keras = class_weight
    as_lists = [
        list(part) if isinstance(part, tuple) else part for part in (y, weights)
    ]
    copy.fit(
        x,
        as_lists[0],
        len(x),
        sample_weight=as_lists[1],
        class_weight=by_keras,
        verbose=0,
    )
    data = tf.data.Dataset.from_tensors(batch)
    spec = tf.nest.map_structure(
        lambda each: tf.TensorSpec([None, *each.shape[1:]], each.dtype),
        data.element_spec,
    )

    def model_fn():
        return models.from_keras3(keras_model, loss, spec, class_weight=class_weight)

    rounds = keras3_models.Rounds(algorithms.build_fed_avg(model_fn, 0.1), [data], 1)
    for found, expected in zip(rounds.weights, copy.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


class OfCells(keras.losses.Loss):
    """Has a value for each number of the output."""

    def call(self, y_true, y_pred):
        return keras.ops.square(y_pred - y_true)


def one_number():
    return keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])


def number_of_tokens():
    return keras.Sequential([*tokens().layers[:-1], keras.layers.Dense(1)])


class OfSteps(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.square(y_pred[..., 0] - y_true)


def test_a_mask_of_other_values_than_those_of_the_loss_is_refused():
    data = tf.data.Dataset.from_tensors((TOKENS, NEXT.astype(np.float32)))
    keras_model = number_of_tokens()

    def model_fn(loss):
        return lambda: models.from_keras3(keras_model, loss, data.element_spec)

    with pytest.raises(ValueError, match=r"with a mask.*y\[\.\.\., None\]"):
        algorithms.build_fed_avg(model_fn(keras.losses.MeanSquaredError()), 0.1)
    shown = TOKENS != 0
    errors = np.square(keras_model.predict(TOKENS, verbose=0)[..., 0] - NEXT)
    rounds = keras3_models.Rounds(
        algorithms.build_fed_avg(model_fn(OfSteps()), 0.1), [data], 1
    )
    loss = rounds.metrics[0]["loss"]
    np.testing.assert_allclose(loss, errors[shown].mean(), rtol=1e-5)


ONE_HOT = np.eye(3, dtype=np.float32)[Y]


@pytest.mark.parametrize(
    ("make", "loss", "batch", "message"),
    [
        (
            tokens,
            keras3_models.loss,
            (TOKENS, NEXT, OF_STEPS[:, 0]),
            "one weight for each example and the loss one value for each step: give "
            r"weights of shape \[examples, steps\]",
        ),
        (
            dense,
            keras3_models.loss,
            (X, Y, np.ones([6, 3], np.float32)),
            "the shape .* a weight for each value",
        ),
        (dense, OfCells, (X, ONE_HOT, WEIGHTS), "one weight for each example"),
        (
            one_number,
            OfCells,
            (X, Y.astype(np.float32), WEIGHTS),
            r"the shape .*: give labels of the outputs' shape, y\[..., None\]",
        ),
    ],
)
def test_weights_of_other_values_are_refused_before_training(
    make, loss, batch, message
):
    data = tf.data.Dataset.from_tensor_slices(batch).batch(2)
    keras_model = make()
    with pytest.raises(ValueError, match=f"^sample_weight has {message}") as error:
        algorithms.build_fed_avg(
            lambda: models.from_keras3(keras_model, loss(), data.element_spec), 0.1
        )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "loss", "batch"),
    [
        (dense, keras3_models.loss, (X, Y, WEIGHTS[:, None])),
        (tokens, keras3_models.loss, (TOKENS, NEXT, OF_STEPS[..., None])),
        (dense, OfCells, (X, ONE_HOT, WEIGHTS[:, None] * ONE_HOT)),
    ],
)
def test_weights_that_keras_brings_into_shape_are_taken(make, loss, batch):
    data = tf.data.Dataset.from_tensor_slices(batch).batch(2)
    keras_model = make()
    algorithms.build_fed_avg(
        lambda: models.from_keras3(keras_model, loss(), data.element_spec), 0.1
    )


@pytest.mark.parametrize("reduction", ["none", None])
@pytest.mark.parametrize("make", [dense, two_outputs])
def test_a_loss_without_reduction_is_refused(make, reduction):
    # The fit of Keras trains on the sum of its values.
    loss = keras.losses.SparseCategoricalCrossentropy(True, reduction=reduction)
    is_one = make is dense
    batch = (X, Y if is_one else (Y, Y))
    data = tf.data.Dataset.from_tensor_slices(batch).batch(2)
    keras_model = make()
    with pytest.raises(ValueError, match=r"^loss.* reduction=.*sum_over_batch_size"):
        algorithms.build_fed_avg(
            lambda: models.from_keras3(
                keras_model, loss if is_one else [loss] * 2, data.element_spec
            ),
            0.1,
        )


def test_metrics_are_weighted_as_in_fit():
    def metrics(name):
        return [keras.metrics.SparseCategoricalAccuracy(name)]

    keras_model = dense()
    keras_model.compile(
        "sgd",
        keras3_models.loss(),
        metrics=metrics("plain"),
        weighted_metrics=metrics("weighted"),
    )
    expected = keras_model.evaluate(
        X, Y, sample_weight=WEIGHTS, verbose=0, return_dict=True
    )
    batch = (X, Y, WEIGHTS)
    test = simulation.ClientDatasets.from_arrays(
        {
            "a": tuple(leaf[:2] for leaf in batch),
            "b": tuple(leaf[2:] for leaf in batch),
        },
        batch_size=2,
    )

    def model_fn():
        return models.from_keras3(
            keras_model,
            keras3_models.loss(),
            test.element_spec,
            metrics("plain"),
            class_weight=OF_CLASSES,
            weighted_metrics=metrics("weighted"),
        )

    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric="weighted")
    found = evaluate(keras3_models.weights(keras_model))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5)


def test_several_labels_of_an_example_have_no_class_weight():
    spec = tf.TensorSpec([None, 3], tf.int64), tf.TensorSpec([None, 3], tf.int64)
    with pytest.raises(ValueError, match="class_weight needs one label for each"):
        models.from_keras3(
            tokens(), keras3_models.loss(), spec, class_weight=OF_CLASSES
        )


@pytest.mark.parametrize("name", ["f1", "r2"])
def test_metrics_that_make_their_variables_late(name):
    make = {"f1": lambda: keras.metrics.F1Score("macro"), "r2": keras.metrics.R2Score}
    labels = np.eye(3, dtype=np.float32)[Y]
    keras_model = dense()
    keras_model.compile("sgd", "mse", metrics=[make[name]()])
    expected = keras_model.evaluate(X, labels, verbose=0, return_dict=True)
    test = simulation.ClientDatasets.from_arrays(
        {"a": (X[:2], labels[:2]), "b": (X[2:], labels[2:])}, batch_size=3
    )

    def model_fn():
        return models.from_keras3(
            keras_model,
            keras.losses.MeanSquaredError(),
            test.element_spec,
            [make[name]],
        )

    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    found = evaluate(keras3_models.weights(keras_model))
    for metric, value in expected.items():
        np.testing.assert_allclose(found[metric], value, rtol=1e-5)


def test_a_layer_that_is_adapted_to_a_dataset_in_the_model_function():
    def model_fn():
        layer = keras.layers.Normalization()
        layer.adapt(tf.data.Dataset.from_tensor_slices(X).batch(2))
        keras_model = keras.Sequential(
            [keras.layers.Input([4]), layer, keras.layers.Dense(3)]
        )
        spec = tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int64)
        return models.from_keras3(keras_model, keras3_models.loss(), spec)

    with pytest.raises(ValueError, match=r"Normalization\(mean="):
        algorithms.build_fed_avg(model_fn, 0.1)


def test_a_task_of_ones_own_data_takes_a_model_of_keras_3():
    pd = pytest.importorskip("pandas")
    import tasks

    frame = pd.DataFrame(
        {"owner": list("aabbbb"), "label": Y, **dict(zip("wxyz", X.T, strict=True))}
    )

    def build_keras_model():
        return keras.Sequential(
            [
                keras.layers.Input([4]),
                keras.layers.Dense(3, kernel_initializer="zeros"),
            ]
        )

    task = tasks.from_frame(
        frame,
        client_id="owner",
        label="label",
        test=frame,
        build_keras_model=build_keras_model,
    )
    result = simulation.run_training(
        algorithms.build_fed_avg(task.model_fn, 0.5),
        task.train,
        rounds=1,
        cohort_size=2,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    )
    keras_model = build_keras_model()
    keras_model.compile(
        keras.optimizers.SGD(0.5),
        keras3_models.loss(),
        metrics=keras3_models.metrics(),
    )
    # A batch for each client: their mean by examples is a step on all of them.
    keras_model.train_on_batch(X, Y)
    for found, expected in zip(
        result.model_weights.trainable,
        keras_model.get_weights(),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    _, accuracy = keras_model.evaluate(X, Y, verbose=0)
    np.testing.assert_allclose(result.rows[-1]["test_accuracy"], accuracy, rtol=1e-5)
    with pytest.raises(ValueError, match="an output for each"):
        tasks.from_frame(
            frame,
            client_id="owner",
            label="label",
            build_keras_model=lambda: keras.Sequential(
                [keras.layers.Input([4]), keras.layers.Dense(2)]
            ),
        )


def test_a_task_that_predicts_a_number_takes_a_model_of_keras_3():
    pd = pytest.importorskip("pandas")
    import tasks

    frame = pd.DataFrame(
        {"owner": list("aabbbb"), **dict(zip("vwxy", X.T, strict=True))}
    )

    def build_keras_model():
        return keras.Sequential(
            [
                keras.layers.Input([3]),
                keras.layers.Dense(1, kernel_initializer="zeros"),
            ]
        )

    task = tasks.from_frame(
        frame,
        client_id="owner",
        label="y",
        test=frame,
        build_keras_model=build_keras_model,
    )
    result = simulation.run_training(
        algorithms.build_fed_avg(task.model_fn, 0.1),
        task.train,
        rounds=1,
        cohort_size=2,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    )
    keras_model = build_keras_model()
    keras_model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    keras_model.train_on_batch(X[:, :3], X[:, 3])
    for found, expected in zip(
        result.model_weights.trainable, keras_model.get_weights(), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    _, error = keras_model.evaluate(X[:, :3], X[:, 3], verbose=0)
    np.testing.assert_allclose(result.rows[-1]["test_mae"], error, rtol=1e-5)
