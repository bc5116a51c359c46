"""Runs of the local context: repeatable, concurrent, civil."""

import gc
import os
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import context as eager_context

from tests import models, tiers
from tests.execution.local.support import MODES, assert_same, call
from tff_drift import algorithms, execution
from tff_drift.execution.local.phases import RunnablePlan
from tff_drift.execution.local.runners.vectorized import VectorizedRunner

CLIENTS = tff.CLIENTS
PLANS = execution.Limits().plans
DATA = models.datasets(models.client_arrays([10, 7, 3, 12, 5, 8], seed=3))


@pytest.fixture(scope="module")
def process():
    return models.fed_avg()


@pytest.fixture(scope="module")
def state(process, fast):
    return call(fast, process.initialize)


@pytest.mark.no_smoke
@pytest.mark.parametrize("concurrency", tiers.first([1], [1, 3]))
def test_equal_from_run_to_run_whatever_the_concurrency(
    process, state, fast, concurrency
):
    expected = call(fast, process.next, state, DATA)
    context = execution.create_local_execution_context(
        max_concurrent_clients=concurrency
    )
    assert_same(call(context, process.next, state, DATA), expected)


@pytest.mark.conformance
def test_rounds_leave_few_blocks_of_pythons_memory(process, state, fast):
    rounds = 20

    def run():
        nonlocal state
        for _ in range(rounds):
            state = call(fast, process.next, state, DATA).state
        gc.collect()
        return sys.getallocatedblocks()

    run()
    before = run()
    # Of every tensor that TensorFlow 2.14 returns it loses a block on Python 3.11.
    assert (run() - before) / rounds < 2 * len(DATA)


def test_each_client_has_its_own_variables_under_concurrency():
    @tff.tensorflow.computation(np.int32)
    def count(n):
        total = tf.Variable(0)

        @tf.function
        def loop():
            for _ in tf.range(2000):
                total.assign_add(n)
            return total.read_value()

        return loop()

    @tff.federated_computation(tff.FederatedType(np.int32, CLIENTS))
    def computation(x):
        return tff.federated_map(count, x)

    context = execution.create_local_execution_context(max_concurrent_clients=4)
    assert call(context, computation, [1, 2, 3, 4]) == [2000, 4000, 6000, 8000]


@pytest.mark.conformance
def test_clients_whose_graphs_take_much_memory_run_side_by_side():
    # From some 200 MB on TensorFlow would put the sum into a variable, which all
    # calls share.
    @tff.tensorflow.computation(np.float32)
    def sum_of_eight(x):
        many = tf.fill([7_000_000], x)
        return tf.reduce_max(tf.add_n([many * factor for factor in range(8)]))

    @tff.federated_computation(tff.FederatedType(np.float32, CLIENTS))
    def computation(x):
        return tff.federated_map(sum_of_eight, x)

    context = execution.create_local_execution_context(max_concurrent_clients=2)
    assert call(context, computation, [1.0, 2.0, 3.0, 4.0]) == [28, 56, 84, 112]


