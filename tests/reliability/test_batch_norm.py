"""Batch normalization, whose operations TensorFlow rearranges from graph to graph."""

import numpy as np
import pytest
import tensorflow as tf

from tests import models, tiers
from tff_drift import algorithms, compat, execution

DATA = models.datasets(models.client_arrays([10, 7, 3]))


def _model():
    layer = tf.keras.layers.BatchNormalization()
    return models.from_keras(models.keras_softmax_regression(layer))


def _trained(process, **options):
    context = execution.create_local_execution_context(**options)
    with compat.get_context_stack().install(context):
        state, _ = models.train(process, DATA, 2)
        return models.trainable(process, state)


@pytest.fixture(scope="module")
def fed_avg():
    return algorithms.build_fed_avg(_model, 0.1)


@pytest.fixture(scope="module")
def expected(fed_avg):
    return _trained(fed_avg)


@pytest.mark.conformance
@pytest.mark.parametrize(
    "options",
    tiers.first(
        [1], [{}, {"max_concurrent_clients": 1}, {"functionalize_clients": False}]
    ),
)
def test_runs_of_one_process_are_bit_identical(fed_avg, expected, options):
    models.assert_bit_equal(_trained(fed_avg, **options), expected)


@pytest.mark.conformance
def test_a_proximal_term_of_zero_changes_no_bit(expected):
    process = algorithms.build_fed_prox(_model, 0.1, mu=0.0)
    models.assert_bit_equal(_trained(process), expected)


@pytest.mark.conformance
def test_stacks_are_equal_up_to_rounding(fed_avg, expected):
    for one, other in zip(_trained(fed_avg, batch_clients=True), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
