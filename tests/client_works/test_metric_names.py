"""Metrics whose names TFF, and results, take for something else."""

import collections

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import algorithms, simulation
from tff_drift.models import from_keras2

CLIENTS = models.client_arrays([4, 5, 3], seed=1)
TEST = simulation.ClientDatasets.from_arrays(
    {f"client {place}": client for place, client in enumerate(CLIENTS)}, batch_size=2
)
LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SPEC = models.INPUT_SPEC


def _dense():
    shape = [models.NUM_FEATURES]
    layer = tf.keras.layers.Dense(models.NUM_CLASSES, input_shape=shape)
    return tf.keras.Sequential([layer])


def _of_tff(make):
    return lambda: tff.learning.models.from_keras_model(
        _dense(), LOSS, SPEC, metrics=[make()]
    )


def _of_makers(make):
    return lambda: tff.learning.models.from_keras_model(
        _dense(), LOSS, SPEC, metrics=[make]
    )


def _of_bridge(make):
    return lambda: from_keras2(_dense(), LOSS, SPEC, [make()])


def _weighted(make):
    return lambda: from_keras2(_dense(), LOSS, SPEC, weighted_metrics=[make()])


def _functional(make):
    named = collections.OrderedDict([(make().name, make)])
    return tff.learning.models.functional_model_from_keras(
        _dense(), LOSS, SPEC, metrics_constructor=named
    )


class _OwnModel(tff.learning.models.VariableModel):
    """Counts examples in a float, as TFF's tutorials do."""

    def __init__(self, name):
        self._name, self._seen = name, tf.Variable(0.0, trainable=False)
        self._kernel = tf.Variable(tf.zeros([models.NUM_FEATURES, models.NUM_CLASSES]))

    trainable_variables = property(lambda self: [self._kernel])
    non_trainable_variables = property(lambda self: [])
    local_variables = property(lambda self: [self._seen])
    input_spec = property(lambda self: SPEC)

    @tf.function
    def predict_on_batch(self, x, training=True):
        return x @ self._kernel

    @tf.function
    def forward_pass(self, batch_input, training=True):
        x, y = batch_input
        outputs = self.predict_on_batch(x)
        self._seen.assign_add(tf.cast(tf.shape(x)[0], tf.float32))
        return tff.learning.models.BatchOutput(LOSS(y, outputs), outputs)

    @tf.function
    def report_local_unfinalized_metrics(self):
        return collections.OrderedDict([(self._name, self._seen)])

    def metric_finalizers(self):
        return collections.OrderedDict([(self._name, tf.function(lambda seen: seen))])

    @tf.function
    def reset_metrics(self):
        self._seen.assign(0.0)


OF_KERAS = [_of_tff, _of_makers, _of_bridge, _weighted, _functional]


ACCURACY = tf.keras.metrics.SparseCategoricalAccuracy


@pytest.mark.parametrize(
    ("build", "metric", "name"),
    [
        *((build, ACCURACY, "num_examples") for build in OF_KERAS),
        (_of_tff, ACCURACY, "num_batches"),
        (_of_tff, tf.keras.metrics.Sum, "num_examples"),
    ],
)
def test_what_counts_nothing_is_refused_under_the_name_of_a_count(build, metric, name):
    model_fn = build(lambda: metric(name=name))
    said = f"the metric '{name}' must count .*found {metric.__name__}. Give it anot"
    with pytest.raises(ValueError, match=said) as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert "\n" not in str(error.value)
    weights = tff.learning.models.ModelWeights([], [])
    with pytest.raises(ValueError, match=said):
        simulation.build_evaluation(model_fn, TEST)
    with pytest.raises(ValueError, match=said):
        simulation.evaluate_clients(model_fn, weights, TEST)


class _Doubled(tff.learning.metrics.NumExamplesCounter):
    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(tf.concat([y_true, y_true], 0))


class _Seen(tf.keras.metrics.Sum):
    """The counter of TFF's older tutorials."""

    def __init__(self, name="num_examples", dtype=tf.int64):
        super().__init__(name, dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(tf.shape(y_pred)[0])


@pytest.mark.parametrize(
    ("model_fn", "factor"),
    tiers.first(
        ["bridge", "functional", "derived"],
        {
            "TFF": (_of_tff(tff.learning.metrics.NumExamplesCounter), 1),
            "bridge": (_of_bridge(tff.learning.metrics.NumExamplesCounter), 1),
            "functional": (_functional(tff.learning.metrics.NumExamplesCounter), 1),
            "derived": (_of_tff(_Doubled), 2),
            "tutorial": (_of_tff(_Seen), 1),
            "own model": (lambda: _OwnModel("num_examples"), 1),
        },
    ),
)
def test_counters_are_right_under_that_name(model_fn, factor):
    process = algorithms.build_fed_avg(model_fn, 0.1)
    (row,) = simulation.run_training(process, TEST, rounds=1, cohort_size=3).rows
    seen = factor * sum(len(y) for _, y in CLIENTS)
    assert row["train_num_examples"] == row["total_examples"] == seen


def _accuracy(name):
    return lambda: ACCURACY(name)


@pytest.mark.parametrize("build", [*OF_KERAS, None])
@pytest.mark.parametrize(
    ("name", "said"),
    [("my metric", "'my metric'.* as 'my_metric'"), ("a\\b", ".* as 'a_b'")],
)
def test_names_that_tff_does_not_take_are_refused_in_a_line(build, name, said):
    model_fn = build(_accuracy(name)) if build else lambda: _OwnModel(name)
    with pytest.raises(ValueError, match=f"a metric named {said}") as error:
        algorithms.build_fed_avg(model_fn, 0.1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", tiers.first([0, 3], ["a/b", "_a.b", "5th-", "a>b"]))
def test_names_that_tff_takes_are_trained_with(name):
    process = algorithms.build_fed_avg(_of_tff(_accuracy(name)), 0.1)
    (row,) = simulation.run_training(process, TEST, rounds=1, cohort_size=3).rows
    assert f"train_{name.replace('>', '_')}" in row


def test_a_layer_whose_name_no_graph_takes_is_named():
    def model_fn():
        layer = tf.keras.layers.Dense(models.NUM_CLASSES, name="my layer")
        keras_model = tf.keras.Sequential([layer])
        keras_model.build([None, models.NUM_FEATURES])
        return tff.learning.models.from_keras_model(keras_model, LOSS, SPEC)

    said = (
        "model_fn gives something the name 'my layer.*', .*Name layers and metrics by"
    )
    with pytest.raises(ValueError, match=said):
        algorithms.build_fed_avg(model_fn, 0.1)
