"""Tensors that a user compares by `==` are objects in TFF's graphs: refused by name."""

import collections
import cProfile
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, simulation

L = tf.keras.layers
SPEC = (tf.TensorSpec([None, 3]), tf.TensorSpec([None, 1]))


class OwnLoss(tf.keras.losses.Loss):
    def call(self, y_true, y_pred):
        weights = tf.cast(y_true == 0, tf.float32)
        return tf.reduce_mean(weights * tf.square(y_true - y_pred), -1)


class OwnLayer(L.Layer):
    def call(self, inputs):
        return tf.where(inputs != 0, inputs, 5.0)


class OwnMetric(tf.keras.metrics.Mean):
    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(tf.cast(y_true == y_pred, tf.float32))


class Harmless(L.Layer):
    """Compares what is no tensor, and tensors with nothing."""

    mode = "double"

    def call(self, inputs):
        if self.mode == "double" and inputs.shape[-1] == 3 and inputs != None:  # noqa: E711
            return tf.where(tf.equal(inputs, 0.0), 5.0, 2 * inputs)
        return inputs


def model_fn(*layers, loss=tf.keras.losses.MeanSquaredError, metrics=()):
    def build():
        net = [L.InputLayer([3]), *(make() for make in layers), L.Dense(1)]
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential(net),
            loss(),
            SPEC,
            metrics=[make() for make in metrics] or None,
        )

    return build


class OwnResult(tf.keras.metrics.Mean):
    def result(self):
        return tf.where(self.count == 0.0, 0.0, self.total / self.count)


def is_zero(values):
    return tf.cast(values == 0.0, tf.float32)


def as_lambda():
    return L.Lambda(lambda inputs: tf.cast(inputs == 0.0, tf.float32))


def in_the_body():
    inputs = tf.keras.Input([3])
    hidden = inputs * tf.cast(inputs != 0.0, tf.float32)
    return tff.learning.models.from_keras_model(
        tf.keras.Model(inputs, L.Dense(1)(hidden)),
        tf.keras.losses.MeanSquaredError(),
        SPEC,
    )


OWN = {
    "OwnLoss.call": model_fn(loss=OwnLoss),
    "OwnLayer.call": model_fn(OwnLayer),
    "OwnMetric.update_state": model_fn(metrics=[OwnMetric]),
    "OwnResult.result": model_fn(metrics=[OwnResult]),
    r"is_zero \(test_comparisons\.py, line \d+\)": model_fn(
        lambda: L.Dense(3, activation=is_zero)
    ),
    r"in_the_body \(test_comparisons\.py, line \d+\)": in_the_body,
    # It does not return a tensor, and what is made of that fails first.
    r"<lambda> \(test_comparisons\.py, line \d+\)": model_fn(as_lambda),
}


@pytest.mark.parametrize("said", OWN)
def test_a_comparison_of_tensors_is_refused_with_its_place(said):
    message = rf"{said} .*tensors by [!=]=\. .* one object, .* tf\.equal\(a, b\)"
    with pytest.raises(ValueError, match=message):
        algorithms.build_fed_avg(OWN[said], 0.1)
    test = simulation.ClientDatasets.from_arrays(
        {"client": (np.zeros([2, 3], np.float32), np.zeros([2, 1], np.float32))},
        batch_size=2,
    )
    with pytest.raises(ValueError, match=message):
        simulation.build_evaluation(OWN[said], test)


def test_functional_models_and_models_of_ones_own_are_watched():
    @tf.function
    def predict(weights, x, training=True):
        return x @ weights[0][0]

    @tf.function
    def loss(output, label, sample_weight=None):
        return tf.reduce_mean(tf.cast(label != 0, tf.float32) * (output - label))

    functional = tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros([3, 1], np.float32),), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec=SPEC,
    )
    with pytest.raises(ValueError, match=r"loss.* compares tensors by !="):
        algorithms.build_fed_avg(functional, 0.1)

    wrapped = model_fn(Harmless)

    class Model(tff.learning.models.VariableModel):
        def __init__(self):
            self.inner = wrapped()

        trainable_variables = property(lambda self: self.inner.trainable_variables)
        non_trainable_variables = property(lambda self: ())
        local_variables = property(lambda self: self.inner.local_variables)
        input_spec = property(lambda self: SPEC)

        def predict_on_batch(self, x, training=True):
            return self.inner.predict_on_batch(x, training)

        @tf.function
        def forward_pass(self, batch_input, training=True):
            output = self.inner.forward_pass(batch_input, training)
            is_zero = batch_input[1] == 0
            return output._replace(loss=output.loss + tf.cast(is_zero, tf.float32))

        def reset_metrics(self):
            self.inner.reset_metrics()

        def report_local_unfinalized_metrics(self):
            return self.inner.report_local_unfinalized_metrics()

        def metric_finalizers(self):
            return collections.OrderedDict(self.inner.metric_finalizers())

    with pytest.raises(
        ValueError, match=r"Model\.forward_pass.* compares tensors by =="
    ):
        algorithms.build_fed_avg(Model, 0.1)


def test_metrics_of_functional_models_are_watched():
    def count(state, labels, batch_output, sample_weight=None):
        is_right = tf.cast(batch_output.predictions == labels, tf.float32)
        return collections.OrderedDict(right=state["right"] + tf.reduce_sum(is_right))

    functional = tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros([3, 1], np.float32),), ()),
        predict_on_batch_fn=tf.function(lambda w, x, training=True: x @ w[0][0]),
        loss_fn=tf.function(
            lambda output, label, sample_weight=None: tf.reduce_mean(output - label)
        ),
        metrics_fns=(
            tf.function(lambda: collections.OrderedDict(right=tf.zeros([]))),
            tf.function(count),
            tf.function(lambda state: state),
        ),
        input_spec=SPEC,
    )
    with pytest.raises(ValueError, match=r"count.* compares tensors by =="):
        algorithms.build_fed_avg(functional, 0.1)


class CallsPython(L.Layer):
    def call(self, inputs):
        doubled = tf.py_function(lambda x: 2 * x, [inputs], tf.float32)
        return tf.ensure_shape(doubled, inputs.shape)


def test_python_in_a_layer_is_refused():
    with pytest.raises(ValueError, match=r"calls Python in tf\.py_function"):
        algorithms.build_fed_avg(model_fn(CallsPython), 0.1)


def test_other_comparisons_are_taken():
    process = algorithms.build_fed_avg(model_fn(Harmless), 0.1)
    kernel, _ = process.get_model_weights(process.initialize()).trainable
    assert kernel.shape == (3, 1)


def test_a_profiler_of_c_and_a_tracer_go_on():
    """Python has no way to set cProfile's again before version 3.12."""
    seen = []

    def trace(frame, event, value):
        seen.append(frame.f_code.co_name)

    def after():
        pass

    before = sys.gettrace()
    with cProfile.Profile() as profile:
        sys.settrace(trace)
        try:
            algorithms.build_fed_avg(model_fn(), 0.1)
            after()
            with pytest.raises(ValueError, match=r"OwnLoss\.call"):
                algorithms.build_fed_avg(model_fn(loss=OwnLoss), 0.1)
            found = sys.gettrace()
        finally:
            sys.settrace(before)
        after()
    profile.create_stats()
    calls = {name: count for (_, _, name), (count, *_) in profile.stats.items()}
    assert found is trace
    assert "after" in seen
    assert calls["after"] == 2
