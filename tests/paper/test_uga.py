"""Yao et al. (2019), UGA: what the paper says must hold.

Federated Learning with Unbiased Gradient Aggregation and Controllable Meta Updating.
https://arxiv.org/abs/1910.08234
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, stateful, tiers
from tests.paper import reference
from tff_drift import algorithms, client_works, optimizers
from tff_drift.client_works import keep_trace
from tff_drift.layers import GRU, LSTM, Dropout, step_seed

RATE = 0.3
EPOCHS = 2
BATCH_SIZE = 4
CLIENTS = models.client_arrays([10, 7], seed=3)


def build_uga(model_fn=models.softmax_regression, local_epochs=EPOCHS):
    return algorithms.build_uga(model_fn, RATE, 1.0, local_epochs=local_epochs)


def repeated(clients, epochs=EPOCHS):
    return [data.repeat(epochs) for data in models.datasets(clients, BATCH_SIZE)]


# A net of one hidden layer, and its loss as a function of its weights.

DROPOUT_RATE = 0.4


def hidden_layer():
    return tf.keras.layers.Dense(
        5,
        activation="tanh",
        kernel_initializer=tf.keras.initializers.GlorotUniform(seed=3),
    )


def net_with_dropout():
    return models.from_keras(
        models.keras_softmax_regression(hidden_layer(), Dropout(DROPOUT_RATE))
    )


def functional_net():
    return models.functional(lambda: models.keras_softmax_regression(hidden_layer()))


def hidden_net_loss(weights, batch, seed, dropout_rate):
    first, first_bias, last, last_bias = weights
    features, labels = batch
    hidden = tf.tanh(features @ first + first_bias)
    hidden = tf.nn.experimental.stateless_dropout(
        hidden,
        dropout_rate,
        seed=tf.random.experimental.stateless_fold_in(seed, 0),
        rng_alg="philox",
    )
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels, hidden @ last + last_bias
        )
    )


def gradient_by_nested_tapes(weights, client, dropout_rate):
    """∇_ω L(ω⁽ᴷ⁾(ω); D) by one graph of all steps."""
    features, labels = client
    batches = [
        (
            tf.constant(features[start : start + 4]),
            tf.constant(labels[start : start + 4]),
        )
        for start in range(0, len(labels), BATCH_SIZE)
    ] * EPOCHS
    num_steps = len(batches) // EPOCHS * (EPOCHS - 1)
    start = [tf.constant(tensor) for tensor in weights]
    with tf.GradientTape() as outer:
        outer.watch(start)
        current = start
        for step, batch in enumerate(batches[:num_steps]):
            seed = step_seed.build_step_seed(0, step, batch)
            with tf.GradientTape() as inner:
                inner.watch(current)
                loss = hidden_net_loss(current, batch, seed, dropout_rate)
            gradients = inner.gradient(loss, current)
            current = [w - RATE * g for w, g in zip(current, gradients, strict=True)]
        total = 0.0
        for step, batch in enumerate(batches[num_steps:], num_steps):
            seed = step_seed.build_step_seed(0, step, batch)
            loss = hidden_net_loss(current, batch, seed, dropout_rate)
            total += loss * len(batch[1]) / len(labels)
    return [tensor.numpy() for tensor in outer.gradient(total, start)]


@pytest.mark.no_smoke
@pytest.mark.parametrize(
    ("model_fn", "dropout_rate"),
    tiers.first([0], [(net_with_dropout, DROPOUT_RATE), (functional_net(), 0.0)]),
    ids=["with dropout", "functional, without dropout"],
)
def test_the_update_equals_nested_tapes(model_fn, dropout_rate, each_context):
    process = build_uga(model_fn)
    state = process.initialize()
    before = models.trainable(process, state)
    after = models.trainable(process, process.next(state, repeated(CLIENTS)).state)
    expected = [np.zeros_like(tensor) for tensor in before]
    for client in CLIENTS:
        gradient = gradient_by_nested_tapes(before, client, dropout_rate)
        expected = [
            e + len(client[1]) / 17 * g for e, g in zip(expected, gradient, strict=True)
        ]
    for old, new, mean in zip(before, after, expected, strict=True):
        np.testing.assert_allclose(old - new, mean, atol=1e-5)


@pytest.mark.conformance
def test_with_one_epoch_it_is_fed_sgd(each_context):
    uga = build_uga(local_epochs=1)
    fed_sgd = algorithms.build_fed_sgd(models.softmax_regression, 1.0)
    data = repeated(CLIENTS, 1)
    one, _ = models.train(uga, data, rounds=2)
    other, _ = models.train(fed_sgd, data, rounds=2)
    models.assert_bit_equal(
        models.trainable(uga, one), models.trainable(fed_sgd, other)
    )


def quadratic_uga(w, batches, epochs, rate):
    """g and the iterates of UGA on a quadratic, whose Hessians are matrices."""
    num_steps = len(batches) // epochs * (epochs - 1)
    hessians = []
    for features, targets in batches[:num_steps]:
        w = w - rate * reference.batch_gradient(w, (features, targets))
        hessians.append(features.T @ features / len(targets))
    g = reference.full_gradient(w, batches[num_steps:])
    for hessian in reversed(hessians):
        g = g - rate * hessian @ g
    return g


def model_vector(process, state):
    return np.concatenate([part.ravel() for part in models.trainable(process, state)])


def test_quadratics_by_hand_and_in_numpy():
    epochs, decay = 2, 0.5
    process = algorithms.build_uga(
        stateful.LinearRegression,
        RATE,
        0.7,
        local_epochs=epochs,
        client_rate_schedule=optimizers.per_round_factor(decay),
    )
    # One traced step on 2 (w - 3)² / 2 from 0: ω¹ = 0.3 · 2 · 3 = 1.8, and
    # g = (1 - 0.3 · 2) · 2 (1.8 - 3) = -0.96.
    client = stateful.axis_client(2.0, 3.0, steps=epochs)
    state = process.next(process.initialize(), [client.dataset()]).state
    np.testing.assert_allclose(
        model_vector(process, state), [0.7 * 0.96, 0, 0, 0, 0], rtol=1e-6
    )
    # Batches of three with short last ones, two rounds, the second at half the rate.
    clients = stateful.ragged_clients([5, 1, 7], epochs=epochs).values()
    state, expected = process.initialize(), np.zeros(stateful.DIMENSION)
    for round_number in range(2):
        output = process.next(state, [client.dataset() for client in clients])
        state = output.state
        gradients = [
            quadratic_uga(
                expected, client.batches(), epochs, RATE * decay**round_number
            )
            for client in clients
        ]
        expected = expected - 0.7 * np.average(gradients, axis=0, weights=[5, 1, 7])
        metrics = output.metrics["client_work"]
        assert metrics["learning_rate"] == np.float32(RATE * decay**round_number)
        assert metrics["rejected_clients"] == 0
        np.testing.assert_allclose(model_vector(process, state), expected, rtol=1e-4)


def convolutional_net():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input([6, 6, 1], dtype="float64"),
            layers.Conv2D(3, 3, activation="tanh", dtype="float64"),
            layers.MaxPool2D(2, dtype="float64"),
            layers.Flatten(dtype="float64"),
            Dropout(0.4, dtype="float64"),
            layers.Dense(4, dtype="float64"),
        ]
    )


def net_of(*recurrent):
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input([5], dtype="int32"),
            layers.Embedding(7, 3, mask_zero=True, dtype="float64"),
            *recurrent,
            layers.Dense(4, dtype="float64"),
        ]
    )


def recurrent_net():
    return net_of(tf.keras.layers.GRU(4, dtype="float64"))


def compiled_recurrent_net():
    """Its layers write out their first and second derivatives."""
    first = LSTM(4, return_sequences=True, dtype="float64")
    return net_of(first, GRU(4, dtype="float64"))


def embedding_net():
    """Its gradients are slices, which decay and clipping must take."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input([5], dtype="int32"),
            layers.Embedding(7, 3, dtype="float64"),
            layers.Flatten(dtype="float64"),
            layers.Dense(4, dtype="float64"),
        ]
    )


