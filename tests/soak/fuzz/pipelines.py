"""Random pipelines of datasets, passed over in any way, in steps of any kind."""

import collections
import dataclasses

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tests.execution.local.test_pipelines import STEPS, WAYS


@dataclasses.dataclass(frozen=True)
class PipelineCase:
    """What clients make of their examples, and how they pass over it.

    Attributes:
      stages: Names of `STAGES`, one applied to the result of another.
      way: How they pass over it, one of `WAYS`.
      step: What they do with each batch, one of `STEPS`.
      read_before: Whether the program has read of the datasets itself.
      cohorts: Of each round the numbers of the clients' examples.
    """

    stages: tuple[str, ...]
    way: str
    step: str
    read_before: bool
    cohorts: tuple[tuple[int, ...], ...]


def _is_batched(data):
    return data.element_spec["label"].shape.rank == 1


def _map(change, **options):
    """Returns a stage that changes the elements."""

    def stage(data):
        return data.map(
            lambda each: collections.OrderedDict(
                zip(
                    ("pixels", "label"),
                    change(each["pixels"], each["label"]),
                    strict=True,
                )
            ),
            **options,
        )

    return stage


def _of_examples(stage):
    """Returns a stage of examples, of which batches are taken apart."""
    return lambda data: stage(data.unbatch() if _is_batched(data) else data)


def _of_batches(stage):
    """Returns a stage of batches."""
    return lambda data: stage(data if _is_batched(data) else data.batch(2))


def _numbered(data):
    return data.enumerate().map(
        lambda number, each: {
            **each,
            "label": each["label"] + tf.cast(number % 3, tf.int32),
        }
    )


def _scanned(data):
    def add(total, each):
        total = 0.5 * total + tf.reduce_mean(each["pixels"])
        return total, {**each, "pixels": each["pixels"] + total}

    return data.scan(0.0, add)


def _windows(data):
    windows = data.window(3, shift=2)
    return windows.flat_map(
        lambda window: tf.data.Dataset.zip(
            {name: window[name].batch(3) for name in ("pixels", "label")}
        )
    )


def _by_label(data):
    return data.group_by_window(
        lambda each: tf.cast(each["label"] % 2, tf.int64),
        lambda _, window: window.batch(3),
        window_size=3,
    )


def _by_length(data):
    shortened = data.map(
        lambda each: {**each, "pixels": each["pixels"][: 1 + each["label"] % 2]}
    )
    return shortened.bucket_by_sequence_length(
        lambda each: tf.shape(each["pixels"])[0], [2], [2, 3]
    )


def _looked_up(data):
    keys = tf.range(4)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, keys * 2 % 5)
    table = tf.lookup.StaticHashTable(initializer, 1)
    return _map(lambda x, y: (x, table.lookup(y)))(data)


def _zipped(data):
    numbers = tf.data.Dataset.range(1, 100)
    return tf.data.Dataset.zip((data, numbers)).map(
        lambda each, number: {
            **each,
            "pixels": each["pixels"] * tf.cast(number, tf.float32),
        }
    )


def _chosen(data):
    choices = tf.data.Dataset.range(2).repeat(3)
    return tf.data.Dataset.choose_from_datasets([data, data.skip(1)], choices)


def _ragged(data):
    ragged = data.map(
        lambda each: {**each, "pixels": each["pixels"][: 1 + each["label"] % 2]}
    )
    return ragged.ragged_batch(3).map(
        lambda each: {**each, "pixels": each["pixels"].to_tensor()}
    )


