"""Our recurrent layers against Keras': results, gradients, second derivatives."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tests import models, tiers
from tff_drift import algorithms, client_works, layers

BATCH, TIME, FEATURES, UNITS = 3, 7, 4, 5
RANDOM = np.random.default_rng(2)
INPUTS = RANDOM.normal(size=(BATCH, TIME, FEATURES)).astype(np.float32)
# A sequence that ends early, one with a gap, one that begins late.
MASK = np.ones([BATCH, TIME], bool)
MASK[0, 4:] = MASK[1, 3] = MASK[2, :2] = False
MASK = tf.constant(MASK)


_LAYERS = {
    "lstm": (layers.LSTM, tf.keras.layers.LSTM),
    "gru": (layers.GRU, tf.keras.layers.GRU),
}
KINDS = pytest.mark.parametrize(("ours", "keras"), _LAYERS.values(), ids=_LAYERS)
FIRST_KIND = pytest.mark.parametrize(("ours", "keras"), tiers.first(["lstm"], _LAYERS))


def _layers(ours, keras, **options):
    ours, keras = (kind(UNITS, **options) for kind in (ours, keras))
    for layer in (ours, keras):
        layer(INPUTS)  # Makes the weights.
    keras.set_weights(
        [RANDOM.normal(size=w.shape).astype(np.float32) for w in keras.get_weights()]
    )
    ours.set_weights(keras.get_weights())
    return ours, keras


def _loss(layer, inputs, mask):
    return tf.reduce_sum(tf.sin(3.0 * layer(inputs, mask=mask)))


def _results(layer, mask, derivatives):
    """Outputs, first derivatives, and second ones in a fixed direction."""
    arrays = [INPUTS, *layer.get_weights()]
    direction = [
        np.cos(np.arange(a.size, dtype=np.float32)).reshape(a.shape) for a in arrays
    ]

    def first(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = _loss(layer, inputs, mask)
        return tape.gradient(loss, [inputs, *layer.trainable_variables])

    def second(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            along = tf.add_n(
                [
                    tf.reduce_sum(g * d)
                    for g, d in zip(first(inputs), direction, strict=True)
                ]
            )
        return tape.gradient(along, [inputs, *layer.trainable_variables])

    @tf.function
    def results(inputs):
        of_inputs = second if "second" in derivatives else first
        return layer(inputs, mask=mask), of_inputs(inputs)

    uncompiled = "uncompiled" in derivatives
    with layers.uncompiled() if uncompiled else contextlib.nullcontext():
        if "eager" in derivatives:
            return tf.nest.flatten(results.python_function(tf.constant(INPUTS)))
        return tf.nest.flatten(results(tf.constant(INPUTS)))


@pytest.mark.no_smoke
@FIRST_KIND
@pytest.mark.parametrize("mask", tiers.first([1], [None, MASK], ["all", "masked"]))
@pytest.mark.parametrize(
    ("derivatives", "return_sequences"),
    tiers.first(
        [2],
        [
            ("first", False),
            ("second", False),
            ("second", True),
            ("second, eager", True),
            ("second, uncompiled", True),
        ],
    ),
)
def test_agrees_with_keras(ours, keras, mask, return_sequences, derivatives):
    ours, keras = _layers(ours, keras, return_sequences=return_sequences)
    actual, expected = (_results(each, mask, derivatives) for each in (ours, keras))
    assert len(actual) == len(expected) == 1 + 1 + 3
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.no_smoke
@FIRST_KIND
def test_third_derivatives_of_what_is_compiled_are_refused(ours, keras):
    ours, _ = _layers(ours, keras)
    kernel = ours.trainable_variables[0]
    with tf.GradientTape() as third:
        with tf.GradientTape() as second:
            with tf.GradientTape() as first:
                loss = _loss(ours, INPUTS, None)
            slope = tf.reduce_sum(first.gradient(loss, kernel))
        bend = tf.reduce_sum(second.gradient(slope, kernel))
    with pytest.raises(NotImplementedError, match=r"within tff_drift.layers.uncomp"):
        third.gradient(bend, kernel)


@pytest.mark.conformance
def test_uga_can_take_second_derivatives_of_a_model():
    # Where a model's own functions are traced, below the gradient's.
    spec = client_works.build_model_spec(_model_fn(layers.GRU))
    client_works.KeepTraceSgd(0.1, local_epochs=2).check_model(spec)


def test_a_step_of_an_lstm_by_hand():
    ours, _ = _layers(layers.LSTM, tf.keras.layers.LSTM)
    kernel, recurrent_kernel, bias = (w.astype(np.float64) for w in ours.get_weights())
    h = c = np.zeros([BATCH, UNITS])
    for t in range(2):
        z = INPUTS[:, t] @ kernel + h @ recurrent_kernel + bias
        i, f, g, o = np.split(z, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
    np.testing.assert_allclose(ours(INPUTS[:, :2]), h, rtol=1e-5, atol=1e-6)


def test_a_step_of_a_gru_by_hand():
    ours, _ = _layers(layers.GRU, tf.keras.layers.GRU)
    kernel, recurrent_kernel, bias = (w.astype(np.float64) for w in ours.get_weights())
    h = np.zeros([BATCH, UNITS])
    for t in range(2):
        a, s, v = np.split(INPUTS[:, t] @ kernel + bias[0], 3, axis=1)
        of_z, of_r, of_n = np.split(h @ recurrent_kernel + bias[1], 3, axis=1)
        z, r = 1 / (1 + np.exp(-a - of_z)), 1 / (1 + np.exp(-s - of_r))
        h = z * h + (1 - z) * np.tanh(v + r * of_n)
    np.testing.assert_allclose(ours(INPUTS[:, :2]), h, rtol=1e-5, atol=1e-6)


@FIRST_KIND
def test_sequences_of_unknown_length_and_batches_of_any_size(ours, keras):
    ours, keras = _layers(ours, keras)

    @tf.function(input_signature=[tf.TensorSpec([None, None, FEATURES])])
    def run(inputs):
        return ours(inputs)

    # Two lengths, one of no more rows than are filled up, one of many, one of none.
    for inputs in (INPUTS, INPUTS[:, :2], np.tile(INPUTS, [23, 1, 1]), INPUTS[:0]):
        expected = keras(inputs)
        for function in (run, ours):
            np.testing.assert_allclose(function(inputs), expected, atol=1e-5)
    compiled = run.get_concrete_function().graph.as_graph_def(add_shapes=False)
    assert "_XlaMustCompile" not in str(compiled)


@pytest.mark.parametrize(
    "options",
    [{"go_backwards": True}, {"activation": "relu"}, {"use_bias": False}],
    ids=lambda options: next(iter(options)),
)
@KINDS
def test_does_what_keras_does_where_it_has_no_faster_way(ours, keras, options):
    ours, keras = _layers(ours, keras, **options)
    np.testing.assert_array_equal(ours(INPUTS), keras(INPUTS))
    assert type(ours).from_config(ours.get_config()).get_config() == ours.get_config()


def _net(layer_type):
    return models.keras_softmax_regression(
        tf.keras.layers.Reshape([models.NUM_FEATURES, 1]),
        layer_type(
            4,
            kernel_initializer=tf.keras.initializers.GlorotUniform(3),
            recurrent_initializer=tf.keras.initializers.Orthogonal(seed=4),
        ),
    )


def _model_fn(layer_type):
    return lambda: models.from_keras(_net(layer_type))


def _flat(weights):
    return np.concatenate([np.ravel(each) for each in weights])


def test_a_round_of_federated_averaging():
    clients = models.client_arrays([6, 3])
    process = algorithms.build_fed_avg(_model_fn(layers.LSTM), 0.5)
    state, _ = models.train(process, models.datasets(clients, batch_size=4))
    # Each client by Keras alone, and their mean.
    net, expected = _net(tf.keras.layers.LSTM), 0.0
    net.compile(
        tf.keras.optimizers.SGD(0.5),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    initial = net.get_weights()
    for features, labels in clients:
        net.set_weights(initial)
        for start in range(0, len(labels), 4):
            batch = slice(start, start + 4)
            net.train_on_batch(features[batch], labels[batch])
        expected += len(labels) / 9 * _flat(net.get_weights())
    actual = _flat(models.trainable(process, state))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
    assert np.any(np.abs(actual - _flat(initial)) > 0.01)


@KINDS
def test_masked_outputs_may_be_zero(ours, keras):
    ours, keras = _layers(ours, keras, return_sequences=True, zero_output_for_mask=True)
    outputs = ours(tf.constant(INPUTS), mask=MASK)
    np.testing.assert_allclose(
        outputs, keras(tf.constant(INPUTS), mask=MASK), atol=1e-6
    )
    assert not np.asarray(outputs)[~MASK.numpy()].any()
    assert np.asarray(outputs)[MASK.numpy()].all()


@KINDS
def test_states_of_a_functional_model(ours, keras):
    """As a decoder has them: Keras gives them behind the sequences."""
    inputs = tf.keras.layers.Input([TIME, FEATURES])
    state = tf.keras.layers.Input([UNITS])
    states = state if keras is tf.keras.layers.GRU else [state, state]
    made = [
        tf.keras.Model([inputs, state], kind(UNITS)(inputs, initial_state=states))
        for kind in (ours, keras)
    ]
    made[0].set_weights(made[1].get_weights())
    given = [INPUTS, RANDOM.normal(size=(BATCH, UNITS)).astype(np.float32)]
    np.testing.assert_allclose(made[0](given), made[1](given), atol=1e-6)


@KINDS
def test_ragged_sequences(ours, keras):
    ours, keras = _layers(ours, keras)
    ragged = tf.RaggedTensor.from_tensor(INPUTS, lengths=[7, 2, 4])
    np.testing.assert_allclose(ours(ragged), keras(ragged), atol=1e-6)


@KINDS
def test_a_saved_model_is_loaded(ours, keras, tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Input([TIME, FEATURES]), ours(UNITS)])
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[0]) is ours
    np.testing.assert_array_equal(loaded(INPUTS), model(INPUTS))
