"""What kinds of models, inputs, outputs, losses and metrics of Keras 3 train."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import keras3_models
from tests import models as small
from tff_drift import algorithms, models, simulation

pytestmark = keras3_models.needed

CLIENTS = small.client_arrays([9, 6, 4], seed=2)


def batches(x, y, size=4):
    """The batches of one client, with inputs and labels of any structure."""
    return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(
        size
    )


def train(model_fn, data, rounds=3):
    process = algorithms.build_fed_avg(model_fn, 0.1)
    return keras3_models.Rounds(process, data, rounds)


def same_training(one, other):
    assert one.metrics == other.metrics
    small.assert_bit_equal(one.weights, other.weights)


def reference():
    """The training of the classifier that others below are."""
    model_fn = keras3_models.model_fn(keras3_models.softmax_regression())
    return train(model_fn, small.datasets(CLIENTS))


def test_equals_a_keras_model_of_its_own_in_each_call_of_the_model_function():
    def model_fn():
        return keras3_models.model_fn(keras3_models.softmax_regression())()

    same_training(train(model_fn, small.datasets(CLIENTS)), reference())


class Subclass(keras.Model if keras3_models.IS_THERE else object):
    """Layers get `training` from Keras, as `call` does not take it."""

    def __init__(self, rate=0.0):
        super().__init__()
        self.noise = Custom(rate)
        self.classes = keras.layers.Dense(
            small.NUM_CLASSES, kernel_initializer=keras.initializers.GlorotUniform(7)
        )

    def call(self, inputs):
        return self.classes(self.noise(inputs))


class Custom(keras.layers.Layer):
    """Scales its inputs in training alone."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def call(self, inputs, training=False):
        return inputs * (1.0 + self.rate) if training else inputs


def test_a_subclass_is_built_for_its_input():
    keras_model = Subclass()
    assert not keras_model.built
    model_fn = keras3_models.model_fn(keras_model)
    same_training(train(model_fn, small.datasets(CLIENTS)), reference())
    # Also where it is made in a graph.
    inside = train(
        lambda: keras3_models.model_fn(Subclass())(), small.datasets(CLIENTS)
    )
    same_training(inside, reference())


def build_alone():
    keras_model = Subclass()
    keras_model.build((None, small.NUM_FEATURES))  # Which builds none of its layers.
    return keras_model


def marked_built():
    keras_model = Subclass()
    keras_model.built = True
    return keras_model


@pytest.mark.parametrize("make", [build_alone, marked_built])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_layers_of_a_subclass_that_are_not_built_are_built_for_its_input(make):
    model_fn = keras3_models.model_fn(make())
    same_training(train(model_fn, small.datasets(CLIENTS)), reference())
    process = algorithms.build_fed_avg(model_fn, 0.1)
    with pytest.raises(ValueError, match=r"layers .*custom.*not built.* on a batch"):
        models.initial_weights_for(process, make())


