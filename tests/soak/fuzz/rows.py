"""Random lookups in tables, with random casts between ids and tables.

Tables are as large as it takes to be trained on the rows that batches name.
"""

import collections
import dataclasses
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

NUM_ROWS = (40, 130, 300, 3000)
WIDTH = 3
_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@dataclasses.dataclass(frozen=True)
class RowsCase:
    """A step that looks ids up in tables.

    Attributes:
      num_rows: Of the tables.
      dtype: Of the ids in a batch.
      least: The least id.
      most: The id above the greatest.
      changes: Names of `CHANGES`, of ids before they are looked up.
      lookup: How they are looked up, one of `LOOKUPS`.
      tables: The number of tables, 1 or 2.
      step: What the step does with the gradient, one of `STEPS`.
      result: What a client returns of its tables, one of `RESULTS`.
      not_finite: Whether a row is not finite.
      cohorts: Of each round the numbers of the clients' batches.
    """

    num_rows: int
    dtype: str
    least: int
    most: int
    changes: tuple[str, ...]
    lookup: str
    tables: int
    step: str
    result: str
    not_finite: bool
    cohorts: tuple[tuple[int, ...], ...]


def _cast(*names):
    def change(ids):
        for name in names:
            ids = tf.cast(ids, name)
        return ids

    return change


CHANGES = {
    **{name: _cast(name) for name in (*_DTYPES, "float16", "bfloat16", "float32")},
    "float64": _cast("float64"),
    "bool": _cast("bool"),
    "reshaped": lambda ids: tf.reshape(ids, [-1]),
    "column": lambda ids: tf.expand_dims(ids, -1),
    "sliced": lambda ids: ids[..., :1],
    "twice": lambda ids: tf.concat([ids, ids], 0),
    "modulo": lambda ids: tf.math.floormod(ids, tf.cast(30, ids.dtype)),
    "at least 0": lambda ids: tf.maximum(ids, tf.cast(0, ids.dtype)),
    "next": lambda ids: ids + tf.cast(1, ids.dtype),
    "bits": lambda ids: tf.bitcast(
        ids, {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64}[ids.dtype.size]
    ),
}


def _as_rows(ids):
    if ids.dtype not in (tf.int32, tf.int64):
        ids = tf.cast(ids, tf.int32)
    return ids


LOOKUPS = {
    "gather": lambda table, ids: tf.gather(table, _as_rows(ids)),
    "embedding": lambda table, ids: tf.nn.embedding_lookup(table, _as_rows(ids)),
    "nd": lambda table, ids: tf.gather_nd(table, _as_rows(ids)[..., tf.newaxis]),
    "one hot": lambda table, ids: (
        tf.one_hot(_as_rows(ids), table.shape[0]) @ table
        if ids.shape.rank in (1, 2)
        else tf.gather(table, _as_rows(ids))
    ),
    "twice": lambda table, ids: (
        tf.gather(table, _as_rows(ids)) * tf.gather(table, _as_rows(ids) * 0 + 2)
    ),
    "own and first": lambda table, ids: tf.gather(table, _as_rows(ids)) + table[0],
}


def _clipped(gradients):
    return tf.clip_by_global_norm(gradients, 1.0)[0]


# Of the tables and their gradients, the tables after the step.
STEPS = {
    "sgd": lambda tables, slopes: [
        t - 0.1 * s for t, s in zip(tables, slopes, strict=True)
    ],
    "decay": lambda tables, slopes: [
        t - 0.1 * (s + 0.01 * t) for t, s in zip(tables, slopes, strict=True)
    ],
    "clipped": lambda tables, slopes: [
        t - 0.1 * s for t, s in zip(tables, _clipped(slopes), strict=True)
    ],
    "swapped": lambda tables, slopes: [
        t - 0.1 * s for t, s in zip(tables, slopes, strict=True)
    ][::-1],
    "minus": lambda tables, slopes: [
        t + tf.negative(0.1 * s) for t, s in zip(tables, slopes, strict=True)
    ],
    "steep": lambda tables, slopes: [
        t - 0.1 * tf.sign(s) * tf.square(s) for t, s in zip(tables, slopes, strict=True)
    ],
    "infinite": lambda tables, slopes: [
        t - 1e30 * s * 1e30 for t, s in zip(tables, slopes, strict=True)
    ],
}


def _if_finite(before, after):
    changes = [b - a for b, a in zip(before, after, strict=True)]
    is_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(c)) for c in changes])
    return [tf.where(is_finite, c, tf.zeros_like(c)) for c in changes]


RESULTS = {
    "changes": lambda before, after: [
        b - a for b, a in zip(before, after, strict=True)
    ],
    "other way": lambda before, after: [
        a - b for b, a in zip(before, after, strict=True)
    ],
    "scaled": lambda before, after: [
        (b - a) * 3.0 for b, a in zip(before, after, strict=True)
    ],
    "divided": lambda before, after: [
        (b - a) / 3.0 for b, a in zip(before, after, strict=True)
    ],
    "if finite": _if_finite,
    "clipped": lambda before, after: _clipped(
        [b - a for b, a in zip(before, after, strict=True)]
    ),
    "tables": lambda before, after: list(after),
    "norms": lambda before, after: [
        tf.reduce_sum(tf.square(b - a)) for b, a in zip(before, after, strict=True)
    ],
    "first rows": lambda before, after: [
        (b - a)[:2] for b, a in zip(before, after, strict=True)
    ],
}


