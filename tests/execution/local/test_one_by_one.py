"""Steps that cannot be vectorized run one by one, as the native context has them."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tests.execution.local.support import assert_same, call, training
from tff_drift import algorithms, execution
from tff_drift.execution.local.runners import clients

ZERO = np.float32(0)
BATCHES = tff.SequenceType(tff.TensorType(np.float32, [None, 4]))


def _of_each(step, data_type=BATCHES, start=ZERO):
    """Returns a computation in which every client takes a step for each batch."""
    of_one = tff.tensorflow.computation(
        lambda data: data.reduce(start, step), data_type
    )
    return tff.federated_computation(
        lambda data: tff.federated_map(of_one, data),
        tff.FederatedType(data_type, tff.CLIENTS),
    )


def _data(num_clients=9, num_batches=3):
    random = np.random.default_rng(3)
    return [
        list(random.normal(size=(num_batches, 2, 4)).astype(np.float32))
        for _ in range(num_clients)
    ]


def _switch_case(total, batch):
    branches = [lambda k=k: (k + 1) * tf.reduce_sum(batch) for k in range(3)]
    return total + tf.switch_case(tf.cast(batch[0, 0] > 0, tf.int32), branches)


def _boolean_mask(total, batch):
    return total + tf.reduce_sum(tf.boolean_mask(batch, batch[:, 0] > 0)[:, 1:])


def _sparse(total, batch):
    kept = tf.where(batch > 0, batch, 0)
    return total + tf.reduce_sum(tf.sparse.from_dense(kept).values ** 2)


def _slice(total, batch):
    return total + tf.reduce_sum(batch[: tf.cast(batch[0, 0] > 0, tf.int32) + 1])


def _branch_of_any_shape(total, batch):
    some = tf.cond(batch[0, 0] > 0, lambda: batch[:1], lambda: batch)
    return total + tf.reduce_sum(some)


def _unique(total, batch):
    return total + tf.cast(
        tf.size(tf.unique(tf.reshape(tf.sign(batch), [-1]))[0]), tf.float32
    )


def _gradient_of_patches(total, batch):
    image = tf.reshape(batch, [1, 4, 2, 1])
    with tf.GradientTape() as tape:
        tape.watch(image)
        patches = tf.image.extract_patches(
            image, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME"
        )
        loss = tf.reduce_sum(patches**2)
    return total + tf.reduce_sum(tf.sin(tape.gradient(loss, image)))


@pytest.mark.parametrize(
    ("step", "reason"),
    tiers.first(
        [1, 4],
        [
            (_switch_case, "'Case'|'StatelessCase'"),
            (_boolean_mask, "'Where'"),
            (_sparse, "'Where'"),
            (_slice, "StridedSlice"),
            (_branch_of_any_shape, "a branch with results of any shape"),
            (_unique, "'Unique'"),
            (_gradient_of_patches, "'ExtractImagePatches'"),
        ],
    ),
)
def test_steps_that_cannot_be_vectorized(step, reason, local_contexts, native):
    computation, data = _of_each(step), _data()
    expected = call(native, computation, data)
    for name, context in local_contexts.items():
        assert_same(call(context, computation, data), expected, rtol=1e-5, atol=1e-6)
        if name != "plain":
            (told,) = training(context, computation, data)
            assert told.startswith("one by one: ")
            assert any(each in told for each in reason.split("|"))


def _inverse(total, batch):
    # Of the clients of large batches, not 0 as long as they have batches left: masked,
    # they would take another step.
    inverse = tf.linalg.inv(tf.linalg.diag(tf.stack([total, 1.0])))
    return total * inverse[1, 1] - tf.reduce_mean(batch)


@pytest.mark.usefixtures("may_fall")
def test_what_fails_only_where_it_is_vectorized(local_contexts, native, caplog):
    computation = _of_each(_inverse, start=np.float32(4))
    clients = [(1.0, 4)] * 5 + [(0.125, 9)] * 5
    data = [[np.full([2, 4], x, np.float32)] * count for x, count in clients]
    context = execution.create_local_execution_context(batch_clients=True)
    assert training(context, computation, data)[0].startswith("vectorized")
    expected = call(native, computation, data)
    assert_same(call(context, computation, data), expected, rtol=1e-6)
    (warning,) = [each.getMessage() for each in caplog.records]
    assert "train one by one from now on" in warning
    assert "not invertible" in warning
    (told,) = training(context, computation, data)
    assert told.startswith("one by one: it failed when it was vectorized: ")
    assert_same(call(context, computation, data), expected, rtol=1e-6)
    assert len(caplog.records) == 1


def test_what_fails_one_by_one_too_is_raised_as_there(local_contexts):
    computation = _of_each(_inverse, start=np.float32(4))
    data = [[np.full([2, 4], 2.0, np.float32)] * 3] * 5
    for name, context in local_contexts.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match="not invertible"):
            call(context, computation, data)
        if name == "batched":
            assert training(context, computation, data)[0].startswith("vectorized")


def test_a_branch_of_each_client(local_contexts, native):
    def step(total, batch):
        x = batch[0]
        return total + tf.cond(x[0] > 0, lambda: tf.exp(x), lambda: x * total)

    computation = _of_each(step, start=np.zeros([4], np.float32))
    data, context = _data(), local_contexts["batched"]
    assert training(context, computation, data)[0].startswith("vectorized")
    assert_same(
        call(context, computation, data),
        call(native, computation, data),
        rtol=1e-5,
        atol=1e-6,
    )


def _with_ignored_class():
    return tff.learning.models.from_keras_model(
        models.keras_softmax_regression(),
        input_spec=models.INPUT_SPEC,
        loss=tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=0
        ),
    )


@pytest.mark.conformance
def test_a_loss_that_ignores_a_class(local_contexts, native):
    process = algorithms.build_fed_avg(_with_ignored_class, 0.3)
    data = models.datasets(models.client_arrays([8] * 12 + [5]))
    state = call(local_contexts["plain"], process.initialize)
    expected = call(native, process.next, state, data)
    for context in local_contexts.values():
        told = training(context, process.next, state, data)
        assert told[0].startswith("one by one: ")
        output = call(context, process.next, state, data)
        assert_same(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operation", ["RandomUniform", "TruncatedNormal"])
def test_vectorized_clients_draw_numbers_of_their_own(operation, local_contexts):
    def step(_, batch):
        shape = tf.shape(batch)[1:]
        return getattr(tf.raw_ops, operation)(shape=shape, dtype=tf.float32)

    computation = _of_each(step, start=np.zeros([4], np.float32))
    data, context = _data(), local_contexts["batched"]
    assert training(context, computation, data)[0].startswith("vectorized")
    drawn = np.ravel(call(context, computation, data))
    assert len(set(drawn.tolist())) == drawn.size
    assert np.abs(drawn).max() < 2.5


def _orders(passes):
    """Returns a computation with several passes over a dataset, and its data."""
    data_type = tff.SequenceType(tff.TensorType(np.float32, [None]))

    def digest(data, start=ZERO):
        return data.reduce(start, lambda d, batch: d * 3 % 1009 + batch[0])

    @tff.tensorflow.computation(data_type)
    def both(data):
        # What is needed first comes first, though it takes longer to begin with.
        start = tf.sin(tf.sin(tf.sin(tf.cast(tf.size([]), tf.float32))))
        return digest(data, start), digest(data)

    one = tff.tensorflow.computation(lambda data: digest(data), data_type)

    @tff.tensorflow.computation(data_type)
    def in_functions(x):
        return tf.function(digest)(x), tf.function(digest)(x.map(tf.identity))

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def of_each(data):
        function = both if passes == "one graph" else in_functions
        return tff.federated_map(function, data)

    def dataset(seed):
        numbers = tf.data.Dataset.from_tensor_slices(np.arange(9, dtype=np.float32))
        return numbers.shuffle(9, seed=seed).batch(1)

    return of_each, one, lambda: [dataset(seed) for seed in range(1, 7)]


@pytest.mark.conformance
@pytest.mark.parametrize("passes", tiers.first([0], ["one graph", "functions"]))
def test_passes_over_a_shuffled_dataset_follow_each_other(passes, local_contexts):
    computation, one, make = _orders(passes)

    @tff.federated_computation(computation.type_signature.parameter)
    def first_orders(data):
        return tff.federated_map(one, data)

    for name, context in local_contexts.items():
        runs = collections.Counter()
        for _ in range(8):
            results = zip(*call(context, computation, make()), strict=True)
            runs[tuple(tuple(map(float, each)) for each in results)] += 1
        ((first, second),) = runs
        # The first pass has the order that a single one has.
        assert first == tuple(map(float, call(context, first_orders, make())))
        assert set(first).isdisjoint(second), name


def test_a_computation_that_cannot_be_looked_into_runs_as_it_is(monkeypatch):
    def fails(graph):
        raise KeyError("no such node")

    monkeypatch.setattr(clients, "ClientProgram", fails)
    context = execution.create_local_execution_context(batch_clients=True)
    computation, data = _of_each(_slice), _data()
    assert training(context, computation, data) == [
        "one by one: it cannot be vectorized: KeyError: 'no such node'"
    ]
    found = call(context, computation, data)
    expected = [
        sum(batch[: int(batch[0, 0] > 0) + 1].sum() for batch in client)
        for client in data
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