def test_a_layers_loss_that_is_no_scalar_counts_by_its_sum():
    """As in `fit`."""

    class Adds(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(keras.ops.square(inputs))
            return inputs

    client = CLIENTS[0]
    keras_model = keras3_models.softmax_regression()
    keras_model = keras.Sequential([*keras_model.layers, Adds()])
    model_fn = keras3_models.model_fn(keras_model)
    trained = train(model_fn, small.datasets([client], 9), rounds=1)
    keras_model.compile(keras.optimizers.SGD(0.1), keras3_models.loss())
    keras_model.fit(*client, batch_size=9, verbose=0)
    for found, wanted in zip(trained.weights, keras_model.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_one_output_may_have_a_list_of_one_loss():
    keras_model = keras3_models.softmax_regression()
    client = CLIENTS[0]
    spec = small.INPUT_SPEC

    def loss_of(loss, **options):
        model = models.from_keras3(keras_model, loss, spec, **options)
        return model.forward_pass(client, training=False).loss

    alone = loss_of(keras3_models.loss())
    np.testing.assert_allclose(loss_of([keras3_models.loss()]), alone)
    halved = loss_of([keras3_models.loss()], loss_weights=[0.5])
    np.testing.assert_allclose(halved, 0.5 * alone)


def test_custom_layers_are_told_whether_they_train():
    keras_model = Subclass(rate=1.0)
    client = CLIENTS[0]
    keras_model(client[0])
    weights = keras3_models.weights(keras_model)
    trained = train(
        keras3_models.model_fn(keras_model), small.datasets([client], 9), rounds=1
    )
    gradient = small.softmax_gradient(weights.trainable, 2 * client[0], client[1])
    for actual, x, g in zip(trained.weights, weights.trainable, gradient, strict=True):
        np.testing.assert_allclose(actual, x - 0.1 * g, atol=1e-6)
    test = simulation.ClientDatasets.from_arrays({"a": client}, batch_size=9)
    evaluate = simulation.build_evaluation(keras3_models.model_fn(keras_model), test)
    expected = keras3_models.loss()(client[1], keras_model(client[0]))
    np.testing.assert_allclose(evaluate(weights)["loss"], expected, rtol=1e-6)


def test_frozen_layers_stay_as_they_are():
    keras_model = keras3_models.softmax_regression(keras.layers.Dense(5, "tanh"))
    keras_model.layers[0].trainable = False
    weights = keras3_models.weights(keras_model)
    assert [w.shape for w in weights.trainable] == [(5, 4), (4,)]
    trained = train(keras3_models.model_fn(keras_model), small.datasets(CLIENTS))
    small.assert_bit_equal(trained.weights[2:], weights.non_trainable)
    assert np.any(trained.weights[0] != weights.trainable[0])


def test_tensors_that_layers_and_losses_keep_are_taken():
    adapted = keras.layers.Normalization()
    adapted.adapt(3 + 2 * CLIENTS[0][0])
    # More numbers than TensorFlow takes for a small constant.
    mean = np.linspace(-1, 1, 200)
    keras_model = keras3_models.softmax_regression(
        adapted,
        keras.layers.Dense(200, kernel_regularizer=keras.regularizers.L1(0.02)),
        keras.layers.Normalization(mean=mean, variance=1 + mean**2),
    )
    of_class = tf.constant([1.0, 2.0, 0.5, 1.0])

    def loss(y, p):
        each = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
        # Losses get labels as floats, as in Keras.
        return each * tf.gather(of_class, tf.cast(y, tf.int32))

    def model_fn():
        return models.from_keras3(keras_model, loss, small.INPUT_SPEC)

    x, y = CLIENTS[2]
    with tf.GradientTape() as tape:
        total = tf.reduce_mean(loss(y, keras_model(x))) + tf.add_n(keras_model.losses)
    variables = keras_model.trainable_variables
    gradients = tape.gradient(total, [variable.value for variable in variables])
    trained = train(model_fn, small.datasets([(x, y)]), rounds=1)
    for actual, before, gradient in zip(
        trained.weights, variables, gradients, strict=False
    ):
        expected = before.numpy() - 0.1 * tf.convert_to_tensor(gradient).numpy()
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def lookup():
    """Embeds words, by a table that is no weight."""
    words = keras.layers.Input([2], dtype="string")
    numbers = keras.layers.StringLookup(vocabulary=["a", "b"])(words)
    embedding = keras.layers.Embedding(3, 2, "ones")(numbers)
    logits = keras.layers.Dense(small.NUM_CLASSES, kernel_initializer="zeros")
    return keras.Model(words, logits(keras.layers.Flatten()(embedding)))


WORDS = [
    batches(
        np.array([["a", "b"], ["c", "b"], ["a", "a"]]), np.array([0, 1, 0], np.int32)
    )
]


def test_tables_made_in_the_model_function_are_taken():
    trained = train(
        lambda: models.from_keras3(
            lookup(), keras3_models.loss(), WORDS[0].element_spec
        ),
        WORDS,
        rounds=2,
    )
    # "c" is unknown, and is number 0.
    embedding = trained.weights[0]
    assert len(np.unique(embedding, axis=0)) == 3
    assert trained.metrics[1]["loss"] < trained.metrics[0]["loss"]
    outside = lookup()

    def model_fn():
        return models.from_keras3(outside, keras3_models.loss(), WORDS[0].element_spec)

    with pytest.raises(
        ValueError, match=r"has a table.*in model_fn itself\.$"
    ) as raised:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert "\n" not in str(raised.value)


def two_inputs_and_outputs(outputs):
    """A net of numbers and words with a class and a number as its outputs."""
    numbers = keras.layers.Input([small.NUM_FEATURES], name="numbers")
    words = keras.layers.Input([2], dtype="int32", name="words")
    embedded = keras.layers.Flatten()(keras.layers.Embedding(6, 2)(words))
    hidden = keras.layers.Concatenate()([numbers, embedded])
    kind = keras.layers.Dense(small.NUM_CLASSES, name="kind")(hidden)
    size = keras.layers.Dense(1, name="size")(hidden)
    return keras.Model({"numbers": numbers, "words": words}, outputs(kind, size))


def two_inputs_and_labels(labels):
    random = np.random.default_rng(5)
    return [
        batches(
            collections.OrderedDict(
                numbers=x, words=random.integers(0, 6, [len(x), 2]).astype(np.int32)
            ),
            labels(y, x.sum(axis=1, keepdims=True)),
        )
        for x, y in CLIENTS
    ]


def test_several_inputs_and_outputs_by_name():
    keras_model = two_inputs_and_outputs(
        lambda kind, size: {"kind": kind, "size": size}
    )
    data = two_inputs_and_labels(
        lambda kind, size: collections.OrderedDict(kind=kind, size=size)
    )
    loss = {"kind": keras3_models.loss(), "size": keras.losses.MeanSquaredError()}

    def model_fn():
        return models.from_keras3(
            keras_model,
            loss,
            data[0].element_spec,
            {"kind": keras3_models.metrics(), "size": keras.metrics.MeanSquaredError()},
            loss_weights={"kind": 1.0, "size": 0.5},
        )

    trained = train(model_fn, data, rounds=1)
    metrics = trained.metrics[0]
    assert list(metrics) == [
        "kind_accuracy",
        "size_mean_squared_error",
        "loss",
        "num_examples",
        "num_batches",
    ]
    # A step on one batch, against Keras' own.
    (batch,) = data[2]
    with tf.GradientTape() as tape:
        outputs = keras_model(batch["x"])
        of_size = loss["size"](batch["y"]["size"], outputs["size"])
        total = loss["kind"](batch["y"]["kind"], outputs["kind"]) + 0.5 * of_size
    gradients = tape.gradient(total, [v.value for v in keras_model.trainable_variables])
    one_step = train(model_fn, data[2:], rounds=1)
    np.testing.assert_allclose(one_step.metrics[0]["loss"], total, rtol=1e-6)
    np.testing.assert_allclose(
        one_step.metrics[0]["size_mean_squared_error"], of_size, rtol=1e-6
    )
    for actual, x, g in zip(
        one_step.weights, keras_model.trainable_variables, gradients, strict=True
    ):
        expected = x.numpy() - 0.1 * tf.convert_to_tensor(g).numpy()
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_outputs_in_a_list_are_those_by_name():
    trained = []
    for form in (dict, list):
        keras.utils.set_random_seed(1)
        keras_model = two_inputs_and_outputs(
            lambda kind, size, form=form: (
                {"kind": kind, "size": size} if form is dict else [kind, size]
            )
        )
        data = two_inputs_and_labels(
            lambda kind, size, form=form: (
                collections.OrderedDict(kind=kind, size=size)
                if form is dict
                else (kind, size)
            )
        )
        losses = [keras3_models.loss(), keras.losses.MeanSquaredError()]
        if form is dict:
            losses = dict(zip(("kind", "size"), losses, strict=True))
        trained.append(
            train(
                lambda model=keras_model, losses=losses, data=data: models.from_keras3(
                    model,
                    losses,
                    data[0].element_spec,
                    {"kind": keras3_models.metrics()},
                ),
                data,
            )
        )
    same_training(*trained)


def test_losses_of_functions_are_averaged():
    keras_model = keras3_models.softmax_regression()
    losses = [
        keras3_models.loss(),
        lambda y, p: keras.losses.sparse_categorical_crossentropy(y, p, True),
    ]
    first, *others = [
        train(
            lambda loss=loss: models.from_keras3(keras_model, loss, small.INPUT_SPEC),
            small.datasets(CLIENTS),
            rounds=1,
        )
        for loss in losses
    ]
    for other in others:
        np.testing.assert_allclose(other.metrics[0]["loss"], first.metrics[0]["loss"])
        for one, two in zip(other.weights, first.weights, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)


class Largest(keras.metrics.Metric):
    """Makes its variable at the first update; returns several values."""

    def build(self):
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        if not self.variables:
            self.build()
        self.total.assign_add(keras.ops.sum(keras.ops.max(y_pred, axis=-1)))

    def result(self):
        return {"once": self.total.value, "twice": 2 * self.total.value}


class Itself(Largest):
    """Returns its variable."""

    def result(self):
        return self.total


class ByName(Largest):
    """Returns its variable in a mapping."""

    def result(self):
        return {"total": self.total}


def test_metrics_are_those_of_keras_on_all_examples():
    keras_model = keras3_models.softmax_regression()
    labels = [np.eye(small.NUM_CLASSES, dtype=np.float32)[y] for _, y in CLIENTS]
    data = [
        tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
        for (x, _), y in zip(CLIENTS, labels, strict=True)
    ]

    def metrics():
        return [
            keras.metrics.CategoricalAccuracy(),
            keras.metrics.AUC(from_logits=True),
            keras.metrics.F1Score(name="f1"),
            keras.metrics.R2Score(),
            Largest(name="largest"),
            ByName(name="by_name"),
            Itself(name="itself"),
        ]

    def model_fn():
        # Metrics themselves, and a function that makes one.
        *some, last = metrics()
        return models.from_keras3(
            keras_model,
            keras.losses.CategoricalCrossentropy(from_logits=True),
            data[0].element_spec,
            [*some, lambda: last],
        )

    # At a rate near zero, metrics of training are those of the first weights.
    process = algorithms.build_fed_avg(model_fn, 1e-30)
    found = keras3_models.Rounds(process, data, 1).metrics[0]
    every = np.concatenate([x for x, _ in CLIENTS]), np.concatenate(labels)
    for metric in metrics():
        metric.update_state(every[1], keras_model(every[0]))
        expected = keras.tree.map_structure(np.asarray, metric.result())
        name = "auc" if isinstance(metric, keras.metrics.AUC) else metric.name
        np.testing.assert_allclose(
            tf.nest.flatten(found[name]), tf.nest.flatten(expected), rtol=1e-5
        )
    assert found["itself"] == found["by_name"]["total"] == found["largest"]["once"]
    test = simulation.ClientDatasets.from_arrays(
        {
            str(place): (x, y)
            for place, ((x, _), y) in enumerate(zip(CLIENTS, labels, strict=True))
        },
        batch_size=4,
    )
    evaluate = simulation.build_evaluation(model_fn, test, accuracy_metric=None)
    weights = tff.learning.models.ModelWeights.from_model(model_fn())
    largest = np.asarray(keras_model(every[0])).max(axis=1).sum()
    np.testing.assert_allclose(evaluate(weights)["itself"], largest, rtol=1e-5)


def test_metrics_without_names_have_the_same_in_each_call_of_the_model_function():
    def model_fn():
        return models.from_keras3(
            keras3_models.softmax_regression(),
            keras3_models.loss(),
            small.INPUT_SPEC,
            [keras.metrics.SparseCategoricalAccuracy() for _ in range(2)],
        )

    names = [list(model_fn().metric_finalizers()) for _ in range(2)]
    assert names[0] == names[1]
    assert names[0][:2] == [
        "sparse_categorical_accuracy",
        "sparse_categorical_accuracy_1",
    ]


def test_counts_of_the_users_own_take_the_place_of_the_default():
    class Twice(keras.metrics.Sum):
        def update_state(self, y_true, y_pred, sample_weight=None):
            super().update_state(2 * keras.ops.shape(y_true)[0])

    def model_fn():
        return models.from_keras3(
            keras3_models.softmax_regression(),
            keras3_models.loss(),
            small.INPUT_SPEC,
            [Twice("num_examples")],
        )

    trained = train(model_fn, small.datasets(CLIENTS), rounds=1)
    assert trained.metrics[0]["num_examples"] == 2 * 19
    assert trained.metrics[0]["num_batches"] == 3 + 2 + 1


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_recurrent_layers_leave_out_what_is_masked(layer):
    random = np.random.default_rng(0)
    words = random.integers(1, 9, [6, 5]).astype(np.int32)
    words[:, 3:] = 0
    labels = random.integers(0, 9, [6, 5]).astype(np.int32)
    other = labels.copy()
    other[:, 3:] = (other[:, 3:] + 1) % 9
    keras.utils.set_random_seed(2)
    keras_model = keras.Sequential(
        [
            keras.layers.Input([None], dtype="int32"),
            keras.layers.Embedding(9, 4, mask_zero=True),
            getattr(keras.layers, layer)(4, return_sequences=True),
            keras.layers.Dense(9),
        ]
    )
    trained = [
        train(
            lambda data=data: models.from_keras3(
                keras_model, keras3_models.loss(), data[0].element_spec
            ),
            data,
            rounds=1,
        )
        for data in ([batches(words, labels)], [batches(words, other)])
    ]
    same_training(*trained)
    assert np.any(trained[0].weights[0] != keras_model.get_weights()[0])