def images(random, size):
    return random.normal(size=[size, 6, 6, 1])


def sequences(random, size):
    return random.integers(0, 7, size=[size, 5]).astype(np.int32)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("net", "draw", "decay", "norm"),
    [
        (convolutional_net, images, 0.0, None),
        (recurrent_net, sequences, 0.0, None),
        (compiled_recurrent_net, sequences, 0.3, 0.25),
        (embedding_net, sequences, 0.3, 0.25),
    ],
)
def test_the_gradient_agrees_with_finite_differences(net, draw, decay, norm):
    random = np.random.default_rng(0)
    keras_model = net()
    variables = keras_model.trainable_variables
    initial = [0.5 * random.normal(size=variable.shape) for variable in variables]
    features, labels = draw(random, 5), random.integers(0, 4, 5)
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(3).repeat(2)
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    seed = tf.Variable([0, 0], dtype=tf.int64)

    @tf.function
    def loss_and_slope(batch):
        with step_seed.step_seed(seed), tf.GradientTape() as tape:
            loss = loss_fn(batch[1], keras_model(batch[0], training=True))
        return loss, tape.gradient(loss, variables)

    def loss_after_training(weights):
        """L(ω⁽ᴷ⁾(ω); D), by training."""
        for variable, weight in zip(variables, weights, strict=True):
            variable.assign(weight)
        total = 0.0
        for step, batch in enumerate(data):
            seed.assign(step_seed.build_step_seed(0, step, batch))
            loss, slopes = loss_and_slope(batch)
            if step < 2:
                slopes = [tf.convert_to_tensor(slope) for slope in slopes]
                length = np.sqrt(sum(np.sum(np.square(slope)) for slope in slopes))
                # With a norm, both steps are clipped.
                factor = 1.0 if norm is None else norm / length
                assert factor == 1.0 if norm is None else factor < 1.0
                for variable, slope in zip(variables, slopes, strict=True):
                    variable.assign_sub(RATE * (factor * slope + decay * variable))
            else:
                total += float(loss) * len(batch[1]) / 5
        return total

    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.models.clone_model(keras_model),
            loss=loss_fn,
            input_spec=data.element_spec,
        )

    model, replay = (client_works.build_model_spec(model_fn).build() for _ in range(2))
    sgd = client_works.LocalSgd(RATE, decay, norm)

    @tf.function
    def gradient(trainable):
        return keep_trace.run_keep_trace(
            sgd,
            model,
            replay,
            tff.learning.models.ModelWeights(trainable, []),
            data,
            context=client_works.LocalContext(
                tuple(trainable),
                collections.OrderedDict(learning_rate=tf.constant(RATE)),
                tf.constant(0),
            ),
            local_epochs=2,
        ).update

    slope = gradient([tf.constant(weight) for weight in initial])
    for _ in range(3):
        direction = [random.normal(size=weight.shape) for weight in initial]
        step = 1e-5
        ahead, behind = (
            loss_after_training(
                [w + s * d for w, d in zip(initial, direction, strict=True)]
            )
            for s in (step, -step)
        )
        projected = sum(np.sum(g * d) for g, d in zip(slope, direction, strict=True))
        np.testing.assert_allclose(projected, (ahead - behind) / (2 * step), rtol=1e-5)


