"""The numbers that a context is given to decide by."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests import models
from tests.execution.local.support import call, training
from tff_drift import execution
from tff_drift.execution.local import policy
from tff_drift.execution.local.client_program import convolutions

DATA = models.datasets(models.client_arrays([8] * 20))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"read_bytes": 2.5}, TypeError, "limits: read_bytes must be an integer"),
        ({"plans": -1}, ValueError, "limits: plans must be at least 0, found -1"),
        ({"functions": 0}, ValueError, "limits: functions must be at least 1, found 0"),
    ],
)
def test_wrong_limits_are_refused(wrong, error, message):
    with pytest.raises(error, match=re.escape(message)):
        execution.Limits(**wrong)


def test_a_context_takes_limits_alone():
    with pytest.raises(TypeError, match=r"limits must be a tff_drift.execution.Limits"):
        execution.create_local_execution_context(limits={"plans": 8})


@pytest.mark.conformance
def test_a_context_decides_by_its_limits():
    process = models.fed_avg()
    told = []
    # Twenty clients take each of their steps together.
    for steps in (20, 21):
        limits = execution.Limits(steps_together=steps)
        context = execution.create_local_execution_context(limits=limits)
        state = call(context, process.initialize)
        told.append(training(context, process.next, state, DATA)[0])
    assert told[0].startswith("vectorized in lockstep: ")
    assert "fewer than 21 together on average" in told[1]


@pytest.mark.parametrize(("small", "weights"), [(8, 100), (7, 0)])
def test_products_are_small_where_batches_are(monkeypatch, small, weights):
    asked = set()

    def multiply_without_threads(limits, num_weights):
        asked.add(limits.small_product_weights)
        return policy_says(limits, num_weights)

    policy_says = policy.multiply_without_threads
    monkeypatch.setattr(policy, "multiply_without_threads", multiply_without_threads)
    limits = execution.Limits(small_batch=small, small_product_weights=100)
    context = execution.create_local_execution_context(limits=limits)
    process = models.fed_avg()
    state = call(context, process.initialize)
    data = models.datasets(models.client_arrays([16] * 20), batch_size=8)
    call(context, process.next, state, data)
    assert asked == {weights}


def test_states_stay_at_clients_from_a_size_on():
    class Cohort:
        def __init__(self, state_nbytes):
            self.state_nbytes = state_nbytes

        def batches(self):
            return []

        def run(self, process, server_state, data, states_stay):
            return states_stay

    limits = execution.Limits(collected_state_bytes=100)
    context = execution.create_local_execution_context(limits=limits)
    assert not context.run_round(None, None, Cohort(100))
    assert context.run_round(None, None, Cohort(101))


@pytest.mark.parametrize(("largest", "is_product"), [(24, True), (23, False)])
def test_convolutions_are_products_up_to_a_size(largest, is_product):
    limits = execution.Limits(largest_patches=largest)
    with tf.Graph().as_default():
        # Two results have one patch, of twelve pixels of two channels.
        images = tf.compat.v1.placeholder(tf.float32, [None, 3, 4, 2])
        filters = tf.constant(np.ones([3, 3, 2, 1], np.float32))
        operation = tf.nn.conv2d(images, filters, 1, "VALID").op
        with convolutions.limited_by(limits):
            product = convolutions.as_product(operation, {})
    assert (product is not None) == is_product