STAGES = {
    "moved": _map(lambda x, y: (x, y)),
    "reversed": _map(lambda x, y: (tf.reverse(x, [-1]), y)),
    "reshaped": _map(lambda x, y: (tf.reshape(x, tf.shape(x)), tf.identity(y))),
    "transposed": _map(lambda x, y: (tf.linalg.matrix_transpose(x), y)),
    "cast": _map(lambda x, y: (x, tf.cast(tf.cast(y, tf.int64), tf.int32))),
    "bytes": _map(lambda x, y: (tf.cast(tf.cast(x, tf.uint8), tf.float32), y)),
    "halved": _map(lambda x, y: (tf.cast(tf.cast(x, tf.float16), tf.float32), y)),
    "scaled": _map(lambda x, y: (x / 255 - 0.1, y + 1)),
    "clipped": _map(lambda x, y: (tf.minimum(x, 99.0), tf.maximum(y, 1))),
    "chosen where": _map(lambda x, y: (tf.where(x > 99, x, tf.zeros_like(x)), y)),
    "normed": _map(lambda x, y: (x - tf.reduce_mean(x, -1, keepdims=True), y)),
    "in parallel": _map(lambda x, y: (x * 0.5, y), num_parallel_calls=2),
    "drawn": _map(
        lambda x, y: (
            x + tf.random.stateless_uniform([], tf.stack([tf.reduce_sum(y), 3])),
            y,
        )
    ),
    "looked up": _looked_up,
    "batches of 2": _of_examples(lambda data: data.batch(2)),
    "batches of 3": _of_examples(lambda data: data.batch(3)),
    "full batches": _of_examples(lambda data: data.batch(3, drop_remainder=True)),
    "padded": _of_examples(lambda data: data.padded_batch(3)),
    "rebatched": _of_batches(lambda data: data.rebatch(3)),
    "unbatched": _of_batches(lambda data: data.unbatch()),
    "shuffled": lambda data: data.shuffle(5, seed=3),
    "shuffled once": lambda data: data.shuffle(
        5, seed=4, reshuffle_each_iteration=False
    ),
    "repeated": lambda data: data.repeat(2),
    "thrice": lambda data: data.repeat(3),
    "some": lambda data: data.take(4),
    "but the first": lambda data: data.skip(1),
    "every other": lambda data: data.shard(2, 0),
    "kept": lambda data: data.cache(),
    "prefetched": lambda data: data.prefetch(2),
    "filtered": lambda data: data.filter(
        lambda each: tf.reduce_sum(each["label"]) % 3 > 0
    ),
    "while": lambda data: data.take_while(
        lambda each: tf.reduce_sum(each["label"]) < 5
    ),
    "numbered": _numbered,
    "scanned": _scanned,
    "zipped": _zipped,
    "chosen": _chosen,
    "concatenated": lambda data: data.concatenate(data.take(2)),
    "flat": _of_batches(lambda data: data.flat_map(tf.data.Dataset.from_tensor_slices)),
    "interleaved": _of_batches(
        lambda data: data.interleave(
            tf.data.Dataset.from_tensor_slices, cycle_length=2, block_length=1
        )
    ),
    "interleaved in parallel": _of_batches(
        lambda data: data.interleave(
            tf.data.Dataset.from_tensor_slices, 2, num_parallel_calls=2
        )
    ),
    "windows": _of_examples(_windows),
    "by label": _of_examples(_by_label),
    "by length": _of_examples(_by_length),
    "ragged": _of_examples(_ragged),
    "taken apart": lambda data: tf.data.Dataset.zip(
        {
            "pixels": data.map(lambda each: each["pixels"]),
            "label": data.map(lambda each: each["label"]),
        }
    ),
}


@st.composite
def cases(draw, num_cohorts=2):
    sizes = st.lists(st.sampled_from((7, 4, 0, 5, 1, 12)), min_size=1, max_size=7)
    return PipelineCase(
        stages=tuple(draw(st.lists(st.sampled_from(sorted(STAGES)), max_size=5))),
        way=draw(st.sampled_from(sorted(WAYS))),
        step=draw(st.sampled_from(sorted(STEPS))),
        read_before=draw(st.booleans()),
        cohorts=tuple(tuple(draw(sizes)) for _ in range(num_cohorts)),
    )


def _final(each):
    rows = tf.shape(each["label"])[0]
    return collections.OrderedDict(
        x=tf.reshape(each["pixels"], [rows, -1]), y=each["label"]
    )


def datasets(case, cohort):
    """Returns the clients' datasets."""
    made = []
    for number, size in enumerate(cohort):
        random = np.random.default_rng([number, size])
        data = tf.data.Dataset.from_tensor_slices(
            {
                "pixels": random.integers(0, 256, (size, 2, 2)).astype(np.float32),
                "label": random.integers(0, 4, size).astype(np.int32),
            }
        )
        for name in case.stages:
            data = STAGES[name](data)
        data = data if _is_batched(data) else data.batch(3)
        # Where every batch is as full as another, a reshape alone comes last.
        made.append(data.map(_final))
        if case.read_before:
            list(made[-1].take(2))
    return made
