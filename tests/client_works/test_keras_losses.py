"""A client's step of a Keras 2 model is Keras' own: with masks and added losses."""

import functools
import itertools
from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.client_works import against_keras
from tests.client_works.keras2_models import (
    FEATURES,
    NEXT,
    STEPS,
    TOKENS,
    embedded,
    loss_of,
    masked,
    penalized,
    regularized,
)
from tff_drift import algorithms, models, simulation

L = tf.keras.layers


def with_loss_of_the_model():
    inputs = tf.keras.Input([5])
    hidden = L.Dense(3)(inputs)
    keras_model = tf.keras.Model(inputs, L.Dense(5)(hidden))
    keras_model.add_loss(0.1 * tf.reduce_mean(hidden**2))
    return keras_model


MODELS = {
    embedded: (TOKENS, NEXT),
    masked: (STEPS, NEXT),
    regularized: (FEATURES, FEATURES),
    penalized: (FEATURES, FEATURES),
    with_loss_of_the_model: (FEATURES, FEATURES),
}


@pytest.mark.no_smoke
@pytest.mark.parametrize("context", tiers.first(["local"], ["local", "native"]))
@pytest.mark.parametrize("build", tiers.first([1], MODELS.keys()))
def test_a_step_of_a_client_is_a_step_of_keras(native_context, build, context):
    batch = MODELS[build]
    begin, expected, _ = against_keras.step_of_keras(build(), loss_of(batch), batch)

    def model_fn():
        spec = against_keras.spec_of(batch)
        return tff.learning.models.from_keras_model(build(), loss_of(batch), spec)

    installed = against_keras.local() if context == "local" else nullcontext()
    with installed:
        trained, metrics = against_keras.step(model_fn, begin, batch)
    against_keras.assert_alike(trained, expected)
    assert not np.allclose(trained[-1], begin[-1], atol=1e-4)
    assert metrics["num_examples"] == 2


def test_a_mask_of_other_values_than_those_of_the_loss_is_refused():
    batch = (TOKENS, NEXT.astype(np.float32))

    def model_fn():
        numbers = tf.keras.Sequential([*embedded().layers[:-1], L.Dense(1)])
        spec = against_keras.spec_of(batch)
        loss = tf.keras.losses.MeanSquaredError()
        return tff.learning.models.from_keras_model(numbers, loss, spec)

    with pytest.raises(ValueError, match=r"with a mask.*y\[\.\.\., None\]"):
        algorithms.build_fed_avg(model_fn, 0.1)


@pytest.mark.no_smoke
def test_padding_is_in_no_metric():
    """As in `fit`: 3 steps of 8 count, whose labels are 1, 2 and 2."""
    keras_model = embedded()
    begin = keras_model.get_weights()
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy
    keras_model.compile("sgd", loss_of((TOKENS, NEXT)), [accuracy()])
    expected = keras_model.evaluate(TOKENS, NEXT, verbose=0, return_dict=True)
    logits = keras_model.predict(TOKENS, verbose=0)
    shown = [logits[0, 0], logits[0, 1], logits[1, 0]]
    by_hand = [
        np.log(np.exp(row).sum()) - row[label]
        for row, label in zip(shown, [1, 2, 2], strict=True)
    ]
    np.testing.assert_allclose(expected["loss"], np.mean(by_hand), rtol=1e-6)

    def model_fn():
        return tff.learning.models.from_keras_model(
            embedded(),
            loss_of((TOKENS, NEXT)),
            against_keras.spec_of((TOKENS, NEXT)),
            metrics=[accuracy()],
        )

    with against_keras.local():
        _, metrics = against_keras.step(model_fn, begin, (TOKENS, NEXT))
    test = simulation.ClientDatasets.from_arrays({"a": (TOKENS, NEXT)}, batch_size=2)
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    evaluated = evaluate(tff.learning.models.ModelWeights(begin, []))
    for found in (metrics, evaluated):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)
        assert found["num_examples"] == 2


