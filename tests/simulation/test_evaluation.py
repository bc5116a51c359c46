import collections
import itertools
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tests.simulation import fakes
from tff_drift import system
from tff_drift.simulation import ClientDatasets, build_evaluation
from tff_drift.simulation.evaluation.client_evaluation import client_statistics
from tff_drift.simulation.evaluation.model_evaluator import ModelEvaluator

SIZES = [1, 3, 10, 17, 30]
ARRAYS = models.client_arrays(SIZES, seed=5)
PERCENTILES = (5, 25, 50, 75, 95)


def _weights(scale=1.0):
    random = np.random.default_rng(11)
    kernel = random.normal(size=(models.NUM_FEATURES, models.NUM_CLASSES))
    bias = random.normal(size=models.NUM_CLASSES)
    return tff.learning.models.ModelWeights(
        [(scale * kernel).astype(np.float32), (scale * bias).astype(np.float32)], []
    )


@pytest.fixture(scope="module")
def test_clients():
    clients = {f"client_{index}": arrays for index, arrays in enumerate(ARRAYS)}
    return ClientDatasets.from_arrays(clients, batch_size=4)


def _with_dropout():
    """A model whose training and evaluation differ."""
    return models.from_keras(
        models.keras_softmax_regression(tf.keras.layers.Dropout(0.9))
    )


class _HandWritten(tff.learning.models.VariableModel):
    """A `VariableModel` of plain Python methods and one metric of its own."""

    def __init__(self):
        shape = [models.NUM_FEATURES, models.NUM_CLASSES]
        self._kernel = tf.Variable(tf.zeros(shape))
        self._bias = tf.Variable(tf.zeros(shape[1:]))
        self._correct = tf.Variable(0, dtype=tf.int64, trainable=False)
        self._total = tf.Variable(0, dtype=tf.int64, trainable=False)

    trainable_variables = property(lambda self: [self._kernel, self._bias])
    non_trainable_variables = property(lambda self: [])
    local_variables = property(lambda self: [self._correct, self._total])
    input_spec = property(lambda self: models.INPUT_SPEC)

    def predict_on_batch(self, batch_input, training=True):
        return batch_input @ self._kernel + self._bias

    def forward_pass(self, batch_input, training=True):
        x, y = batch_input
        logits = self.predict_on_batch(x, training)
        # Not `==`, which compares identities in the graphs that TFF builds.
        hits = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), y)
        self._correct.assign_add(tf.reduce_sum(tf.cast(hits, tf.int64)))
        self._total.assign_add(tf.shape(y, tf.int64)[0])
        return tff.learning.models.BatchOutput(predictions=logits)

    def report_local_unfinalized_metrics(self):
        return collections.OrderedDict(
            accuracy=collections.OrderedDict(n=self._total, hits=self._correct)
        )

    def metric_finalizers(self):
        return collections.OrderedDict(accuracy=lambda sums: sums["hits"] / sums["n"])

    def reset_metrics(self):
        self._correct.assign(0)
        self._total.assign(0)


MODEL_FNS = {
    "keras": models.softmax_regression,
    "dropout": _with_dropout,
    "functional": models.functional_softmax_regression(),
    "hand_written": _HandWritten,
}


def _client_accuracies(weights):
    kernel, bias = weights.trainable
    return [np.mean(np.argmax(x @ kernel + bias, axis=1) == y) for x, y in ARRAYS]


@pytest.mark.parametrize("model_name", MODEL_FNS)
def test_every_kind_of_model_against_numpy(test_clients, model_name):
    # A batch of 4 cuts the clients into several batches, the last one short.
    evaluation = build_evaluation(MODEL_FNS[model_name], test_clients, batch_size=4)
    for scale in (1.0, -1.0):
        weights = _weights(scale)
        metrics = evaluation(weights)
        accuracies = _client_accuracies(weights)
        assert metrics["accuracy"] == pytest.approx(
            np.average(accuracies, weights=SIZES), abs=1e-6
        )
        assert metrics["accuracy_client_mean"] == pytest.approx(
            np.mean(accuracies), abs=1e-6
        )
        for percent in PERCENTILES:
            assert metrics[f"accuracy_client_p{percent}"] == pytest.approx(
                np.percentile(accuracies, percent), abs=1e-6
            )


