"""Clients' sequences whose elements differ in shape, with native TFF as the oracle."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.probes import digest
from tests.execution.local.support import assert_same, call

Tensor, Ordered = tff.TensorType, collections.OrderedDict


def _floats(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 1


def _words(count):
    return np.array(["w" * k for k in range(count)], object)


# A type, and what makes an element of a size.
KINDS = {
    "vector": (Tensor(np.float32, [None]), _floats),
    "matrix": (Tensor(np.float32, [None, None]), lambda n: _floats(n, 3 - n % 2)),
    "words": (Tensor(np.str_, [None]), _words),
    "nested": (
        Ordered(
            x=Tensor(np.float32, [None, 2]),
            y=Tensor(np.int32, [None]),
            z=(Tensor(np.str_, [None]),),
        ),
        lambda n: Ordered(
            x=_floats(n, 2), y=np.arange(n, dtype=np.int32), z=(_words(n),)
        ),
    ),
}
# The sizes of the elements of three clients.
SIZES = {
    "short_last": [[2, 2, 1], [2, 2], [2, 2, 2]],
    "short_between": [[3, 1, 3, 2, 3], [], [3, 3]],
    "no_rows": [[0, 2], [2, 0], [2]],
    "all_differ": [[1], [2], [3]],
    "no_elements": [[], [], []],
}


def _computation(element_type):
    data_type = tff.SequenceType(element_type)

    @tff.tensorflow.computation(data_type, np.float32)
    def train(data, weight):
        def step(state, element):
            number = digest(element)
            return (
                state[0] * 0.5 + tf.cast(number, tf.float32),
                state[1] + 1,
                3 * state[2] + number,
            )

        return data.reduce((weight, np.int32(0), np.int64(0)), step)

    @tff.tensorflow.computation(data_type)
    def in_batches(data):
        batches = data.take(3).map(lambda each: digest(each)).batch(2)
        return batches.reduce(np.int64(0), lambda a, b: 5 * a + tf.reduce_sum(b))

    @tff.federated_computation(
        tff.FederatedType(data_type, tff.CLIENTS),
        tff.FederatedType(np.float32, tff.SERVER),
    )
    def round_of(data, weight):
        weights = tff.federated_broadcast(weight)
        trained = tff.federated_map(train, (data, weights))
        return (
            trained,
            tff.federated_map(in_batches, data),
            tff.federated_sum(trained[2]),
            tff.federated_mean(trained[0]),
        )

    return round_of


def _dataset(elements, like):
    """Returns elements as a dataset; lists of such ones native TFF does not take."""
    dataset = tf.data.Dataset.from_tensors(like)
    for element in elements:
        dataset = dataset.concatenate(tf.data.Dataset.from_tensors(element))
    return dataset.skip(1)


@pytest.mark.no_smoke
@pytest.mark.parametrize("sizes", tiers.first(["short_between"], list(SIZES)))
@pytest.mark.parametrize("name", tiers.first(["words", "nested"], list(KINDS)))
def test_ragged_sequences(name, sizes, native, local_contexts):
    element_type, make = KINDS[name]
    computation = _computation(element_type)
    lists = [[make(size) for size in own] for own in SIZES[sizes]]
    as_tensors = tf.nest.map_structure(
        lambda leaf: tf.constant(
            leaf, tf.string if leaf.dtype == object else leaf.dtype
        ),
        [lists, make(2)],
    )
    datasets = [_dataset(own, as_tensors[1]) for own in as_tensors[0]]
    expected = call(native, computation, datasets, 1.5)
    for mode in ("batched", "plain"):
        for data in (lists, datasets):
            assert_same(call(local_contexts[mode], computation, data, 1.5), expected)
