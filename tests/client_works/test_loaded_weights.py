"""Training begins with the weights that a model function loads."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tff_drift import algorithms, client_works, execution

KERNEL = np.arange(15, dtype=np.float32).reshape(5, 3)
BIAS = np.array([1, -2, 3], np.float32)


@pytest.fixture(autouse=True)
def local():
    context = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield context


def net(**options):
    return tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=[5], **options)])


def model_fn(build):
    spec = (tf.TensorSpec([None, 5]), tf.TensorSpec([None], tf.int64))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return lambda: tff.learning.models.from_keras_model(build(), loss, spec)


def initial(build):
    return client_works.build_model_spec(model_fn(build)).initial_weights()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder, keras_model = tmp_path_factory.mktemp("saved"), net()
    keras_model.set_weights([KERNEL, BIAS])
    for name in ("model.keras", "model.h5", "model"):
        keras_model.save(folder / name)
    for name in ("weights.h5", "checkpoint"):
        keras_model.save_weights(folder / name)
    return folder


def set_weights():
    keras_model = net()
    keras_model.set_weights([KERNEL, BIAS])
    return keras_model


def assigned():
    keras_model = net()
    for variable, value in zip(keras_model.weights, [KERNEL, BIAS], strict=True):
        variable.assign(value)
    return keras_model


@pytest.mark.parametrize(
    "build", [set_weights, assigned, lambda: net(weights=[KERNEL, BIAS])]
)
def test_weights_that_are_set_are_where_training_starts(build):
    weights = initial(build)
    np.testing.assert_array_equal(weights.trainable[0], KERNEL)
    np.testing.assert_array_equal(weights.trainable[1], BIAS)


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "model"])
def test_a_model_that_is_loaded_is_where_training_starts(saved, name):
    weights = initial(lambda: tf.keras.models.load_model(saved / name, compile=False))
    np.testing.assert_array_equal(weights.trainable[0], KERNEL)
    np.testing.assert_array_equal(weights.trainable[1], BIAS)


@pytest.mark.parametrize("name", ["model.keras", "weights.h5", "checkpoint"])
def test_weights_that_are_loaded_are_where_training_starts(saved, name):
    def build():
        keras_model = net()
        keras_model.load_weights(saved / name)
        return keras_model

    np.testing.assert_array_equal(initial(build).trainable[0], KERNEL)


def test_only_what_is_loaded_is_set_and_a_new_head_is_drawn_as_without():
    head = tf.keras.initializers.GlorotUniform(seed=3)

    def build(is_loaded=True):
        backbone = net()
        if is_loaded:
            backbone.set_weights([KERNEL, BIAS])
        backbone.trainable = False
        inputs = tf.keras.Input([5])
        outputs = tf.keras.layers.Dense(2, kernel_initializer=head)(backbone(inputs))
        return tf.keras.Model(inputs, outputs)

    weights, without = initial(build), initial(lambda: build(is_loaded=False))
    np.testing.assert_array_equal(weights.non_trainable[0], KERNEL)
    np.testing.assert_array_equal(weights.non_trainable[1], BIAS)
    models.assert_bit_equal(weights.trainable, without.trainable)


def test_a_model_function_that_loads_nothing_is_called_in_graphs_alone():
    def build():
        assert not tf.executing_eagerly()
        return net()

    initial(build)


def test_a_process_begins_with_what_was_loaded():
    process = algorithms.build_scaffold(model_fn(set_weights), 0.1, num_clients=2)
    models.assert_bit_equal(
        models.trainable(process, process.initialize()), [KERNEL, BIAS]
    )


def captured():
    return outside


def in_another():
    inputs = tf.keras.Input([5])
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(outside(inputs)))


def copied():
    clone = tf.keras.models.clone_model(outside)
    clone.set_weights(outside.get_weights())
    return clone


outside = None


@pytest.mark.parametrize("build", [captured, in_another, copied])
def test_a_model_from_outside_is_refused_with_the_remedy(build):
    global outside
    outside = net()
    with pytest.raises(ValueError, match=r"outside of it.*initial_weights=") as error:
        initial(build)
    assert len(str(error.value)) < 700


def test_a_loading_that_needs_a_graph_is_refused_with_the_remedy():
    def build():
        keras_model = net()
        if tf.executing_eagerly():
            raise RuntimeError("a graph is needed")
        keras_model.set_weights([KERNEL, BIAS])
        return keras_model

    with pytest.raises(ValueError, match=r"a graph is needed.*initial_weights="):
        initial(build)