@st.composite
def cases(draw, num_cohorts=2):
    num_rows = draw(st.sampled_from(NUM_ROWS))
    dtype = draw(st.sampled_from(_DTYPES))
    info = np.iinfo(dtype)
    least, most = draw(
        st.sampled_from(
            ((0, num_rows), (0, num_rows), (0, 20), (-30, 30), (-1, 256), (0, 2**17))
        )
    )
    changes = st.sampled_from(sorted(CHANGES))
    cohort = st.lists(st.sampled_from((2, 1, 3, 0)), min_size=2, max_size=7)
    return RowsCase(
        num_rows=num_rows,
        dtype=dtype,
        least=max(least, int(info.min)),
        most=min(most, int(info.max)),
        changes=tuple(draw(st.lists(changes, max_size=3))),
        lookup=draw(st.sampled_from(("gather", "embedding", *LOOKUPS))),
        tables=draw(st.sampled_from((1, 2))),
        step=draw(st.sampled_from(("sgd", "sgd", *STEPS))),
        result=draw(st.sampled_from(("changes", "if finite", *RESULTS))),
        not_finite=draw(st.sampled_from((False, False, False, True))),
        cohorts=tuple(tuple(draw(cohort)) for _ in range(num_cohorts)),
    )


def _specs(case):
    table = tf.TensorSpec([case.num_rows, WIDTH], tf.float32)
    batch = collections.OrderedDict(
        ids=tf.TensorSpec([None, 2], case.dtype), more=tf.TensorSpec([None, 2], "int32")
    )
    return batch, [table] * case.tables


# Traced once for all cohorts.
@functools.lru_cache(maxsize=1)
def _client(case):
    def step(tables, batch):
        ids = batch["ids"]
        for name in case.changes:
            ids = CHANGES[name](ids)
        ids = [ids, batch["more"]][: len(tables)]
        with tf.GradientTape() as tape:
            tape.watch(tables)
            loss = sum(
                tf.reduce_sum(tf.sin(LOOKUPS[case.lookup](table, own)))
                for table, own in zip(tables, ids, strict=True)
            )
        slopes = [
            tf.convert_to_tensor(slope)
            for slope in tape.gradient(
                loss, tables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
        ]
        return tuple(STEPS[case.step](list(tables), slopes))

    def run(data, tables):
        before = tuple(tables)
        after = data.reduce(before, step)
        return tuple(RESULTS[case.result](list(before), list(after)))

    return tf.function(run)


def build(case):
    """Returns the computation of a cohort."""
    batch, tables = _specs(case)
    data_type = tff.SequenceType(tff.types.tensorflow_to_type(batch))
    table_types = tff.types.tensorflow_to_type(tuple(tables))
    of_one = tff.tensorflow.computation(_client(case), data_type, table_types)

    @tff.federated_computation(
        tff.FederatedType(data_type, tff.CLIENTS),
        tff.FederatedType(table_types, tff.SERVER),
    )
    def of_all(data, tables):
        results = tff.federated_map(of_one, (data, tff.federated_broadcast(tables)))
        return tff.federated_sum(results)

    return of_all


def arguments(case, cohort):
    """Returns what the computation takes for a cohort."""
    random = np.random.default_rng(5)
    tables = tuple(
        random.normal(size=[case.num_rows, WIDTH]).astype(np.float32)
        for _ in range(case.tables)
    )
    if case.not_finite:
        tables[-1][17, 1] = np.inf
    return [_dataset(case, k, size) for k, size in enumerate(cohort)], tables


def _dataset(case, client, size):
    random = np.random.default_rng([client, size])
    batches = [
        collections.OrderedDict(
            ids=random.integers(case.least, case.most, (4, 2)).astype(case.dtype),
            more=random.integers(0, case.num_rows, (4, 2)).astype(np.int32),
        )
        for _ in range(size)
    ]
    spec, _ = _specs(case)
    if not batches:
        empty = {
            name: np.zeros([0, 2], each.dtype.as_numpy_dtype)
            for name, each in spec.items()
        }
        return tf.data.Dataset.from_tensor_slices(empty).batch(4)
    examples = {
        name: np.concatenate([batch[name] for batch in batches]) for name in spec
    }
    return tf.data.Dataset.from_tensor_slices(examples).batch(4)


def expected(case, cohort):
    """Returns what the computation has to give, by TensorFlow alone."""
    data, tables = arguments(case, cohort)
    function = _client(case)
    total = None
    for dataset in data:
        results = function(dataset, tuple(map(tf.constant, tables)))
        arrays = [np.asarray(each) for each in results]
        total = (
            arrays
            if total is None
            else [a + b for a, b in zip(total, arrays, strict=True)]
        )
    return total
