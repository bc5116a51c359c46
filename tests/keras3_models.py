"""Models of Keras 3 for tests, and the same models of Keras 2."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, stateful
from tff_drift.models import from_keras3

NEEDED = "Keras 3 comes with TensorFlow 2.16 and newer: Python 3.12 and 3.13"
IS_THERE = keras.__version__.startswith("3.")
needed = pytest.mark.skipif(not IS_THERE, reason=NEEDED)


def softmax_regression(*layers_before, seed=7):
    """A Keras 3 classifier of the data of `tests.models`."""
    kernel = keras.initializers.GlorotUniform(seed=seed)
    return keras.Sequential(
        [
            keras.layers.Input([models.NUM_FEATURES]),
            *layers_before,
            keras.layers.Dense(models.NUM_CLASSES, kernel_initializer=kernel),
        ]
    )


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def metrics():
    return [keras.metrics.SparseCategoricalAccuracy("accuracy")]


def model_fn(keras_model):
    """What builders and evaluation take."""
    return lambda: from_keras3(keras_model, loss(), models.INPUT_SPEC, metrics())


def weights(keras_model):
    """The weights of a Keras 3 model, as TFF has them."""
    return tff.learning.models.ModelWeights(
        [variable.numpy() for variable in keras_model.trainable_weights],
        [variable.numpy() for variable in keras_model.non_trainable_weights],
    )


def linear_regression():
    """`stateful.LinearRegression`, made of a layer of Keras 3."""

    class Linear(keras.layers.Layer):
        def build(self, shape):
            del shape
            self.first = self.add_weight((2, 2), "zeros")
            self.last = self.add_weight((1,), "zeros")

        def call(self, features):
            w = tf.concat([tf.reshape(self.first, [-1]), self.last], axis=0)
            return tf.linalg.matvec(features, w)

    inputs = keras.layers.Input([stateful.DIMENSION])
    keras_model = keras.Model(inputs, Linear()(inputs))

    def half_squares(targets, predictions):
        return tf.square(predictions - targets) / 2

    spec = (
        tf.TensorSpec([None, stateful.DIMENSION], tf.float32),
        tf.TensorSpec([None], tf.float32),
    )
    return lambda: from_keras3(keras_model, half_squares, spec)


class Rounds:
    """Rounds of a process with all clients, from given weights.

    Attributes:
      metrics: The training metrics of each round.
      weights: The weights after the last one.
    """

    def __init__(self, process, datasets, rounds, initial_weights=None):
        state = process.initialize()
        if initial_weights is not None:
            state = process.set_model_weights(state, initial_weights)
        is_stateful = hasattr(process, "initial_client_state")
        kept = [getattr(process, "initial_client_state", None)] * len(datasets)
        self.metrics = []
        for _ in range(rounds):
            data = datasets
            if is_stateful:
                data = [
                    collections.OrderedDict(
                        examples=examples, state=kept[index], index=np.int32(index)
                    )
                    for index, examples in enumerate(datasets)
                ]
            output = process.next(state, data)
            state = output.state
            if is_stateful:
                collected = output.metrics["client_states"]
                for row, index in enumerate(collected["index"]):
                    kept[index] = tf.nest.map_structure(
                        lambda stacked, row=row: stacked[row], collected["state"]
                    )
            self.metrics.append(output.metrics["client_work"]["train"])
        self.weights = [
            np.asarray(leaf)
            for leaf in tf.nest.flatten(process.get_model_weights(state))
        ]
