"""Clients' batches, and which of them are kept."""

import collections
import concurrent.futures
import gc
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.local.support import call
from tff_drift import algorithms, compat, execution, simulation
from tff_drift.execution.local.data import batch_cache, client_data, sequences, stacks

slices = tf.data.Dataset.from_tensor_slices


def _data(batches, dtype=np.float32):
    """Data of one component that has been read."""
    return client_data.ClientData.of_arrays(batches, compat.TensorType(dtype, None))


def test_batches_know_how_many_of_a_shape_follow_each_other():
    own = _data([tf.zeros([size, 2])] for size in (4, 4, 2, 4))
    assert own.run_lengths == [2, 1, 1, 1]
    assert own.shapes == [((size, 2),) for size in (4, 4, 2, 4)]
    assert own.num_bytes == [32, 32, 16, 32]
    assert len(own) == 4


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        (np.array([0.0, 1.9]), np.int32),
        (np.array([0, 2**32 + 1]), np.int32),
        (np.array([0, -1]), np.uint8),
        (np.array([0.0, np.nan]), np.int64),
        (np.array([0, 2**24 + 1]), np.float32),
        (np.array([0.0, 1e39]), np.float32),
        (np.array([0, 2]), np.bool_),
    ],
)
def test_batches_of_which_a_cast_would_change_a_value_are_refused(batch, wanted):
    computation = tff.tensorflow.computation(
        lambda batches: batches.reduce(0, lambda count, _: count + 1),
        tff.SequenceType(tff.TensorType(wanted, [None])),
    )
    context = execution.create_local_execution_context()
    # What it changes to nothing else is cast, as ever.
    assert call(context, computation, [batch[:1], batch[:1]]) == 2
    with pytest.raises(ValueError, match="which would be another value there") as at:
        call(context, computation, [batch[:1], batch])
    assert "\n" not in str(at.value)


def _bytes(num_bytes):
    return _data([[tf.zeros([num_bytes], tf.int8)]], np.int8)


def _first(data):
    (target,) = (np.zeros(shape, np.float32) for shape in data.shapes[0])
    data.copy(0, 0, target)
    return target


def test_the_cache_keeps_what_was_used_last_within_its_limit():
    cache = batch_cache.BatchCache(limit_bytes=250, cohorts=64)
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


def test_the_cache_keeps_the_stacks_of_cohorts_that_come_again():
    cache = batch_cache.BatchCache(limit_bytes=1000, cohorts=64)
    datasets = [slices([1.0 + k, 2.0]).batch(1) for k in range(3)]
    own = [_data([[tf.fill([1], 1.0 + k)], [tf.fill([1], 2.0)]]) for k in range(3)]
    built = []

    def stack(cohort):
        def build():
            built.append(len(cohort))
            return tf.stack([_first(each) for each in cohort])

        return cache.put_together(cohort, None, build)

    # Of no dataset, never.
    for _ in range(3):
        stack(own[:2])
    assert built == [2] * 3
    for dataset, each in zip(datasets, own, strict=True):
        cache.put(dataset, each)
    built.clear()
    for _ in range(4):
        np.testing.assert_array_equal(stack(own[:2]), [[1], [2]])
        np.testing.assert_array_equal(stack(own[1:]), [[2], [3]])
    assert built == [2] * 4
    # Put together in another way, it is another stack.
    assert cache.put_together(own[:2], "another way", lambda: 3) == 3
    # 8 bytes of each client, and 8 of each cohort.
    assert cache.used_bytes == 3 * 8 + 2 * 8
    del datasets, dataset, each
    own.clear()
    gc.collect()
    assert cache.used_bytes == 0


def test_cohorts_are_put_together_one_after_the_other():
    cache = batch_cache.BatchCache(limit_bytes=1000, cohorts=64)
    own, at_work, most = [_bytes(1)], [0], [0]

    def build():
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        threading.Event().wait(0.001)
        at_work[0] -= 1

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: cache.put_together(own, None, build), range(5)))
    assert most == [1]


