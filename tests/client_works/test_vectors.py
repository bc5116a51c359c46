"""Weights as one vector, and back."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import client_works
from tff_drift.client_works import vectors


def test_entries_come_in_order_and_go_back():
    arrays = [
        np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        np.float32(5.0),
        np.zeros([0, 3], np.float32),
        np.array([[[6.0]]], np.float32),
    ]
    tensors = tuple(tf.constant(array) for array in arrays)
    vector = client_works.to_vector(tensors)
    np.testing.assert_array_equal(vector, [1, 2, 3, 4, 5, 6])
    for tensor, array in zip(client_works.from_vector(vector, tensors), arrays):
        assert tensor.shape == array.shape
        np.testing.assert_array_equal(tensor, array)


def test_the_type_has_the_entries_of_all_weights():
    weights = tff.to_type([(np.float64, [2, 3]), (np.float64, [4]), np.float64])
    assert str(vectors.vector_type(weights)) == "float64[11]"