def test_seeded_random_streams_are_equal_from_run_to_run():
    def build():
        draw = tff.tensorflow.computation(lambda: tf.random.uniform([], seed=3))

        @tff.federated_computation(tff.FederatedType(np.int32, CLIENTS))
        def computation(x):
            drawn = tff.federated_eval(draw, CLIENTS)
            return tff.federated_map(
                tff.tensorflow.computation(lambda a, b: b, np.int32, np.float32),
                (x, drawn),
            )

        return computation

    runs = [
        call(
            execution.create_local_execution_context(max_concurrent_clients=4),
            build(),
            [0] * 6,
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_a_seeded_shuffle_starts_over_in_every_round(fast, native):
    digits = tff.tensorflow.computation(
        lambda ds: ds.reduce(tf.constant(0, tf.int64), lambda s, x: 10 * s + x),
        tff.SequenceType(np.int64),
    )
    shuffled = tf.data.Dataset.range(1, 8).shuffle(7, seed=3)
    for dataset in (shuffled, shuffled.batch(2).unbatch(), shuffled.repeat(2)):
        expected = call(native, digits, dataset)
        assert [call(fast, digits, dataset) for _ in range(3)] == [expected] * 3
    generated = tf.data.Dataset.from_generator(
        lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int64)
    ).shuffle(2, seed=1)
    assert call(fast, digits, generated) in (12, 21)


def test_unseeded_random_numbers_differ_between_clients(fast):
    draw = tff.tensorflow.computation(lambda: tf.random.uniform([]))

    @tff.federated_computation(tff.FederatedType(np.int32, CLIENTS))
    def computation(x):
        return tff.federated_eval(draw, CLIENTS), tff.federated_sum(x)

    first, _ = call(fast, computation, [0] * 4)
    second, _ = call(fast, computation, [0] * 4)
    assert len({*first, *second}) == 8


@pytest.mark.parametrize("mode", MODES)
def test_a_random_number_is_the_same_before_within_and_after_a_loop(mode):
    @tff.tensorflow.computation(tff.SequenceType(np.float32))
    def work(data):
        drawn = tf.random.truncated_normal([])
        kept, total = data.reduce(
            (drawn, 0.0), lambda state, x: (state[0], state[1] + state[0] * x)
        )
        return drawn, kept, total

    @tff.federated_computation(
        tff.FederatedType(work.type_signature.parameter, CLIENTS)
    )
    def computation(data):
        return tff.federated_map(work, data)

    context = execution.create_local_execution_context(**MODES[mode])
    for drawn, kept, total in call(context, computation, [[1.0, 2.0, 3.0]] * 5):
        assert kept == drawn
        assert total == pytest.approx(6 * drawn, rel=1e-6)


@pytest.mark.usefixtures("new_objects_only")
def test_equal_computations_are_planned_once():
    context = execution.create_local_execution_context()

    def build():
        return tff.tensorflow.computation(lambda x: x + 1, np.int32)

    before = _plans()
    assert [call(context, build(), 1) for _ in range(3)] == [2, 2, 2]
    assert len(_plans() - before) == 1


@pytest.mark.usefixtures("new_objects_only")
def test_what_is_gone_leaves_no_function_in_tensorflow():
    def registered():
        gc.collect()
        names = eager_context.context().list_function_names()
        # Kernels of single operations, which are made once for all.
        return {name for name in names if not name.startswith("__wrapped__")}

    before = registered()
    process = _process(seed=5, rate=0.25)
    context = execution.create_local_execution_context()
    call(context, process.next, call(context, process.initialize), DATA)
    assert registered() - before
    del process, context
    assert registered() <= before


@pytest.fixture(scope="module")
def new_objects_only():
    """Hides from the collector what there is: it takes seconds to look through."""
    gc.collect()
    gc.freeze()
    yield
    # Else nothing of it would ever be given back.
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _plans():
    return _alive(RunnablePlan)


def _alive(kind):
    gc.collect()
    return {id(each) for each in gc.get_objects() if isinstance(each, kind)}


def _process(seed, rate, weight=1.0):
    """A FedAvg whose loss has a constant of its own."""

    class Loss(tf.keras.losses.SparseCategoricalCrossentropy):
        def call(self, labels, logits):
            return weight * super().call(labels, logits)

    def model():
        initializer = tf.keras.initializers.GlorotUniform(seed)
        layer = tf.keras.layers.Dense(4, kernel_initializer=initializer)
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential([tf.keras.layers.Input([3]), layer]),
            loss=Loss(from_logits=True),
            input_spec=models.INPUT_SPEC,
        )

    return algorithms.build_fed_avg(model, rate)


def _vectorizing():
    return execution.create_local_execution_context(
        batch_clients=True, max_concurrent_clients=1
    )


def _next(context, process):
    state = call(context, process.initialize)
    return call(context, process.next, state, DATA)


@pytest.mark.conformance
@pytest.mark.usefixtures("new_objects_only")
def test_processes_of_other_seeds_and_rates_share_what_trains_their_clients():
    context = _vectorizing()
    before = _alive(VectorizedRunner)
    processes = [_process(1, 0.1), _process(2, 0.1), _process(1, 0.3)]
    shared = [_next(context, process) for process in processes]
    assert len(_alive(VectorizedRunner) - before) == 1
    # What differs in a constant, however small, has its own.
    processes.append(_process(1, 0.1, np.nextafter(np.float32(1), np.float32(2))))
    shared.append(_next(context, processes[-1]))
    assert len(_alive(VectorizedRunner) - before) == 2
    for process, found in zip(processes, shared, strict=True):
        alone = _vectorizing()
        assert_same(found, _next(alone, process))
    assert not np.array_equal(*(_kernel(each) for each in shared[:2]))
    assert not np.array_equal(*(_kernel(each) for each in shared[::2]))


def _kernel(output):
    return output.state.global_model_weights.trainable[0]


def test_what_a_check_says_is_part_of_what_trains_clients():
    def build(most):
        @tff.tensorflow.computation(
            tff.SequenceType(tff.types.tensorflow_to_type(models.INPUT_SPEC))
        )
        def work(batches):
            def step(total, batch):
                largest = tf.reduce_max(batch[0])
                # Nothing but the order of a function waits for it.
                tf.debugging.Assert(largest < most, [largest])
                return total + tf.reduce_sum(batch[0])

            return batches.reduce(0.0, step)

        return tff.federated_computation(
            lambda batches: tff.federated_sum(tff.federated_map(work, batches)),
            tff.FederatedType(work.type_signature.parameter, CLIENTS),
        )

    context = execution.create_local_execution_context(**MODES["batched"])
    equal = models.datasets(models.client_arrays([8, 8, 8]))
    assert np.isfinite(call(context, build(1e3), equal))
    with pytest.raises(tf.errors.InvalidArgumentError):
        call(context, build(-1e3), equal)