@pytest.mark.parametrize("broken", [[1, 3], []])
def test_clients_that_are_not_finite_are_named_once(broken, caplog):
    clients = {f"client_{index}": (x.copy(), y) for index, (x, y) in enumerate(ARRAYS)}
    for index in broken:
        clients[f"client_{index}"][0][2, 1] = np.nan
    evaluation = build_evaluation(
        models.softmax_regression, ClientDatasets.from_arrays(clients, batch_size=4)
    )
    infinite = _weights()
    infinite.trainable[0][0, 0] = np.inf
    # Of a model that is not finite, training tells.
    for weights in (infinite, _weights(), _weights()):
        metrics = evaluation(weights)
    told = [each.getMessage() for each in caplog.records]
    assert np.isnan(metrics["loss"]) == bool(broken)
    expected = [
        "The evaluation's sums are not finite for 2 of 5 clients, such as 'client_1'. "
        "Suspect the data: client 'client_1', example 2, is not finite; client "
        "'client_3', example 2, is not finite."
    ]
    assert told == expected * bool(broken)


@pytest.mark.parametrize("model_name", ["keras", "functional"])
def test_equals_a_direct_keras_evaluation(test_clients, model_name):
    weights = _weights()
    metrics = build_evaluation(MODEL_FNS[model_name], test_clients)(weights)
    keras_model = models.keras_softmax_regression()
    keras_model.set_weights(weights.trainable)
    keras_model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    x, y = (np.concatenate(parts) for parts in zip(*ARRAYS, strict=True))
    loss, accuracy = keras_model.evaluate(x, y, batch_size=len(y), verbose=0)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-6)
    assert metrics["accuracy"] == pytest.approx(accuracy, rel=1e-6)
    assert metrics.get("num_examples", len(y)) == sum(SIZES)


def test_functional_model_without_metrics_reports_loss(test_clients):
    @tf.function
    def predict(weights, x, training):
        (kernel,), _ = weights
        return x @ kernel

    def loss(output, label, sample_weight=None):
        return tf.reduce_mean(tf.square(output[:, 0] - tf.cast(label, tf.float32)))

    kernel = np.array([[1.0], [2.0], [3.0]], np.float32)
    model = tff.learning.models.FunctionalModel(
        initial_weights=((kernel,), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec=models.INPUT_SPEC,
    )
    evaluation = build_evaluation(
        model, test_clients, accuracy_metric=None, batch_size=4
    )
    metrics = evaluation(tff.learning.models.ModelWeights((kernel,), ()))
    x, y = (np.concatenate(parts) for parts in zip(*ARRAYS, strict=True))
    expected = np.mean(((x @ kernel)[:, 0] - y) ** 2)
    assert dict(metrics) == {
        "loss": pytest.approx(expected, rel=1e-5),
        "num_examples": sum(SIZES),
    }


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_functional_models_of_other_floats(dtype):
    @tf.function
    def predict(weights, x, training):
        (kernel,), _ = weights
        return x @ kernel

    kernel = np.array([[1.0], [-2.0]], dtype)
    model = tff.learning.models.FunctionalModel(
        initial_weights=((kernel,), ()),
        predict_on_batch_fn=predict,
        loss_fn=lambda output, label, sample_weight=None: tf.reduce_mean(
            tf.square(output - label)
        ),
        input_spec=(tf.TensorSpec([None, 2], dtype), tf.TensorSpec([None, 1], dtype)),
    )
    x = np.array([[1, 0], [2, 1], [0, 1]], dtype)
    clients = ClientDatasets.from_arrays(
        {"a": (x, np.zeros((3, 1), dtype))}, batch_size=2
    )
    evaluation = build_evaluation(model, clients, accuracy_metric=None, batch_size=2)
    # The squares of 1, 0 and -2.
    assert evaluation(tff.learning.models.ModelWeights((kernel,), ())) == {
        "loss": pytest.approx(5 / 3, rel=1e-6),
        "num_examples": 3,
    }


def test_batch_size_changes_nothing(test_clients):
    small = build_evaluation(models.softmax_regression, test_clients, batch_size=1)
    large = build_evaluation(models.softmax_regression, test_clients)
    found, expected = small(_weights()), large(_weights())
    del found["num_batches"], expected["num_batches"]
    assert dict(found) == pytest.approx(dict(expected), rel=1e-5)


class _Largest(tf.keras.metrics.Metric):
    """A metric that is no sum: the largest label."""

    def __init__(self, name="largest", dtype=None):
        super().__init__(name, dtype)
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        largest = tf.reduce_max(tf.cast(y_true, tf.float32))
        self.value.assign(tf.maximum(self.value, largest))

    def result(self):
        return self.value


def _zero_model(*metrics):
    """A linear model of zeros, whose loss is the mean of the labels' squares."""

    def model_fn():
        dense = tf.keras.layers.Dense(1, kernel_initializer="zeros")
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.Input([1]), dense]),
            tf.keras.losses.MeanSquaredError(),
            (tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])),
            metrics=[metric() for metric in metrics],
        )

    return model_fn


