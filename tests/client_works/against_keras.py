"""One step of a client, to hold against one of Keras."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, execution

RATE = 0.5


def local():
    """The local context, to be installed by `with`."""
    context = execution.create_local_execution_context()
    return tff.framework.get_context_stack().install(context)


def spec_of(batch):
    return tf.nest.map_structure(
        lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), batch
    )


def round_of(process, begin, *data):
    """Returns the trainable weights after a round from given ones, and its metrics."""
    weights = tff.learning.models.ModelWeights(begin, [])
    state = process.set_model_weights(process.initialize(), weights)
    output = process.next(state, list(data))
    return process.get_model_weights(output.state).trainable, output.metrics


def step_of_keras(keras_model, loss, batch, **options):
    """Returns the weights before and after a step of Keras, and the loss."""
    begin = keras_model.get_weights()
    sgd = tf.keras.optimizers.legacy.SGD(RATE)
    keras_model.compile(sgd, loss, **options)
    logs = keras_model.train_on_batch(*batch, return_dict=True)
    return begin, keras_model.get_weights(), logs["loss"]


def step(model_fn, begin, batch, rate=RATE):
    """Returns the weights after a step of FedAvg, and what the client reports."""
    process = algorithms.build_fed_avg(model_fn, rate)
    data = tf.data.Dataset.from_tensors(batch)
    trained, metrics = round_of(process, begin, data)
    return trained, metrics["client_work"]["train"]


def assert_alike(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