def test_nobody_waits_for_a_cohort_that_takes_long_to_put_together():
    cache = batch_cache.BatchCache(limit_bytes=1000, cohorts=64)
    own, started, go_on = [_bytes(1)], threading.Event(), threading.Event()

    def read_a_disk():
        started.set()
        return go_on.wait(60)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.put_together, own, None, read_a_disk)
        started.wait(60)
        try:
            assert cache.put_together(own, "another way", lambda: 3) == 3
            assert not slow.done()
        finally:
            go_on.set()
        assert slow.result() is True


def test_batches_are_put_side_by_side_and_end_to_end():
    own = [
        _data([[np.full([2], 1.0)], [np.full([1], 2.0)]], np.float64),
        _data([[np.full([2], 3.0)], [np.full([2], 4.0)]], np.float64),
    ]
    specs = [tf.TensorSpec([None], tf.float64)]
    (stack,) = stacks.put_side_by_side(
        own, np.array([[0, 1], [1, 1]]), np.array([[0, 0], [0, 1]]), specs, ((2,),)
    )
    np.testing.assert_array_equal(stack, [[[1, 1], [3, 3]], [[3, 3], [4, 4]]])
    (values,), places = stacks.put_end_to_end(own, [(0, 1), (1, 0)], specs)
    np.testing.assert_array_equal(values, [2, 3, 3])
    # Where each begins and ends, and its shape.
    np.testing.assert_array_equal(places, [[0, 1, 1], [1, 3, 2]])


def test_strings_are_put_side_by_side_and_end_to_end():
    own = [_data([[tf.constant(["a", "b"])], [tf.constant(["c"])]], np.str_)]
    specs = [tf.TensorSpec([None], tf.string)]
    (stack,) = stacks.put_side_by_side(
        own, np.array([[0]]), np.array([[0]]), specs, ((2,),)
    )
    np.testing.assert_array_equal(stack, [[[b"a", b"b"]]])
    (values,), _ = stacks.put_end_to_end(own, [(0, 1)], specs)
    np.testing.assert_array_equal(values, [b"c"])
    scalars = [_data([[tf.constant("a")], [tf.constant("b")]], np.str_)]
    (stack,) = stacks.put_side_by_side(
        scalars, np.array([[0]]), np.array([[1]]), [tf.TensorSpec([], tf.string)], ((),)
    )
    np.testing.assert_array_equal(stack, [[b"b"]])


def test_a_dataset_that_varies_is_read_once():
    reads = []

    def elements():
        reads.append(1)
        yield from ([1.0], [2.0])

    dataset = tf.data.Dataset.from_generator(
        elements, output_signature=tf.TensorSpec([1], tf.float32)
    )
    sequence = client_data.ClientData(dataset, compat.TensorType(np.float32, [1]))
    cache = batch_cache.BatchCache(limit_bytes=1000, cohorts=64)
    budget = batch_cache.MemoryBudget(8)
    first = sequence.read(cache, budget)
    assert sequence.read(cache, budget) is first
    element_type = compat.TensorType(np.float32, [1])
    again = sequences.to_dataset(sequence.variant(), element_type)
    np.testing.assert_array_equal(list(again), [[1.0], [2.0]])
    assert len(reads) == 1


def test_what_takes_too_much_ram_is_read_anew_from_the_beginning():
    dataset = slices(np.arange(9.0, dtype=np.float32)).shuffle(9, seed=1).batch(1)
    element_type = compat.TensorType(np.float32, [None])
    sequence = client_data.ClientData(dataset, element_type)
    cache = batch_cache.BatchCache(limit_bytes=1000, cohorts=64)
    with pytest.raises(batch_cache.TooManyBytesError):
        sequence.read(cache, batch_cache.MemoryBudget(5 * 4))
    again = sequences.to_dataset(sequence.variant(), element_type)
    untouched = client_data.ClientData(dataset, element_type)
    expected = sequences.to_dataset(untouched.variant(), element_type)
    np.testing.assert_array_equal(list(again), list(expected))


