"""Datasets of any pipeline, passed over in any way, in steps of any kind.

Any two of pipeline, way, kind of step and `batch_clients` meet in some case, which has
the results of TFF's native context.
"""

import collections
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import assert_same, call
from tff_drift import execution

SIZES = [7, 4, 0, 5, 7, 1]
# As wide as all pipelines need it, so that they share their computations.
ELEMENT = collections.OrderedDict(
    x=tff.TensorType(np.float32, [None, None]), y=tff.TensorType(np.int32, [None])
)
BATCHES = tff.SequenceType(ELEMENT)
ZERO = np.float32(0)


def _images(size):
    """Examples of a client, as those of an image data set."""
    random = np.random.default_rng(size)
    return tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(
            pixels=random.integers(0, 256, (size, 2, 2)).astype(np.float32),
            label=random.integers(0, 4, size).astype(np.int32),
        )
    )


def _renamed(example):
    """Moves values, of an example or of a batch."""
    pixels, label = example["pixels"], example["label"]
    shape = [-1, 4] if label.shape.rank else [4]
    return collections.OrderedDict(x=tf.reshape(pixels, shape), y=label)


def _scaled(example):
    moved = _renamed(example)
    return collections.OrderedDict(x=moved["x"] / 255 - 0.1, y=moved["y"] + 1)


def _shortened(example):
    """Returns an example of as many values as its label says."""
    moved = _renamed(example)
    return collections.OrderedDict(x=moved["x"][: moved["y"]], y=moved["y"])


def _slice(batch):
    return tf.data.Dataset.from_tensor_slices(batch)


def _with_options(data):
    options = tf.data.Options()
    options.experimental_slack = True
    options.experimental_optimization.map_parallelization = True
    return data.prefetch(1).with_options(options)


PIPELINES = {
    "none": lambda data: list(data.batch(2).map(_renamed)),
    "unbatched": lambda data: data.batch(2).map(_renamed).unbatch().batch(3),
    "moving": lambda data: data.batch(2).map(_renamed),
    "moving and arithmetic": lambda data: data.map(lambda x: x).map(_scaled).batch(2),
    "arithmetic": lambda data: data.batch(2).map(_scaled),
    "moving twice": lambda data: data.map(lambda each: {**each}).map(_renamed).batch(2),
    "shuffled": lambda data: data.shuffle(7, seed=3).batch(2).map(_renamed),
    "shuffled and repeated": lambda data: (
        data.map(_renamed).shuffle(7, seed=3).repeat(2).batch(3)
    ),
    "padded": lambda data: data.map(_shortened).padded_batch(3),
    "interleaved": lambda data: data.batch(3).map(_renamed).interleave(_slice).batch(2),
    "repeated and shuffled": lambda data: (
        data.repeat(2).shuffle(3, seed=2).batch(3, drop_remainder=True).map(_scaled)
    ),
    "with options": lambda data: _with_options(data.batch(2).map(_renamed)),
    "kept": lambda data: data.map(_renamed).cache().repeat(2).batch(4).prefetch(1),
    "in parallel": lambda data: data.map(_renamed, num_parallel_calls=2).batch(2),
    "concatenated": lambda data: (
        data.take(2).concatenate(data.skip(3)).batch(2).map(_renamed)
    ),
    "filtered": lambda data: (
        data.filter(lambda each: each["label"] > 0).map(_renamed).batch(2)
    ),
}


def _digest(batch):
    """Returns a number that depends on where values are."""
    weights = tf.range(1, 1 + tf.shape(batch["x"])[1])
    each = tf.reduce_sum(batch["x"] * tf.cast(weights, tf.float32), axis=1)
    return tf.reduce_sum(each * tf.cast(batch["y"] + 2, tf.float32)) / 64


def _plain():
    return lambda total, batch: 0.5 * total + _digest(batch)


def _looked_up():
    keys = tf.constant([0, 1, 2])
    initializer = tf.lookup.KeyValueTensorInitializer(keys, keys * 3)
    table = tf.lookup.StaticHashTable(initializer, 7)

    def step(total, batch):
        found = collections.OrderedDict(x=batch["x"], y=table.lookup(batch["y"]))
        return 0.5 * total + _digest(found)

    return step