def _threads():
    return len(os.listdir("/proc/self/task"))


def _total_from(start):
    """Builds a computation that loops over the clients' batches."""
    batches_type = tff.SequenceType(tff.types.tensorflow_to_type(models.INPUT_SPEC))
    add = tff.tensorflow.computation(
        lambda batches: batches.reduce(
            start, lambda total, batch: total + tf.reduce_sum(batch[0])
        ),
        batches_type,
    )
    return tff.federated_computation(
        lambda batches: tff.federated_sum(tff.federated_map(add, batches)),
        tff.FederatedType(batches_type, CLIENTS),
    )


def _constant(value):
    return lambda: tf.constant(value)


@pytest.mark.conformance
@pytest.mark.usefixtures("new_objects_only")
def test_plans_and_threads_go_with_their_processes():
    context = execution.create_local_execution_context(max_concurrent_clients=1)
    data = models.datasets(models.client_arrays([4, 4, 4]))
    before = _plans()
    threads = []
    for k in range(15):
        call(context, _total_from(float(k)), data)
        assert len(_plans() - before) <= PLANS
        threads.append(_threads())
    # Each plan that is alive has some for its dataset.
    assert max(threads[PLANS:]) <= threads[PLANS - 1] + 2
    del context
    assert not _plans() - before


@pytest.mark.usefixtures("new_objects_only")
def test_a_plan_lives_as_long_as_its_computation():
    context = execution.create_local_execution_context()
    kept = tff.tensorflow.computation(lambda: tf.constant(-1))
    before = _plans()
    call(context, kept)
    (plan,) = _plans() - before
    for k in range(2 * PLANS):
        call(context, tff.tensorflow.computation(_constant(k)))
    assert call(context, kept) == -1
    assert plan in _plans()
    assert len(_plans() - before) <= PLANS + 1


def test_an_error_of_a_client_ends_the_round(fast):
    @tff.tensorflow.computation(np.int32)
    def check(x):
        with tf.control_dependencies([tf.debugging.Assert(x < 3, ["too large", x])]):
            return tf.identity(x)

    @tff.federated_computation(tff.FederatedType(np.int32, CLIENTS))
    def computation(x):
        return tff.federated_sum(tff.federated_map(check, x))

    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        call(fast, computation, [1, 5] + [2] * 50)
    assert call(fast, computation, [1, 2]) == 3


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "int32"),
        (np.int64(2), "int32"),
        ([1, 2], "shape"),
        ("text", "int32"),
        (None, "int32"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(value, message, fast):
    computation = tff.federated_computation(
        lambda x: tff.federated_sum(x), tff.FederatedType(np.int32, CLIENTS)
    )
    with pytest.raises(TypeError, match=message):
        call(fast, computation, [value])


def test_a_clients_value_that_is_no_structure_is_told_its_names(fast):
    of_client = [("examples", np.float32), ("index", np.int32)]
    computation = tff.federated_computation(
        lambda x: tff.federated_sum(x),
        tff.FederatedType(tff.StructType(of_client), CLIENTS),
    )
    with pytest.raises(
        TypeError,
        match=r"^Expected a structure of type <examples=float32,index=int32>, found a "
        r"float\. Give a dictionary of examples, index\.$",
    ):
        call(fast, computation, [1.5])


def test_different_numbers_of_clients_are_refused(fast):
    clients = tff.FederatedType(np.int32, CLIENTS)
    computation = tff.federated_computation(
        lambda x, y: tff.federated_sum(tff.federated_zip((x, y))), [clients, clients]
    )
    with pytest.raises(ValueError, match=r"[Cc]ardinalit"):
        call(fast, computation, [1, 2], [1])
    with pytest.raises(TypeError, match="list with a value for each client"):
        call(fast, computation, 1, [1])
    with pytest.raises(TypeError, match=r"found a dict\. Give a list of its values\.$"):
        call(fast, computation, {"ann": 1}, [1])


def test_what_is_not_supported_is_named(fast):
    computation = tff.jax.computation(lambda x: x + 1, np.int32)
    with pytest.raises(NotImplementedError, match=r"tff\.jax"):
        call(fast, computation, 1)

    @tff.federated_computation(tff.FederatedType(np.int32, CLIENTS))
    def total(x):
        return tff.federated_sum(x)

    uris = tff.framework.CreateDataDescriptor(["a", "b"], tff.to_type(np.int32))
    with pytest.raises(NotImplementedError, match="DataDescriptor"):
        call(fast, total, uris)


def test_computations_may_run_in_several_threads(process, state, fast):
    expected = call(fast, process.next, state, DATA)
    results = []

    def run():
        results.append(call(fast, process.next, state, DATA))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for result in results:
        assert_same(result, expected)
