"""Clients whose drift is known: quadratics, and classes around centres."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import simulation

DIMENSION, RATE = 5, 0.1
CLASSES, FEATURES = 10, 8
START = np.array([1.0, -1.0, 0.5, 2.0, 0.0], np.float32)
_CENTRES = np.random.default_rng(3).normal(0, 1.5, (CLASSES, FEATURES))


def quadratic():
    """Half the squared distance of R w and R b: an example is R and R b."""

    @tf.function
    def predict(weights, x, training):
        (w,), _ = weights
        return tf.linalg.matvec(x, w)

    @tf.function
    def loss(output, label, sample_weight=None):
        return tf.reduce_mean(tf.reduce_sum(tf.square(output - label), -1)) / 2

    return tff.learning.models.FunctionalModel(
        initial_weights=((START,), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec=(
            tf.TensorSpec([None, DIMENSION, DIMENSION], tf.float32),
            tf.TensorSpec([None, DIMENSION], tf.float32),
        ),
    )


def quadratics(sizes, curvatures, optima):
    """Clients with copies of one example each, and their A_i."""
    clients, hessians = {}, []
    for place, (size, curvature, optimum) in enumerate(
        zip(sizes, curvatures, optima, strict=True)
    ):
        root = np.sqrt(curvature)
        example = np.tile(root, (size, 1, 1)), np.tile(root @ optimum, (size, 1))
        clients[f"c{place:03}"] = tuple(each.astype(np.float32) for each in example)
        hessians.append(root @ root)
    return clients, np.array(hessians)


def datasets(clients, **options):
    options = {"batch_size": 2, **options}
    return simulation.ClientDatasets.from_arrays(clients, **options)


def softmax():
    dense = tf.keras.layers.Dense(CLASSES, kernel_initializer="zeros")
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([tf.keras.layers.Input([FEATURES]), dense]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(
            tf.TensorSpec([None, FEATURES], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ),
    )


def labelled(labels_of_clients, seed):
    """Examples around the centres of their classes."""
    random = np.random.default_rng(seed)
    return {
        f"c{i:02}": (
            (_CENTRES[labels] + random.normal(size=(len(labels), FEATURES))).astype(
                np.float32
            ),
            labels.astype(np.int32),
        )
        for i, labels in enumerate(labels_of_clients)
    }


def diagnose_softmax(clients, **options):
    return simulation.diagnose(
        softmax,
        datasets(clients, batch_size=10, epochs=2),
        **{"client_optimizer_fn": RATE, "cohort_size": 6, **options},
    )