def _functional_zero_model():
    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros([1, 1], np.float32),), ()),
        predict_on_batch_fn=tf.function(lambda w, x, training=True: x @ w[0][0]),
        loss_fn=tf.function(
            lambda output, label, sample_weight=None: tf.reduce_mean(
                tf.square(output - label)
            )
        ),
        input_spec=(tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])),
    )


def _measured(model_fn, labels):
    """Returns the metrics of single examples with these labels at one client."""
    spec = (tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1]))
    evaluator = ModelEvaluator(model_fn, spec)
    ones = np.ones([1, 1], np.float32)
    sums = evaluator.unfinalized_metrics([(ones, label * ones) for label in labels])
    return evaluator.finalize(sums)


@pytest.mark.parametrize(
    "model_fn", [_zero_model(), _functional_zero_model()], ids=["keras", "functional"]
)
def test_losses_of_many_batches_are_added_in_double_precision(model_fn):
    # In single precision, 2**26 and 1 is 2**26.
    found = _measured(model_fn, [2.0**13, *[1.0] * 639])
    assert found["loss"] == pytest.approx((2**26 + 639) / 640, rel=1.5e-6)
    assert found["num_examples"] == 640


def test_metrics_that_are_no_sums_are_not_added():
    assert _measured(_zero_model(_Largest), [3.0, *[2.0] * 100])["largest"] == 3


def test_percentiles_by_hand():
    # Five values lie at the percentiles 0, 25, 50, 75 and 100.
    found = client_statistics("accuracy", [0.5, 0.0, 1.0, 0.25, 0.75])
    assert found == {
        "accuracy_client_mean": 0.5,
        "accuracy_client_p5": pytest.approx(0.05),
        "accuracy_client_p25": 0.25,
        "accuracy_client_p50": 0.5,
        "accuracy_client_p75": 0.75,
        "accuracy_client_p95": pytest.approx(0.95),
    }


def test_sample_of_clients_is_fixed(test_clients):
    evaluation = build_evaluation(
        models.softmax_regression, test_clients, max_clients=2, seed=4
    )
    first, second = evaluation(_weights()), evaluation(_weights())
    assert first == second
    sums = {a + b for a in SIZES for b in SIZES if a != b}
    assert first["num_examples"] in sums


def test_sample_larger_than_population_takes_all(test_clients):
    evaluation = build_evaluation(
        models.softmax_regression, test_clients, max_clients=100
    )
    assert evaluation(_weights())["num_examples"] == sum(SIZES)


def test_no_headline_metric_gives_no_percentiles(test_clients):
    evaluation = build_evaluation(
        models.softmax_regression, test_clients, accuracy_metric=None
    )
    assert set(evaluation(_weights())) == {
        "accuracy",
        "loss",
        "num_examples",
        "num_batches",
    }


@pytest.mark.conformance
def test_hundreds_of_calls_do_not_grow(test_clients):
    evaluation = build_evaluation(models.softmax_regression, test_clients)
    weights = _weights()
    sizes = []
    for _ in range(5):
        for _ in range(80):
            evaluation(weights)
        sizes.append(fakes.resident_bytes())
    # What calls leave behind grows every time, other memory of the process at times.
    assert min(later - size for size, later in itertools.pairwise(sizes)) < 2**20


def test_bad_arguments_are_errors(test_clients):
    with pytest.raises(ValueError, match=r"one of 'accuracy', .*, found 'recall'"):
        build_evaluation(
            models.softmax_regression, test_clients, accuracy_metric="recall"
        )
    with pytest.raises(TypeError, match="model_fn must be a function"):
        build_evaluation(3, test_clients)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        build_evaluation(models.softmax_regression, test_clients, batch_size=0)
    with pytest.raises(ValueError, match="max_clients must be at least 1"):
        build_evaluation(models.softmax_regression, test_clients, max_clients=0)


