"""What `from_keras2` takes, and refuses by the argument's name."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.client_works import against_keras
from tff_drift import algorithms, models

X = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)
Y = np.array([0, 2, 1, 2])


def dense():
    return tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=[5])])


def crossentropy():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["mae"]}, r"metrics\[0\] must be .* found 'mae'"),
        ({"metrics": {"a": []}}, "metrics must be a list of .* found {'a'"),
        ({"weighted_metrics": [None]}, r"weighted_metrics\[0\] must be .* found None"),
        ({"input_spec": (X, Y)}, "each of input_spec must be a tf.TensorSpec, found"),
    ],
)
def test_arguments_of_another_kind_are_named(changes, message):
    arguments = {"input_spec": against_keras.spec_of((X, Y)), **changes}
    with pytest.raises(TypeError, match=message):
        models.from_keras2(dense(), crossentropy(), **arguments)


def test_a_compiled_model_is_taken_and_stays_compiled():
    keras_model = dense()
    keras_model.compile("sgd", "mse")
    spec = against_keras.spec_of((X, Y))
    models.from_keras2(keras_model, crossentropy(), spec)
    assert keras_model.evaluate(X, keras_model(X), verbose=0) == 0

    def model_fn():
        built = dense()
        built.compile("sgd", "mse")
        return tff.learning.models.from_keras_model(built, crossentropy(), spec)

    with pytest.raises(ValueError, match=r"compiled.*compile=False.*from_keras2"):
        algorithms.build_fed_avg(model_fn, 0.1)


def test_a_metric_from_outside_is_refused_by_name():
    metric = tf.keras.metrics.SparseCategoricalAccuracy()
    spec = against_keras.spec_of((X, Y))
    for argument in ("metrics", "weighted_metrics"):
        with pytest.raises(ValueError, match=r"a metric .* outside .* in model_fn"):
            algorithms.build_fed_avg(
                lambda each=argument: models.from_keras2(
                    dense(), crossentropy(), spec, **{each: [metric]}
                ),
                0.1,
            )
