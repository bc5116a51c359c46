"""Variables that Keras does not find in TFF's graphs are refused."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, models

L = tf.keras.layers
SPEC = (tf.TensorSpec([None, 5]), tf.TensorSpec([None], tf.int32))


class Factor(tf.Module):
    def __init__(self):
        self.factor = tf.Variable(tf.fill([5], 2.0), name="factor")


class Projection(tf.Module):
    def __init__(self):
        self.layer = L.Dense(5, name="projection")


class OfModule(L.Layer):
    def __init__(self):
        super().__init__()
        self.module = Factor()

    def call(self, inputs):
        return inputs * self.module.factor


class OfBuiltModule(L.Layer):
    def build(self, shape):
        self.module = Factor()

    def call(self, inputs):
        return inputs * self.module.factor


class OfLayerInModule(L.Layer):
    def __init__(self):
        super().__init__()
        self.module = Projection()

    def call(self, inputs):
        return self.module.layer(inputs)


class OfVariables(L.Layer):
    """Holds variables as Keras finds them."""

    def __init__(self):
        super().__init__()
        self.first = tf.Variable(tf.fill([5], 2.0))
        self.more = [tf.Variable(tf.fill([5], 3.0))]

    def call(self, inputs):
        return inputs * self.first * self.more[0]


def model_fn(layer, bridge):
    def build():
        net = tf.keras.Sequential([L.InputLayer([5]), layer(), L.Dense(3)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return bridge(net, loss, SPEC)

    return build


@pytest.mark.parametrize(
    "bridge", [tff.learning.models.from_keras_model, models.from_keras2]
)
@pytest.mark.parametrize(
    ("layer", "name"),
    [(OfModule, "factor"), (OfBuiltModule, "factor"), (OfLayerInModule, "projection")],
)
def test_variables_of_a_module_are_refused_by_name(layer, name, bridge):
    with pytest.raises(ValueError, match=rf"{name}.* neither train nor send.*add_weig"):
        algorithms.build_fed_avg(model_fn(layer, bridge), 0.1)


def test_variables_of_a_layer_are_trained():
    build = model_fn(OfVariables, models.from_keras2)
    process = algorithms.build_fed_avg(build, 0.1)
    weights = process.get_model_weights(process.initialize()).trainable
    assert sorted(each.shape for each in weights) == [(3,), (5,), (5,), (5, 3)]
    found = {float(each[0]) for each in weights if each.shape == (5,)}
    np.testing.assert_array_equal(sorted(found), [2.0, 3.0])


class Frozen(OfVariables):
    def __init__(self):
        super().__init__()
        self.trainable = False


def test_variables_of_a_frozen_layer_are_not():
    build = model_fn(Frozen, models.from_keras2)
    process = algorithms.build_fed_avg(build, 0.1)
    weights = process.get_model_weights(process.initialize())
    assert sorted(each.shape for each in weights.trainable) == [(3,), (5, 3)]
    assert sorted(each.shape for each in weights.non_trainable) == [(5,), (5,)]
