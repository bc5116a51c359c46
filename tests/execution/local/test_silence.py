"""TensorFlow's logger, which is silent of what a thread vectorizes."""

import logging
import threading

import pytest
import tensorflow as tf

from tests import models
from tests.execution.local.support import call
from tff_drift import algorithms, execution
from tff_drift.execution.local.runners import functions


@pytest.fixture
def logged():
    """The messages that TensorFlow's logger hands on."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    yield messages
    tf.get_logger().removeHandler(handler)


def test_warnings_of_other_threads_are_heard_while_one_vectorizes(logged):
    logger = tf.get_logger()
    building = functions._building.set(True)
    logger.error("of this one")
    other = threading.Thread(target=logger.error, args=["of another"])
    other.start()
    other.join()
    functions._building.reset(building)
    logger.error("later")
    assert logged == ["of another", "later"]


def test_it_is_not_told_how_random_numbers_are_vectorized(logged):
    def model_fn():
        dropout = tf.keras.layers.Dropout(0.5)
        return models.from_keras(models.keras_softmax_regression(dropout))

    process = algorithms.build_fed_avg(model_fn, 0.1)
    context = execution.create_local_execution_context(batch_clients=True)
    state = call(context, process.initialize)
    logged.clear()
    data = models.datasets(models.client_arrays([8] * 4), batch_size=4)
    assert "vectorized in lockstep" in context.explain(process.next, (state, data))
    assert not logged