def test_weights_of_another_model_are_an_error(test_clients):
    evaluation = build_evaluation(models.softmax_regression, test_clients)
    weights = tff.learning.models.ModelWeights([np.zeros((2, 2))], [])
    with pytest.raises(ValueError, match=r"shapes \[\(2, 2\)\], but the model"):
        evaluation(weights)
    keras_model = models.keras_softmax_regression()
    with pytest.raises(TypeError, match=r"\.from_model of a .*found <.*Sequential"):
        evaluation(keras_model)
    of_keras = tff.learning.models.ModelWeights.from_model(keras_model)
    assert evaluation(of_keras)["num_examples"] == sum(SIZES)


def test_a_headline_metric_that_is_no_number_is_an_error():
    spec = tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([None, 1], tf.float32)

    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
            loss=tf.keras.losses.MeanSquaredError(),
            metrics=[tf.keras.metrics.Precision([0.3, 0.7], name="precision")],
            input_spec=spec,
        )

    ones = (np.ones((2, 2), np.float32), np.ones((2, 1), np.float32))
    clients = ClientDatasets.from_arrays({"a": ones}, batch_size=2)
    with pytest.raises(ValueError, match=r"one of 'loss', .*, None, found 'precision'"):
        build_evaluation(model_fn, clients, accuracy_metric="precision")


def test_a_model_without_accuracy_is_evaluated_without_its_spread():
    spec = tf.TensorSpec([None, 1], tf.float32), tf.TensorSpec([None, 1], tf.float32)

    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))]),
            loss=tf.keras.losses.MeanSquaredError(),
            input_spec=spec,
        )

    example = np.array([[3.0]], np.float32), np.array([[4.0]], np.float32)
    clients = ClientDatasets.from_arrays({"a": example}, batch_size=2)
    evaluate = build_evaluation(model_fn, clients)
    weights = tff.learning.models.ModelWeights(
        [np.array([[1.0]], np.float32), np.array([-1.0], np.float32)], []
    )
    # (3 - 1 - 4)².
    assert evaluate(weights) == {"loss": 4.0, "num_examples": 1, "num_batches": 1}
    assert evaluate.settings["accuracy_metric"] is None
    with pytest.raises(ValueError, match="None, found 'accuracy'"):
        build_evaluation(model_fn, clients, accuracy_metric="accuracy")


def test_where_operations_have_one_thread_clients_are_evaluated_side_by_side(
    monkeypatch, test_clients
):
    evaluate = build_evaluation(_HandWritten, test_clients)
    expected = [evaluate(_weights(scale)) for scale in (1.0, 2.0)]
    monkeypatch.setattr(system, "processors", lambda: 2)
    monkeypatch.setattr(
        tf.config.threading, "get_intra_op_parallelism_threads", lambda: 1
    )
    unfinalized_metrics = ModelEvaluator.unfinalized_metrics
    both = threading.Barrier(2, timeout=60)
    waiting = iter([True, True])

    def of_two(self, batches):
        # The first client's metrics are there once the second's are asked for.
        if next(waiting, False):
            both.wait()
        return unfinalized_metrics(self, batches)

    monkeypatch.setattr(ModelEvaluator, "unfinalized_metrics", of_two)
    assert [evaluate(_weights(scale)) for scale in (1.0, 2.0)] == expected


def test_errors_of_labels_without_a_last_dimension_are_means_over_examples():
    """Keras' MeanAbsoluteError has one value for a batch of them."""
    clients = {
        "a": (np.ones((1, 1), np.float32), np.float32([3])),
        "b": (np.ones((3, 1), np.float32), np.float32([1, 1, 2])),
    }
    datasets = ClientDatasets.from_arrays(clients, batch_size=2)

    def model_fn():
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[1])]),
            loss=tf.keras.losses.MeanSquaredError(),
            input_spec=datasets.element_spec,
            metrics=[tf.keras.metrics.MeanAbsoluteError(name="mae")],
        )

    weights = tff.learning.models.ModelWeights(
        [np.ones((1, 1), np.float32), np.zeros(1, np.float32)], []
    )
    for batch_size in (1, 2, 256):
        evaluate = build_evaluation(
            model_fn, datasets, accuracy_metric="mae", batch_size=batch_size
        )
        found = evaluate(weights)
        np.testing.assert_allclose(found["mae"], 3 / 4)
        np.testing.assert_allclose(found["mae_client_mean"], (2 + 1 / 3) / 2)
        np.testing.assert_allclose(found["loss"], 5 / 4)
