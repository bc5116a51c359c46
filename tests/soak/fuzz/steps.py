"""Random computations of a client: a step of random operations for every batch.

What is expected comes from TensorFlow alone: the same Python function, one client after
the other, without TFF.
"""

import collections
import dataclasses
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests.soak.fuzz import cohorts
from tests.soak.fuzz.operations import ONE_BY_ONE, OPERATIONS

FEATURES, HIDDEN = 4, 3
_ELEMENT = collections.OrderedDict(
    x=tff.TensorType(np.float32, [None, FEATURES]), y=tff.TensorType(np.int32, [None])
)
_MODEL = collections.OrderedDict(
    w=tff.TensorType(np.float32, [FEATURES, HIDDEN]),
    s=tff.TensorType(np.float32, [FEATURES]),
)
_INITIAL = collections.OrderedDict(
    w=np.linspace(-0.7, 0.9, FEATURES * HIDDEN, dtype=np.float32).reshape(
        FEATURES, HIDDEN
    ),
    s=np.array([0.3, -0.2, 0.6, 1.1], np.float32),
)


def _filtered(data):
    return data.filter(lambda batch: tf.reduce_sum(batch["x"]) > 0)


def _rebatched(data):
    return data.unbatch().batch(3)


def _scanned(data):
    def add(total, batch):
        total += tf.shape(batch["x"])[0]
        scale = 1 / tf.cast(total, tf.float32)
        return total, collections.OrderedDict(batch, x=batch["x"] * scale)

    return data.scan(0, add)


def _masked(data):
    """Batches without the examples that are masked: some of them empty."""

    def keep(batch):
        kept = batch["y"] >= 0
        return tf.nest.map_structure(lambda each: tf.boolean_mask(each, kept), batch)

    return data.map(keep)


# What a client makes of its data before it passes over it, as TFF's clients may.
_PREPARED = {
    "other_data": lambda data: data.map(
        lambda batch: collections.OrderedDict(batch, x=batch["x"] * 0.5)
    ).take(3),
    "filtered": _filtered,
    "rebatched": _rebatched,
    "scanned": _scanned,
    "masked": _masked,
    "skipped": lambda data: data.skip(1).prefetch(1),
    "repeated": lambda data: data.take(2).repeat(2),
    "shuffled": lambda data: data.shuffle(4, seed=3, reshuffle_each_iteration=False),
    "concatenated": lambda data: data.concatenate(data.take(1)),
    "while": lambda data: data.take_while(lambda batch: tf.size(batch["y"]) > 1),
}
LOOPS = ("reduce", "for", "twice", "enumerated", *_PREPARED)


@dataclasses.dataclass(frozen=True)
class StepCase:
    """A computation and the cohorts that run it.

    Attributes:
      operations: Of a step, one applied to the result of another.
      gradient: Whether the step goes down a gradient through them.
      loop: How the client passes over its batches.
      after: Operations applied to what the loop gives, as to a batch.
      cohorts: The cohorts.
    """

    operations: tuple[str, ...]
    gradient: bool
    loop: str
    after: tuple[str, ...]
    cohorts: tuple[cohorts.Cohort, ...]


@st.composite
def cases(draw, num_cohorts=12):
    # Mostly steps that are vectorized, in which more can go wrong.
    every = st.sampled_from(sorted(OPERATIONS))
    vectorized = st.sampled_from(sorted(set(OPERATIONS) - ONE_BY_ONE))
    names = draw(st.sampled_from((vectorized, vectorized, vectorized, every)))
    return StepCase(
        operations=tuple(draw(st.lists(names, min_size=1, max_size=4))),
        gradient=draw(st.booleans()),
        loop=draw(st.sampled_from(("reduce",) * 30 + LOOPS)),
        after=tuple(draw(st.lists(names, max_size=1))),
        cohorts=tuple(
            draw(
                st.lists(cohorts.cohorts(), min_size=num_cohorts, max_size=num_cohorts)
            )
        ),
    )


def examples(size, random):
    """Examples of both signs, with exact zeros and repeated values among them."""
    x = random.normal(size=[size, FEATURES]).astype(np.float32)
    x[random.random(x.shape) < 0.1] = 0
    return collections.OrderedDict(x=x, y=random.integers(-1, 4, size).astype(np.int32))