@pytest.mark.parametrize(
    "name", tiers.first(["fed_sgd"], ["fed_sgd", "uga", "mime", "fed_meta"])
)
def test_the_gradients_of_other_methods_leave_padding_out(name):
    """Labels of hidden steps change nothing."""
    other = NEXT.copy()
    other[TOKENS == 0] = 0
    begin = embedded().get_weights()

    def model_fn():
        spec = against_keras.spec_of((TOKENS, NEXT))
        return tff.learning.models.from_keras_model(
            embedded(), loss_of((TOKENS, NEXT)), spec
        )

    @functools.cache
    def build(meta_data):
        if name == "fed_sgd":
            return algorithms.build_fed_sgd(model_fn, 0.5)
        if name == "mime":
            sgdm = tff.learning.optimizers.build_sgdm(0.5, 0.9)
            return algorithms.build_mime(model_fn, sgdm)
        if name == "uga":
            return algorithms.build_uga(model_fn, 0.5, 0.5, local_epochs=1)
        return algorithms.build_fed_meta(model_fn, 0.5, meta_data)

    def trained(labels):
        data = tf.data.Dataset.from_tensors((TOKENS, labels))
        process = build(data if name == "fed_meta" else None)
        return against_keras.round_of(process, begin, data)[0]

    with against_keras.local():
        one, two = trained(NEXT), trained(other)
    for found, wanted in zip(one, two, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not np.allclose(one[-1], begin[-1], atol=1e-4)


def test_losses_of_layers_of_half_precision():
    """The kernel is all ones: its regularizer adds 0.1 · 5."""
    hidden = L.Dense(
        1,
        input_shape=[5],
        dtype="mixed_float16",
        kernel_initializer="ones",
        kernel_regularizer=tf.keras.regularizers.L2(0.1),
    )
    labels = np.float32([[1.0], [2.0]])
    model = models.from_keras2(
        tf.keras.Sequential([hidden]),
        tf.keras.losses.MeanSquaredError(),
        against_keras.spec_of((FEATURES, labels)),
    )
    expected = np.mean((FEATURES.sum(axis=1) - labels[:, 0]) ** 2) + 0.5
    found = model.forward_pass((FEATURES, labels)).loss
    np.testing.assert_allclose(found, expected, rtol=2e-3)


@pytest.mark.parametrize("bad", ["mse", tf.keras.losses.mean_squared_error])
def test_what_is_no_loss_of_keras_2_is_named(bad):
    inputs = tf.keras.Input([5])
    one, two = (
        tf.keras.Model(inputs, [L.Dense(5, name=name)(inputs) for name in names])
        for names in ("a", "ab")
    )
    spec = against_keras.spec_of((FEATURES, FEATURES))
    spec_of_two = against_keras.spec_of((FEATURES, (FEATURES, FEATURES)))
    good = tf.keras.losses.MeanSquaredError()
    for keras_model, loss, given, name in (
        (one, bad, spec, "loss"),
        (two, [good, bad], spec_of_two, r"loss\[1\]"),
        (two, {"a": bad, "b": good}, spec_of_two, r"loss\['a'\]"),
    ):
        with pytest.raises(TypeError, match=rf"^{name} must be .*MeanSquaredError\(\)"):
            models.from_keras2(keras_model, loss, given)


def test_constraints_of_weights_are_refused():
    def constrained(trainable=True):
        hidden = L.Dense(3, input_shape=[5], kernel_constraint="non_neg")
        hidden.trainable = trainable
        return tf.keras.Sequential([hidden, L.Dense(5)])

    loss = tf.keras.losses.MeanSquaredError()
    spec = against_keras.spec_of((FEATURES, FEATURES))
    make = tff.learning.models.from_keras_model
    for model_fn in (
        lambda: make(constrained(), loss, spec),
        lambda: models.from_keras2(constrained(), loss, spec),
        tff.learning.models.functional_model_from_keras(constrained, loss, spec),
    ):
        with pytest.raises(ValueError, match=r"constraint of its weight '.*kernel:0'"):
            algorithms.build_fed_avg(model_fn, 0.1)
    # A weight that is not trained stays what it is.
    models.from_keras2(constrained(trainable=False), loss, spec)


class WithoutInput(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = L.Dense(5, kernel_initializer="zeros")

    def call(self, inputs):
        return self.dense(inputs)


_WITHOUT_INPUT = {
    "sequential": lambda: tf.keras.Sequential([L.Dense(5, kernel_initializer="zeros")]),
    "model": WithoutInput,
}
_MAKE = {
    "from_keras_model": tff.learning.models.from_keras_model,
    "from_keras2": models.from_keras2,
}


def _without_input(kind, make, begin=None):
    keras_model = _WITHOUT_INPUT[kind]()
    if begin == "build":
        keras_model.build([None, 5])
    elif begin == "call":
        keras_model(FEATURES)
    spec = against_keras.spec_of((FEATURES, FEATURES))
    return _MAKE[make](keras_model, tf.keras.losses.MeanSquaredError(), spec)


@pytest.mark.parametrize("make", list(_MAKE))
@pytest.mark.parametrize("kind", list(_WITHOUT_INPUT))
def test_a_model_of_keras_2_without_input_has_to_be_built(kind, make):
    with pytest.raises(ValueError, match=r"^keras_model is .* tf\.keras\.Input"):
        algorithms.build_fed_avg(lambda: _without_input(kind, make), 0.1)


@pytest.mark.parametrize(
    ("kind", "make", "begin"),
    # Each of these once in the first tier.
    tiers.first([0, 7], itertools.product(_WITHOUT_INPUT, _MAKE, ["build", "call"])),
)
def test_a_model_of_keras_2_that_was_built_trains_without_input(kind, make, begin):
    # A step from zero towards ones, by the mean of five squares of one example.
    features = np.ones([1, 5], np.float32)
    with against_keras.local():
        process = algorithms.build_fed_avg(
            lambda: _without_input(kind, make, begin), 0.5
        )
        output = process.next(process.initialize(), [[(features, features)]])
    kernel, bias = output.state.global_model_weights.trainable
    np.testing.assert_allclose(kernel, np.full([5, 5], 0.2), rtol=1e-6)
    np.testing.assert_allclose(bias, np.full([5], 0.2), rtol=1e-6)


def test_a_layer_that_is_adapted_in_the_model_function_is_refused():
    def model_fn():
        layer = L.Normalization()
        layer.adapt(FEATURES)
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.Input([5]), layer, L.Dense(5)]),
            tf.keras.losses.MeanSquaredError(),
            against_keras.spec_of((FEATURES, FEATURES)),
        )

    with pytest.raises(ValueError, match=r"Normalization\(mean=") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(error.value)) < 1200


