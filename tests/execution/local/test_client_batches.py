"""Clients' batches, and which of them are kept."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from tff_drift.execution.local.values import client_batches

slices = tf.data.Dataset.from_tensor_slices


def test_batches_know_how_many_of_a_shape_follow_each_other():
    own = client_batches.Batches([tf.zeros([size, 2])] for size in (4, 4, 2, 4))
    assert own.run_lengths == [2, 1, 1, 1]
    assert own.shapes == [((size, 2),) for size in (4, 4, 2, 4)]
    assert own.num_bytes == [32, 32, 16, 32]
    assert len(own) == 4


def _bytes(num_bytes):
    return client_batches.Batches([[tf.zeros([num_bytes], tf.int8)]])


def test_the_cache_keeps_what_was_used_last_within_its_limit():
    cache = client_batches.BatchCache(limit_bytes=250)
    first, second, third = (tf.data.Dataset.range(n).batch(2) for n in (1, 2, 3))
    for dataset in (first, second):
        cache.put(dataset, _bytes(100))
    assert cache.get(first) is not None
    cache.put(third, _bytes(100))
    assert cache.get(second) is None
    assert cache.get(first) is not None
    assert cache.used_bytes == 200
    cache.put(second, _bytes(251))
    assert cache.get(second) is None


def test_the_cache_keeps_the_stacks_of_cohorts_that_come_again(monkeypatch):
    stacked = []
    stack = client_batches.stack_batches
    monkeypatch.setattr(
        client_batches,
        "stack_batches",
        lambda own, positions: stacked.append(len(own)) or stack(own, positions),
    )
    cache = client_batches.BatchCache(limit_bytes=1000)
    datasets = [slices([1.0 + k, 2.0]).batch(1) for k in range(3)]
    own = [
        client_batches.Batches([[tf.fill([1], 1.0 + k)], [tf.fill([1], 2.0)]])
        for k in range(3)
    ]
    positions = [(0, 0), (1, 0), (0, 1), (1, 1)]
    # Of no dataset, never.
    for _ in range(3):
        cache.stack(own[:2], positions)
    assert stacked == [2] * 3
    for dataset, each in zip(datasets, own):
        cache.put(dataset, each)
    stacked.clear()
    for _ in range(4):
        (result,) = cache.stack(own[:2], positions)
        np.testing.assert_array_equal(result, [[1], [2], [2], [2]])
        (other,) = cache.stack(own[1:], positions)
        np.testing.assert_array_equal(other, [[2], [3], [2], [2]])
    assert stacked == [2] * 4
    # 8 bytes of each client, and 16 of each cohort.
    assert cache.used_bytes == 3 * 8 + 2 * 16
    del datasets, dataset, each
    own.clear()
    gc.collect()
    assert cache.used_bytes == 0


def test_the_cache_forgets_datasets_that_are_gone():
    cache = client_batches.BatchCache(limit_bytes=1000)
    dataset = tf.data.Dataset.range(3)
    cache.put(dataset, _bytes(100))
    assert cache.used_bytes == 100
    del dataset
    gc.collect()
    assert cache.used_bytes == 0


@pytest.mark.parametrize(
    ("dataset", "repeatable"),
    [
        (slices([1.0, 2.0]).batch(1).repeat(2).take(3), True),
        (slices([1.0]).concatenate(slices([2.0])).prefetch(1), True),
        (slices([1.0, 2.0]).shuffle(2), False),
        (slices([1.0, 2.0]).shuffle(2, seed=1).batch(2), False),
        (slices([1.0]).map(lambda x: x + tf.random.uniform([])), False),
        (tf.data.Dataset.random(seed=1).take(2), False),
    ],
)
def test_only_datasets_that_give_the_same_every_time_are_kept(dataset, repeatable):
    cache = client_batches.BatchCache(limit_bytes=1000)
    cache.put(dataset, _bytes(1))
    assert (cache.get(dataset) is not None) == repeatable