def _applied(names, x, y, model, count):
    for name in names:
        x = OPERATIONS[name](x, y, model, count)
        # The first dimension may have become another: labels follow it.
        y = tf.ensure_shape(tf.repeat(y, tf.shape(x)[0])[: tf.shape(x)[0]], [None])
    return x


def _step(case, state, batch):
    model, total, count = state
    if not case.gradient:
        h = _applied(case.operations, batch["x"], batch["y"], model, count)
        change = tf.reduce_sum(tf.tanh(h), axis=0)
        new = collections.OrderedDict(model, s=model["s"] * 0.9 + change * 0.01)
    else:
        with tf.GradientTape() as tape:
            tape.watch(model)
            h = _applied(case.operations, batch["x"], batch["y"], model, count)
            outputs = tf.matmul(h + model["s"], model["w"])
            loss = tf.reduce_sum(tf.math.softplus(outputs)) / 8
        gradient = tape.gradient(
            loss, model, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        new = tf.nest.map_structure(
            lambda value, slope: value - 0.05 * tf.clip_by_value(slope, -5.0, 5.0),
            collections.OrderedDict(model),
            collections.OrderedDict(gradient),
        )
    # What no operation says of its results.
    new["w"].set_shape([FEATURES, HIDDEN])
    new["s"].set_shape([FEATURES])
    total += tf.reduce_sum(tf.tanh(h))
    return new, total, count + tf.shape(batch["x"])[0]


# Traced once for all cohorts, which takes most of the time.
@functools.lru_cache(maxsize=1)
def _client(case):
    """Returns the function of one client, of its dataset and the server's model."""

    def step(state, batch):
        return _step(case, state, batch)

    def run(data, model):
        start = (
            collections.OrderedDict(model),
            tf.constant(0.0),
            tf.constant(0, tf.int32),
        )
        if case.loop == "for":
            state = start
            for batch in data:
                state = step(state, batch)
        elif case.loop == "enumerated":
            (state, _) = data.enumerate().reduce(
                (start, tf.constant(0, tf.int64)),
                lambda old, new: (step(old[0], new[1]), old[1] + new[0]),
            )
        elif case.loop in _PREPARED:
            state = _PREPARED[case.loop](data).reduce(start, step)
        else:
            state = data.reduce(start, step)
            if case.loop == "twice":
                state = data.reduce(state, step)
        model, total, count = state
        finished = _applied(
            case.after, tf.transpose(model["w"]), tf.range(HIDDEN), model, count
        )
        # Of one shape, whatever the operations make of it.
        return collections.OrderedDict(
            model, total=total, count=count, after=tf.reduce_sum(tf.tanh(finished), 0)
        )

    return tf.function(run)


def build(case):
    """Returns the computation of a cohort."""
    of_one = tff.tensorflow.computation(
        _client(case), tff.SequenceType(_ELEMENT), _MODEL
    )

    @tff.federated_computation(
        tff.FederatedType(tff.SequenceType(_ELEMENT), tff.CLIENTS),
        tff.FederatedType(_MODEL, tff.SERVER),
    )
    def of_all(data, model):
        results = tff.federated_map(of_one, (data, tff.federated_broadcast(model)))
        return results, tff.federated_sum(results)

    return of_all


def arguments(cohort, native=False):
    """Returns what the computation takes for a cohort."""
    return cohorts.datasets(cohort, examples, native), _INITIAL


def expected(case, cohort):
    """Returns what the computation has to give, by TensorFlow alone."""
    function = _client(case)
    model = tf.nest.map_structure(tf.constant, _INITIAL)
    results = [
        tf.nest.map_structure(np.asarray, function(dataset, model))
        for dataset in cohorts.datasets(cohort, examples, native=True)
    ]
    specs = tf.nest.map_structure(
        lambda leaf: np.zeros(leaf.shape, leaf.dtype.as_numpy_dtype),
        tf.nest.map_structure(
            tf.convert_to_tensor,
            collections.OrderedDict(
                _INITIAL, total=0.0, count=0, after=np.zeros(FEATURES, np.float32)
            ),
        ),
    )
    total = tf.nest.map_structure(
        lambda zero, *own: sum(own, zero).astype(zero.dtype), specs, *results
    )
    return results, total
