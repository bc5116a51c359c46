"""Losses of functions, names of metrics and shared outputs are as in Keras 3 itself."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import keras3_models
from tff_drift import algorithms, models

pytestmark = keras3_models.needed

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=[8, 4]).astype(np.float32)
WORDS = RANDOM.integers(1, 10, [8, 6]).astype(np.int32)
WORDS[:, 3:] = 0


def square(labels, predictions):
    return keras.ops.square(labels - predictions)


def crossentropy(labels, predictions):
    return keras.losses.sparse_categorical_crossentropy(labels, predictions, True)


def dense(*layers, dtype=None):
    last = keras.layers.Dense(1, dtype=dtype)
    return keras.Sequential([keras.layers.Input([4]), *layers, last])


def embedding():
    words = keras.layers.Embedding(10, 4, mask_zero=True)
    first = keras.layers.Input([6], dtype="int32")
    return keras.Sequential([first, words, keras.layers.Dense(10)])


def mixed_precision():
    policy = "mixed_float16"
    hidden = keras.layers.Dense(8, "relu", dtype=policy, kernel_regularizer="l2")
    return dense(hidden, dtype=policy)


def two_outputs():
    inputs = keras.layers.Input([4])
    layers = [keras.layers.Dense(1, name=name) for name in "ab"]
    return keras.Model(inputs, [layer(inputs) for layer in layers])


def shared_head():
    inputs = [keras.layers.Input([4], name=name) for name in "ab"]
    head = keras.layers.Dense(1, name="head")
    return keras.Model(inputs, [head(each) for each in inputs])


LABELS = RANDOM.normal(size=8).astype(np.float32)
INTEGERS = RANDOM.integers(0, 2, 8)
TWO = (LABELS, INTEGERS)
CASES = {
    "ranks": (dense, square, X, LABELS),
    "mask": (embedding, crossentropy, WORDS, np.roll(WORDS, -1, axis=1)),
    "mixed_precision": (mixed_precision, square, X, LABELS[:, None]),
    "integers": (dense, square, X, INTEGERS),
    "by_name": (two_outputs, {"a": square, "b": square}, X, TWO),
    "shared_head": (shared_head, [square, square], (X, 2 * X), TWO),
    "one_loss": (two_outputs, keras.losses.MeanSquaredError(), X, TWO),
}


def by_keras(keras_model, loss, batch):
    """The weights and the loss of a step of Keras 3."""
    copy = keras.models.clone_model(keras_model)
    copy.set_weights(keras_model.get_weights())
    copy.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    total = copy.train_on_batch(*batch, return_dict=True)["loss"]
    added = sum(map(float, keras_model.losses))
    return copy.get_weights(), total - added


@pytest.mark.parametrize(("make", "loss", "x", "y"), CASES.values(), ids=CASES)
def test_losses_of_functions_are_those_of_train_on_batch(make, loss, x, y):
    keras_model = make()
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

    def model_fn():
        return models.from_keras3(keras_model, loss, data.element_spec)

    weights, total = by_keras(keras_model, loss, (x, y))
    rounds = keras3_models.Rounds(algorithms.build_fed_avg(model_fn, 0.1), [data], 1)
    # Of float16, whose last bits differ with the order of operations.
    tolerance = 1e-3 if make is mixed_precision else 1e-6
    for actual, expected in zip(rounds.weights, weights, strict=True):
        np.testing.assert_allclose(actual, expected, atol=tolerance)
    np.testing.assert_allclose(rounds.metrics[0]["loss"], total, rtol=1e-5)


def test_one_function_of_all_outputs_gets_what_the_model_returns():
    keras_model = two_outputs()
    a, b = (keras.ops.squeeze(each, -1) for each in keras_model(X))
    data = tf.data.Dataset.from_tensor_slices((X, TWO)).batch(8)

    def loss(labels, outputs):
        (of_a, of_b), (first, second) = labels, outputs
        assert of_b.dtype == tf.int64
        return tf.squeeze(first * second, -1) * of_a

    def model_fn():
        return models.from_keras3(keras_model, loss, data.element_spec)

    rounds = keras3_models.Rounds(algorithms.build_fed_avg(model_fn, 0.1), [data], 1)
    expected = np.mean(a * b * LABELS)
    np.testing.assert_allclose(rounds.metrics[0]["loss"], expected, rtol=1e-5)


def test_outputs_of_one_layer_have_numbers():
    spec = tf.TensorSpec([None, 4]), tf.TensorSpec([None])
    with pytest.raises(ValueError, match=r"which are 'output_0', 'output_1', found"):
        models.from_keras3(
            shared_head(), [square], tuple((each, each) for each in spec)
        )


@pytest.fixture
def names():
    """The names of metrics, where Keras has made none of this class."""

    class Mine(keras.metrics.Mean):
        def __init__(self, name=None):
            super().__init__(name)

        def update_state(self, y_true, y_pred, sample_weight=None):
            super().update_state(y_pred)

    def build(*given):
        spec = tf.TensorSpec([None, 4]), tf.TensorSpec([None])
        metrics = [Mine(name) for name in given]
        finalizers = models.from_keras3(dense(), square, spec, metrics)
        return list(finalizers.metric_finalizers())[: len(given)]

    counts = collections.defaultdict(int)
    keras.src.backend.common.global_state.set_global_attribute(
        "object_name_uids", counts
    )
    return build


def test_metrics_keep_names_of_their_own_that_end_in_a_number(names):
    assert names("mine_1", "mine_2") == ["mine_1", "mine_2"]
    assert names(None, "mine_7", None) == ["mine", "mine_7", "mine_1"]
    assert names("mine_3", None) == ["mine_3", "mine"]


def test_metrics_are_refused_whose_names_may_be_keras_or_the_users(names):
    names(None, None, None, None)
    for given in (["mine_1", "mine_2"], ["mine_1", None], ["mine_1", "mine_1"]):
        with pytest.raises(ValueError, match=r"Keras may have made.*'mine_1'.*name="):
            names(*given)
    # Here it makes no difference.
    assert names(None, "mine_1") == ["mine", "mine_1"]