def test_the_cache_forgets_datasets_that_are_gone():
    cache = batch_cache.BatchCache(limit_bytes=1000, cohorts=64)
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
    cache = batch_cache.BatchCache(limit_bytes=1000, cohorts=64)
    cache.put(dataset, _bytes(1))
    assert (cache.get(dataset) is not None) == repeatable


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int32, np.int64, np.uint64, np.float16, np.float64, np.bool_]
)
def test_a_list_of_arrays_is_a_dataset_of_their_dtype(dtype):
    arrays = [np.array([1, 0], dtype), np.array([0, 1], dtype)]
    element_type = compat.TensorType(dtype, [2])
    given = client_data.ClientData(arrays, element_type)
    elements = list(sequences.to_dataset(given.variant(), element_type))
    assert [element.dtype for element in elements] == [tf.as_dtype(dtype)] * 2
    for element, array in zip(elements, arrays, strict=True):
        np.testing.assert_array_equal(element, array)


def test_a_dataset_whose_components_come_in_another_order(local, native):
    batch = collections.namedtuple("batch", "y x")
    data = tf.data.Dataset.from_tensor_slices(batch([1.0, 2.0], [-1.0, -2.0]))
    element_type = collections.OrderedDict(y=np.float32, x=np.float32)
    computation = tff.tensorflow.computation(
        lambda data: data.reduce(0.0, lambda total, each: total + each["y"]),
        tff.SequenceType(element_type),
    )
    with pytest.raises(ValueError, match="order"):
        call(native, computation, data)
    with pytest.raises(TypeError, match="another order"):
        call(local, computation, data)
    mapped = data.map(lambda each: collections.OrderedDict(each._asdict()))
    assert call(local, computation, mapped) == 3


def test_a_clients_components_in_another_order_than_those_of_the_one_before(local):
    right, wrong = (collections.namedtuple("batch", names) for names in ("x y", "y x"))
    computation = tff.federated_computation(
        lambda data: tff.federated_map(
            tff.tensorflow.computation(
                lambda each: each.reduce(0.0, lambda total, of: total + of.x),
                tff.SequenceType(right(np.float32, np.float32)),
            ),
            data,
        ),
        tff.FederatedType(tff.SequenceType(right(np.float32, np.float32)), tff.CLIENTS),
    )
    data = [
        tf.data.Dataset.from_tensor_slices(kind([1.0, 2.0], [5.0, 6.0]))
        for kind in (right, wrong)
    ]
    assert call(local, computation, data[:1]) == [3.0]
    with pytest.raises(TypeError, match="elements of type <y=float32,x=float32>"):
        call(local, computation, data)


@pytest.mark.conformance
def test_features_may_be_strings(native, context):
    words = np.array([["a"], ["b"], ["c"], ["a"], ["é"]])
    clients = {str(k): (words[k:], np.array([0, 1, 0, 1, 1])[k:]) for k in range(2)}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=2)
    keras = tf.keras.layers

    def model_fn():
        inputs = tf.keras.Input([1], dtype=tf.string)
        numbers = keras.Lambda(lambda x: tf.strings.to_hash_bucket_fast(x, 9))(inputs)
        initializer = tf.keras.initializers.GlorotUniform(seed=1)
        rows = keras.Embedding(9, 3, embeddings_initializer=initializer)(numbers)
        logits = keras.Dense(2, kernel_initializer=initializer)(keras.Flatten()(rows))
        return tff.learning.models.from_keras_model(
            tf.keras.Model(inputs, logits),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            train.element_spec,
        )

    process = algorithms.build_fed_avg(model_fn, 0.5)
    losses = []
    for each in (native, context):
        with compat.get_context_stack().install(each):
            run = simulation.run_training(process, train, rounds=2, cohort_size=2)
        losses.append([row["train_loss"] for row in run.rows if "train_loss" in row])
    assert len(losses[0]) == 2
    np.testing.assert_allclose(*losses, rtol=1e-5)
