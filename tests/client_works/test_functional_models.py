"""Functional models train as others do: vectorized, and with seeds of their own.

Those of Keras take its steps, or are refused.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tests.client_works import against_keras
from tests.client_works.keras2_models import (
    COLUMN,
    FEATURES,
    NEXT,
    OF_EXAMPLES,
    STEPS,
    SquaredErrors,
    masked,
    of_dtypes,
    one_output,
)
from tff_drift import algorithms, client_works, execution, layers, simulation
from tff_drift.models import functional

REDUCE = tff.learning.LoopImplementation.DATASET_REDUCE
ITERATOR = tff.learning.LoopImplementation.DATASET_ITERATOR
CLIENTS = models.client_arrays([8] * 8, seed=3)


@pytest.fixture(autouse=True)
def local():
    context = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield context


def by_hand(rate=0.0, in_lists=False):
    """Softmax regression, as people write it, with dropout of its inputs."""
    kernel = np.zeros([models.NUM_FEATURES, models.NUM_CLASSES], np.float32)
    bias = np.zeros([models.NUM_CLASSES], np.float32)

    @tf.function
    def predict(weights, x, training=True):
        (kernel, bias), _ = weights
        if rate and training:
            x = tf.nn.experimental.stateless_dropout(x, rate, layers.draw_seed())
        return x @ kernel + bias

    def loss(output, label, sample_weight=None):
        del sample_weight
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
        )

    container = list if in_lists else tuple

    @tf.function
    def initialize():
        return collections.OrderedDict(
            loss=container([tf.zeros([]), tf.zeros([], tf.int32)])
        )

    @tf.function
    def update(state, labels, batch_output, sample_weight=None):
        del labels, sample_weight
        count = batch_output.num_examples
        total = batch_output.loss * tf.cast(count, tf.float32)
        sums = zip(state["loss"], (total, count), strict=True)
        return collections.OrderedDict(
            loss=container([before + more for before, more in sums])
        )

    @tf.function
    def finalize(state):
        total, count = state["loss"]
        return collections.OrderedDict(loss=total / tf.cast(count, tf.float32))

    return tff.learning.models.FunctionalModel(
        initial_weights=(container([kernel, bias]), container([])),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        metrics_fns=(initialize, update, finalize),
        input_spec=models.INPUT_SPEC,
    )


def train(model, **options):
    process = algorithms.build_fed_avg(model, 0.2, **options)
    state, metrics = models.train(process, models.datasets(CLIENTS), rounds=2)
    return models.trainable(process, state), metrics[-1]["client_work"]["train"]


@pytest.mark.no_smoke
@pytest.mark.parametrize("in_lists", tiers.first([1], [False, True]))
def test_clients_are_vectorized_and_equal_numpy(local, in_lists):
    process = algorithms.build_fed_avg(by_hand(in_lists=in_lists), 0.2)
    state, data = process.initialize(), models.datasets(CLIENTS)
    text = str(local.explain(process.next, (state, data)))
    assert "16 steps come in 2 lockstep steps" in text
    before = models.trainable(process, state)
    state, _ = models.train(process, data, state=state)
    delta = models.pseudo_gradient(before, CLIENTS, rate=0.2)
    for actual, x, d in zip(
        models.trainable(process, state), before, delta, strict=True
    ):
        np.testing.assert_allclose(actual, x - d, atol=1e-6)


def test_those_of_keras_are_vectorized_where_nothing_hangs_on_a_placeholder():
    def loop(more):
        model = models.functional(lambda: models.keras_softmax_regression(*more()))
        return client_works.build_model_spec(model).loop_implementation

    assert loop(list) == REDUCE
    assert loop(lambda: [tf.keras.layers.Dropout(0.5)]) == ITERATOR


def keras_dropout():
    return models.functional(
        lambda: models.keras_softmax_regression(tf.keras.layers.Dropout(0.5))
    )


@pytest.mark.conformance
def test_tffs_worker_trains_what_needs_an_iterator(native_context):
    model = keras_dropout()
    assert functional.leaves_placeholders(model)
    process = algorithms.build_fed_avg(model, 0.2)
    _, metrics = models.train(process, models.datasets(CLIENTS[:2]))
    assert np.isfinite(metrics[0]["client_work"]["train"]["loss"])


@pytest.mark.conformance
def test_masks_are_those_of_round_step_and_batch():
    weights, metrics = train(by_hand(rate=0.5))
    again, metrics_again = train(by_hand(rate=0.5))
    models.assert_bit_equal(again, weights)
    assert metrics == metrics_again
    one_by_one, _ = train(by_hand(rate=0.5), loop_implementation=ITERATOR)
    for one, other in zip(one_by_one, weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert np.any(train(by_hand())[0][0] != weights[0])


@pytest.mark.conformance
def test_uga_repeats_the_steps_that_it_differentiates():
    """In two local models of one functional model, as one step on all data shows."""
    rate, eta = 0.5, 0.3
    client = CLIENTS[0]
    process = algorithms.build_uga(by_hand(rate), eta, 1.0, local_epochs=2)
    data = models.datasets([client], 8)[0].repeat(2)
    state, _ = models.train(process, [data])
    found = models.trainable(process, state)

    seeds = [layers.step_seed.build_step_seed(0, step, client) for step in range(2)]
    masked = []
    for seed in seeds:
        with layers.step_seed.step_seed(tf.Variable(seed)):
            draw = layers.draw_seed()
        masked.append(tf.nn.experimental.stateless_dropout(client[0], rate, draw))
    start = [tf.zeros([models.NUM_FEATURES, models.NUM_CLASSES]), tf.zeros([4])]

    def loss(weights, x):
        logits = x @ weights[0] + weights[1]
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(client[1], logits)
        )

    with tf.GradientTape() as outer:
        outer.watch(start)
        with tf.GradientTape() as inner:
            inner.watch(start)
            first = loss(start, masked[0])
        step = inner.gradient(first, start)
        last = loss([x - eta * g for x, g in zip(start, step, strict=True)], masked[1])
    for actual, gradient in zip(found, outer.gradient(last, start), strict=True):
        np.testing.assert_allclose(actual, -gradient, atol=1e-6)


def frozen(layer):
    layer.trainable = False
    return layer


def with_weights_set():
    keras_model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=[3])])
    keras_model.set_weights([np.ones((3, 2)), np.zeros(2)])
    return keras_model


def of_layers(*make):
    """Returns a function that builds a model of new layers."""
    inputs = tf.keras.Input
    return lambda: tf.keras.Sequential([inputs([3]), *(each() for each in make)])


def dense(**options):
    return tf.keras.layers.Dense(3, **options)


GIVEN = [np.ones((3, 3)), np.zeros(3)]
REFUSED = {
    "frozen": (of_layers(lambda: frozen(dense()), dense), "a frozen layer, with"),
    "born_frozen": (of_layers(lambda: dense(trainable=False), dense), "a frozen layer"),
    "frozen_normalization": (
        of_layers(dense, lambda: frozen(tf.keras.layers.BatchNormalization())),
        "a frozen layer",
    ),
    "frozen_embedding": (
        of_layers(lambda: frozen(tf.keras.layers.Embedding(5, 2)), dense),
        "a frozen layer, with the weight 'embedding.*",
    ),
    "frozen_inside": (
        of_layers(lambda: frozen(of_layers(dense)()), dense),
        "a frozen layer",
    ),
    "set": (with_weights_set, "sets its weight 'dense.*give the Keras model itself"),
    "given": (of_layers(lambda: dense(weights=GIVEN)), "sets its weight"),
    "normalization": (
        of_layers(dense, tf.keras.layers.BatchNormalization),
        r"fails \(AttributeError: .* attribute 'assign_sub'",
    ),
}


@pytest.mark.parametrize(
    ("build", "message"), tiers.first(["frozen", "set", "normalization"], REFUSED)
)
def test_what_tff_cannot_make_a_functional_model_of_is_refused_in_a_line(
    build, message
):
    width = build().output_shape[-1]
    model = tff.learning.models.functional_model_from_keras(
        build,
        tf.keras.losses.MeanSquaredError(),
        (tf.TensorSpec([None, 3]), tf.TensorSpec([None, width])),
    )
    with pytest.raises(ValueError, match=message) as error:
        algorithms.build_fed_avg(model, 0.1)
    text = str(error.value)
    assert "tff_drift.models.from_keras2(" in text
    assert "\n" not in text
    assert len(text) < 600


def test_a_keras_model_itself_may_have_weights_that_were_set():
    model = tff.learning.models.functional_model_from_keras(
        with_weights_set(),
        tf.keras.losses.MeanSquaredError(),
        (tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])),
    )
    process = algorithms.build_fed_avg(model, 0.5)
    begin = process.get_model_weights(process.initialize()).trainable
    models.assert_bit_equal(begin, [np.ones((3, 2), "f"), np.zeros(2, "f")])


def assert_a_step_is_one_of_keras(build, loss, batch):
    """Holds a step of a functional model of Keras against Keras' own.

    Args:
      build: Builds the Keras model.
      loss: The loss.
      batch: The batch, in this order inputs and labels.

    Returns:
      The functional model, its weights before the step, and the loss of Keras.
    """
    begin, expected, total = against_keras.step_of_keras(build(), loss, batch)
    model = tff.learning.models.functional_model_from_keras(
        build, loss, against_keras.spec_of(batch)
    )
    trained, _ = against_keras.step(model, begin, batch)
    against_keras.assert_alike(trained, expected)
    return model, begin, total


def evaluated(model, begin, batch):
    """Returns the metrics of a model with some weights on a batch."""
    test = simulation.ClientDatasets.from_arrays({"a": batch}, batch_size=len(batch[1]))
    evaluate = simulation.build_evaluation(model, test, accuracy_metric=None)
    return evaluate(tff.learning.models.ModelWeights(begin, []))


@pytest.mark.parametrize(
    "loss",
    # In the first tier a mean and a sum; of each loss by itself, see
    # `test_labels_without_a_last_dimension_are_not_one_example`.
    tiers.first([0, 3], {type(loss).__name__: loss for loss in OF_EXAMPLES[:4]}),
)
def test_nor_are_they_in_a_functional_model_of_tff(loss):
    """Labels without a last dimension are not one example, as in `fit`."""
    model, begin, total = assert_a_step_is_one_of_keras(one_output, loss, COLUMN)
    found = evaluated(model, begin, COLUMN)
    np.testing.assert_allclose(found["loss"], total, rtol=1e-6)


def test_so_do_those_of_functional_models_of_tff():
    """Losses of one's own get the dtype of the outputs.

    The output is tanh of the sum of the features, the loss the mean square.
    """
    batch = FEATURES, np.array([[0.1, 0.7], [0.2, -0.4]])
    model = tff.learning.models.functional_model_from_keras(
        lambda: of_dtypes("float32"), SquaredErrors(), against_keras.spec_of(batch)
    )
    begin = [np.ones((5, 2), np.float32), np.zeros(2, np.float32)]
    outputs = np.tanh(FEATURES.sum(axis=1, keepdims=True))
    expected = np.mean((outputs - batch[1]) ** 2)
    found = evaluated(model, begin, batch)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)


def test_a_model_that_tff_has_loaded_is_refused(tmp_path):
    path = str(tmp_path / "model")
    tff.learning.models.save_functional_model(by_hand(), path)
    loaded = tff.learning.models.load_functional_model(path)
    with pytest.raises(TypeError, match=r"^model_fn must .* Build the model anew,"):
        algorithms.build_fed_avg(loaded, 0.1)
    test = simulation.ClientDatasets.from_arrays({"ann": CLIENTS[0]}, batch_size=4)
    with pytest.raises(TypeError, match=r"^model_fn must .* Build the model anew,"):
        simulation.build_evaluation(loaded, test)


@pytest.mark.parametrize("given", [masked, masked()], ids=["function", "model"])
def test_a_functional_model_that_loses_a_mask_is_refused(given):
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    batch = (STEPS, NEXT)

    def functional_model():
        return tff.learning.models.functional_model_from_keras(
            given, loss, against_keras.spec_of(batch)
        )

    with pytest.raises(ValueError, match="which TFF does not give to the loss"):
        algorithms.build_fed_avg(functional_model(), 0.1)
    test = simulation.ClientDatasets.from_arrays({"a": batch}, batch_size=2)
    with pytest.raises(ValueError, match=r"Give .* tff_drift\.models\.from_keras2"):
        simulation.build_evaluation(functional_model(), test, accuracy_metric=None)


# Without the optimizer of graphs TensorFlow does not drop what TFF's function of the
# Keras model has besides.
@pytest.mark.conformance
def test_a_functional_model_that_takes_its_mask_into_account_trains():
    """The state after the last step that is not masked has no mask itself."""

    def build():
        layers = tf.keras.layers
        rnn = layers.SimpleRNN(3)
        return tf.keras.Sequential(
            [layers.Masking(input_shape=(4, 2)), rnn, layers.Dense(4)]
        )

    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert_a_step_is_one_of_keras(build, loss, (STEPS, NEXT[:, 0]))


def test_a_model_of_which_nothing_trains_is_refused():
    def frozen():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=[3])])
        model.trainable = False
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        spec = tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int32)
        return tff.learning.models.from_keras_model(model, loss, spec)

    with pytest.raises(
        ValueError, match=r"no trainable weights\. Set trainable = True"
    ):
        algorithms.build_scaffold(frozen, 0.1, num_clients=3)