LOOKUPS = {
    "strings": lambda **more: L.StringLookup(
        vocabulary=["a", "b"], output_mode="multi_hot", **more
    ),
    "integers": lambda **more: L.IntegerLookup(
        vocabulary=[1, 2], output_mode="count", **more
    ),
    "text": lambda **more: L.TextVectorization(
        vocabulary=["a", "b"], output_mode="multi_hot", **more
    ),
}


@pytest.mark.parametrize("name", tiers.first(["strings"], list(LOOKUPS)))
def test_a_lookup_that_counts_its_tokens_is_refused_with_what_to_give_it(name):
    dtype = tf.int64 if name == "integers" else tf.string

    def model_fn(**more):
        inputs = tf.keras.Input([1], dtype=dtype)
        outputs = L.Dense(1)(LOOKUPS[name](**more)(inputs))
        return tff.learning.models.from_keras_model(
            tf.keras.Model(inputs, outputs),
            tf.keras.losses.MeanSquaredError(),
            (tf.TensorSpec([None, 1], dtype), tf.TensorSpec([None, 1])),
        )

    with pytest.raises(ValueError, match=r"max_tokens=.* pad_to_max") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert "made outside" not in str(error.value)
    assert len(str(error.value)) < 800
    given = {"max_tokens": 3, "pad_to_max_tokens": True}
    process = algorithms.build_fed_avg(lambda: model_fn(**given), 0.1)
    kernel, _ = process.get_model_weights(process.initialize()).trainable
    # Two tokens, and one for all others.
    assert kernel.shape == (3, 1)


@pytest.mark.parametrize("name", tiers.first(["text"], ["text", "strings", "own"]))
def test_a_weight_without_a_shape_of_its_own_is_refused(name):
    class Own(L.Layer):
        def build(self, _):
            self.scale = tf.Variable([1.0], shape=[None], trainable=False)

        def call(self, inputs):
            is_a = tf.cast(tf.equal(inputs, "a"), tf.float32)
            return is_a * tf.reduce_sum(self.scale)

    tf_idf = {
        "vocabulary": ["a", "b"], "idf_weights": [0.5, 0.7], "output_mode": "tf_idf",
        "max_tokens": 3, "pad_to_max_tokens": True,
    }  # fmt: skip
    layers = {
        "text": lambda: L.TextVectorization(**tf_idf),
        "strings": lambda: L.StringLookup(**tf_idf),
        "own": Own,
    }

    def model_fn():
        inputs = tf.keras.Input([1], dtype=tf.string)
        outputs = L.Dense(1)(layers[name]()(inputs))
        return tff.learning.models.from_keras_model(
            tf.keras.Model(inputs, outputs),
            tf.keras.losses.MeanSquaredError(),
            (tf.TensorSpec([None, 1], tf.string), tf.TensorSpec([None, 1])),
        )

    with pytest.raises(ValueError, match=r"has the shape \(None,\).*tf_idf") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert len(str(error.value)) < 400