@pytest.fixture(scope="module")
def uga():
    return build_uga()


@pytest.mark.conformance
def test_a_client_that_breaks_down_is_rejected_and_an_empty_one_does_not_count(uga):
    broken = (np.full([2, 3], np.nan, np.float32), np.zeros([2], np.int32))
    empty = (np.zeros([0, 3], np.float32), np.zeros([0], np.int32))
    state = uga.initialize()
    alone = uga.next(state, repeated(CLIENTS[:1]))
    output = uga.next(state, repeated([CLIENTS[0], broken, empty]))
    models.assert_bit_equal(
        models.trainable(uga, output.state), models.trainable(uga, alone.state)
    )
    assert output.metrics["client_work"]["rejected_clients"] == 1
    assert output.metrics["client_work"]["train"]["num_examples"] == 10 * EPOCHS


# Of batches of four: five, and six of which the last three hold fewer examples.
MISUSES = [(17, "number of batches is not a multiple"), (22, "same number of examples")]


@pytest.mark.parametrize(("size", "message"), MISUSES)
def test_datasets_with_another_number_of_epochs_are_refused(
    size, message, uga, each_context
):
    client = models.client_arrays([size])
    with pytest.raises(Exception, match=f"local_epochs is {EPOCHS}.*{message}"):
        uga.next(uga.initialize(), repeated(client, 1))


@pytest.mark.parametrize("local_epochs", [0, -2, 1.5, True])
def test_local_epochs_must_be_a_count(local_epochs):
    with pytest.raises((TypeError, ValueError), match="local_epochs must be"):
        build_uga(local_epochs=local_epochs)


def test_options_are_checked():
    for options, message in (
        ({"client_wieght_decay": 0.1}, "Did you mean client_weight_decay"),
        ({"evaluated_model": "cloud"}, "unexpected keyword argument 'evaluated_model'"),
    ):
        with pytest.raises(TypeError, match=message):
            algorithms.build_uga(
                models.softmax_regression, RATE, 1.0, local_epochs=2, **options
            )
    adam = tff.learning.optimizers.build_adam(RATE)
    with pytest.raises(TypeError, match="the rate of plain SGD"):
        algorithms.build_uga(models.softmax_regression, adam, 1.0, local_epochs=2)


def test_rates_are_checked():
    with pytest.raises(ValueError, match="client_learning_rate must be"):
        algorithms.build_uga(models.softmax_regression, -1, 1.0, local_epochs=2)
    with pytest.raises(ValueError, match="server_optimizer_fn must be"):
        algorithms.build_uga(models.softmax_regression, 1.0, 0, local_epochs=2)


def test_models_that_cannot_be_replayed_are_refused_by_the_operation():
    layers = tf.keras.layers

    def with_layers(before):
        return lambda: models.from_keras(models.keras_softmax_regression(*before()))

    def without_second_gradient():
        normalize = layers.Lambda(tf.nn.local_response_normalization)
        return layers.Reshape([1, 1, 3]), normalize, layers.Flatten()

    with pytest.raises(ValueError, match="operation LRNGrad has no gradient"):
        build_uga(with_layers(without_second_gradient))
    with pytest.raises(ValueError, match=r"RandomUniform draws .*layers\.Dropout"):
        build_uga(with_layers(lambda: [layers.Dropout(0.5)]))