def _drawn():
    def step(total, batch):
        seed = tf.stack([tf.cast(total, tf.int32), 5])
        return 0.5 * total + _digest(batch) * tf.random.stateless_uniform([], seed)

    return step


def _checked():
    def step(total, batch):
        check = tf.debugging.assert_less(batch["y"], 9)
        with tf.control_dependencies([check]):
            return 0.5 * total + _digest(batch)

    return step


def _assigned():
    last = tf.Variable(ZERO)

    def step(total, batch):
        last.assign(0.25 * last + _digest(batch))
        return 0.5 * total + last

    return step


STEPS = {
    "plain": _plain,
    "with a table": _looked_up,
    "with random numbers": _drawn,
    "with a check": _checked,
    "with a variable": _assigned,
}


def _reduced(data, step):
    return data.reduce(ZERO, step)


def _iterated(data, step):
    total = ZERO
    for batch in iter(data):
        total = step(total, batch)
    return total


def _assigned_twice(data, step):
    total, count = ZERO, 0
    for batch in data:
        total = step(total, batch)
        count += 1
    return total + tf.cast(count, tf.float32)


def _in_part(data, step):
    return data.take(2).reduce(ZERO, step)


def _twice(data, step):
    return data.reduce(data.reduce(ZERO, step), step)


def _by_hand(data, step):
    iterator, total = iter(data), ZERO
    for _ in range(2):
        optional = iterator.get_next_as_optional()
        if optional.has_value():
            total = step(total, optional.get_value())
    return total


def _mapped(data, step):
    return data.map(lambda batch: {**batch, "y": batch["y"] * 2}).reduce(ZERO, step)


WAYS = {
    "reduce": _reduced,
    "iter": _iterated,
    "for": _assigned_twice,
    "take": _in_part,
    "two passes": _twice,
    "iterator": _by_hand,
    "map": _mapped,
}
# Whether clients are vectorized, by way and kind of step: each is built once.
BATCH_CLIENTS = (None, True, False)
CASES = [
    (pipeline, way, list(STEPS)[(i + j) % len(STEPS)])
    for i, pipeline in enumerate(PIPELINES)
    for j, way in enumerate(WAYS)
]


def _batch_clients(way, kind_of_step):
    place = list(WAYS).index(way) + list(STEPS).index(kind_of_step)
    return BATCH_CLIENTS[place % len(BATCH_CLIENTS)]


@functools.cache
def computation(way, kind_of_step):
    @tff.tensorflow.computation(BATCHES)
    def of_one(data):
        step = STEPS[kind_of_step]()
        return tf.function(lambda data: WAYS[way](data, step))(data)

    @tff.federated_computation(tff.FederatedType(BATCHES, tff.CLIENTS))
    def of_each(data):
        return tff.federated_map(of_one, data)

    return of_each


@pytest.fixture(name="contexts", scope="module")
def _contexts():
    return {
        batch_clients: execution.create_local_execution_context(
            batch_clients=batch_clients
        )
        for batch_clients in BATCH_CLIENTS
    }


# One for each kind of what batches come through: other ones are made of these. At every
# fifth place a way has the same kind of step, and so the same computation.
FIRST = ("none", "moving twice", "repeated and shuffled", "filtered")


@pytest.mark.no_smoke
@pytest.mark.parametrize("pipeline", tiers.first(FIRST, list(PIPELINES)))
def test_pipelines(pipeline, contexts, native):
    data = [PIPELINES[pipeline](_images(size)) for size in SIZES]
    for _, way, kind_of_step in (case for case in CASES if case[0] == pipeline):
        of_each = computation(way, kind_of_step)
        context = contexts[_batch_clients(way, kind_of_step)]
        actual = call(context, of_each, data)
        assert_same(actual, call(native, of_each, data), rtol=1e-5)


def test_any_two_meet():
    met = [{*case, _batch_clients(*case[1:])} for case in CASES]
    kinds = PIPELINES, WAYS, STEPS, BATCH_CLIENTS
    for some, others in itertools.combinations(kinds, 2):
        for pair in itertools.product(some, others):
            assert any(case.issuperset(pair) for case in met)
