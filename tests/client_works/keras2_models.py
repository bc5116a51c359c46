"""Models of Keras 2, batches and losses that several files hold against Keras."""

import numpy as np
import tensorflow as tf

L = tf.keras.layers
TOKENS = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
NEXT = np.array([[1, 2, 3, 3], [2, 3, 3, 3]])
# Two steps of the first sequence and one of the second are not masked.
STEPS = np.ones((2, 4, 2), np.float32)
STEPS[0, 2:] = STEPS[1, 1:] = 0
FEATURES = np.arange(10, dtype=np.float32).reshape(2, 5) / 10
# Labels `[n]` of outputs `[n, 1]`.
COLUMN = np.float32([[0.2], [0.9], [0.4]]), np.float32([0.0, 1.0, 1.0])


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


class Penalty(L.Layer):
    def call(self, inputs):
        # AutoGraph has to convert what users write.
        if tf.reduce_sum(inputs) > -1e9:
            inputs = 2.0 * inputs
        self.add_loss(0.1 * tf.reduce_mean(inputs**2))
        return inputs


def penalized():
    return tf.keras.Sequential([L.Dense(3, input_shape=[5]), Penalty(), L.Dense(5)])


def one_output():
    ones = {"kernel_initializer": "ones", "activation": "sigmoid"}
    return tf.keras.Sequential([L.Dense(1, input_shape=[1], **ones)])


def of_dtypes(*dtypes):
    """A model with an output of each dtype."""
    inputs = tf.keras.Input([5])
    ones = {"kernel_initializer": "ones"}
    outputs = [
        L.Activation("tanh", dtype=d)(L.Dense(2, **ones)(inputs)) for d in dtypes
    ]
    return tf.keras.Model(inputs, outputs[0] if len(dtypes) == 1 else outputs)


class SquaredErrors(tf.keras.losses.Loss):
    def call(self, y_true, y_pred):
        return (y_true - y_pred) ** 2


OF_EXAMPLES = [
    tf.keras.losses.KLDivergence(),
    tf.keras.losses.CosineSimilarity(),
    tf.keras.losses.CategoricalHinge(),
    tf.keras.losses.MeanSquaredError("sum"),
    SquaredErrors(),
]


def loss_of(batch):
    if batch[1] is NEXT:
        return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return tf.keras.losses.MeanSquaredError()
