"""A client's step of a Keras 2 model is Keras' own: with masks and added losses."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, execution

L = tf.keras.layers
TOKENS = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
NEXT = np.array([[1, 2, 3, 3], [2, 3, 3, 3]])
# Two steps of the first sequence and one of the second are not masked.
STEPS = np.ones((2, 4, 2), np.float32)
STEPS[0, 2:] = STEPS[1, 1:] = 0
FEATURES = np.arange(10, dtype=np.float32).reshape(2, 5) / 10


class Penalty(L.Layer):
    def call(self, inputs):
        # AutoGraph has to convert what users write.
        if tf.reduce_sum(inputs) > -1e9:
            inputs = 2.0 * inputs
        self.add_loss(0.1 * tf.reduce_mean(inputs**2))
        return inputs


def embedded():
    return tf.keras.Sequential(
        [L.Embedding(6, 3, mask_zero=True, input_shape=(4,)), L.Dense(4)]
    )


def masked():
    rnn = L.SimpleRNN(3, return_sequences=True)
    return tf.keras.Sequential([L.Masking(input_shape=(4, 2)), rnn, L.Dense(4)])


def regularized():
    hidden = L.Dense(3, input_shape=[5], activity_regularizer="l2")
    return tf.keras.Sequential([hidden, L.Dense(5)])


def penalized():
    return tf.keras.Sequential([L.Dense(3, input_shape=[5]), Penalty(), L.Dense(5)])


def with_loss_of_the_model():
    inputs = tf.keras.Input([5])
    hidden = L.Dense(3)(inputs)
    keras_model = tf.keras.Model(inputs, L.Dense(5)(hidden))
    keras_model.add_loss(0.1 * tf.reduce_mean(hidden**2))
    return keras_model


MODELS = {
    embedded: (TOKENS, NEXT),
    masked: (STEPS, NEXT),
    regularized: (FEATURES, FEATURES),
    penalized: (FEATURES, FEATURES),
    with_loss_of_the_model: (FEATURES, FEATURES),
}


@pytest.mark.parametrize("context", ["local", "native"])
@pytest.mark.parametrize("build", MODELS)
def test_a_step_of_a_client_is_a_step_of_keras(native_context, build, context):
    batch = MODELS[build]
    is_of_classes = batch[1] is NEXT

    def loss():
        if is_of_classes:
            return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return tf.keras.losses.MeanSquaredError()

    keras_model = build()
    begin = [each.numpy() for each in keras_model.trainable_variables]
    keras_model.compile(tf.keras.optimizers.legacy.SGD(0.5), loss())
    keras_model.train_on_batch(*batch)
    expected = [each.numpy() for each in keras_model.trainable_variables]
    data = tf.data.Dataset.from_tensors(batch)

    def model_fn():
        spec = tf.nest.map_structure(
            lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), batch
        )
        return tff.learning.models.from_keras_model(build(), loss(), spec)

    def train():
        process = algorithms.build_fed_avg(model_fn, 0.5)
        weights = tff.learning.models.ModelWeights(begin, [])
        state = process.set_model_weights(process.initialize(), weights)
        return process.get_model_weights(process.next(state, [data]).state)

    if context == "local":
        local = execution.create_local_execution_context()
        with tff.framework.get_context_stack().install(local):
            trained = train()
    else:
        trained = train()
    for found, wanted in zip(trained.trainable, expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    assert not np.allclose(trained.trainable[-1], begin[-1], atol=1e-4)
