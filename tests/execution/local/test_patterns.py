"""The forms that are recognised, each from the hands of whoever makes it.

A test here that fails means that a graph has a new shape: its maker then runs more
slowly, in silence. See `tff_drift.execution.local.patterns`.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tests.execution.local.support import call, training
from tff_drift import aggregators, algorithms, execution
from tff_drift.aggregators.client_state_collection import collected_type
from tff_drift.execution.local import patterns
from tff_drift.execution.local.client_program import loops, program
from tff_drift.execution.local.runners import clients

VALUE_TYPE = tff.to_type(
    collections.OrderedDict(
        b=tff.TensorType(np.float32, [2, 3]), a=tff.TensorType(np.float32, [])
    )
)


def _forms(context, computation):
    """Returns how the aggregations of a computation are done, in their order."""
    lines = [line.strip() for line in context.explain(computation).splitlines()]
    told = [line for line in lines if line.startswith("aggregation ")]
    return [line.split(": ")[1].split(", <")[0] for line in told]


def test_sums_of_tff_are_summed(fast):
    process = tff.aggregators.SumFactory().create(VALUE_TYPE)
    assert _forms(fast, process.next) == ["summed"]
    process = tff.aggregators.MeanFactory().create(
        VALUE_TYPE, tff.TensorType(np.float32)
    )
    assert _forms(fast, process.next) == ["summed", "summed"]


def test_the_collection_of_client_states_is_collected(fast):
    factory = aggregators.ClientStateCollectionFactory()
    process = factory.create(collected_type(VALUE_TYPE))
    assert _forms(fast, process.next) == ["collected"]


def test_the_states_of_a_method(fast, monkeypatch):
    programs = []

    def cut(graph):
        programs.append(program.ClientProgram(graph))
        return programs[-1]

    monkeypatch.setattr(clients, "ClientProgram", cut)
    process = algorithms.build_scaffold(models.softmax_regression, 0.3, 9)
    forms = _forms(fast, process.next)
    assert forms.count("collected") == 1
    assert set(forms) == {"summed", "collected"}
    (client,) = programs
    (loop,) = client.loops

    # The correction, in the shapes of the weights, goes along unchanged.
    def shapes(specs):
        return [tuple(spec.shape) for spec in specs if spec.shape.rank]

    assert shapes(loop.state_specs).count((3, 4)) == 1
    assert shapes(loop.argument_specs) == [(3, 4), (4,)]
    with tf.Graph().as_default():
        values = [
            None if loops.is_dataset(spec) else loops.placeholder(spec)
            for spec in client.graph.specs
        ]
        results = client.finish(values, [loops.placeholders(loop.state_specs)])
    # The message to the server and the new state, of as many entries as the weights.
    vectors = [result for result in results if tuple(result.shape) == (16,)]
    assert len(vectors) == 2
    assert all(patterns.choice(vector) is not None for vector in vectors)


def test_the_mergeable_form_of_a_method(fast):
    """Of which actors on Ray run the part up to the merge."""
    process = algorithms.build_scaffold(models.softmax_regression, 0.3, 9)
    form = tff.backends.native.compile_to_mergeable_comp_form(process.next)
    assert _forms(fast, form.up_to_merge) == ["summed", "collected"]


def _aggregate(accumulate):
    vectors = tff.TensorType(np.float32, [None])
    zero = tff.tensorflow.computation(lambda: tf.zeros([0]))
    add = tff.tensorflow.computation(accumulate, vectors, np.float32)
    merge = tff.tensorflow.computation(
        lambda a, b: tf.concat([a, b], 0), vectors, vectors
    )
    report = tff.tensorflow.computation(lambda a: a, vectors)

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def aggregate(values):
        return tff.federated_aggregate(values, zero(), add, merge, report)

    return aggregate


@pytest.mark.parametrize(
    ("accumulate", "form"),
    [
        (lambda a, x: tf.concat([a, [x]], 0), "added one client after the other"),
        (lambda a, x: tf.concat([a, x[tf.newaxis]], 0), "collected"),
        (lambda a, x: tf.concat([a, tf.expand_dims(x, 0)], 0), "collected"),
        (
            lambda a, x: tf.concat([x[tf.newaxis], a], 0),
            "added one client after the other",
        ),
    ],
)
def test_a_stack_is_collected_in_the_order_of_the_clients_alone(fast, accumulate, form):
    computation = _aggregate(accumulate)
    assert _forms(fast, computation) == [form]
    with tff.framework.get_context_stack().install(fast):
        result = computation([1.0, 2.0, 3.0])
    assert sorted(result) == [1.0, 2.0, 3.0]


def _after_check(total, value):
    with tf.control_dependencies([tf.debugging.assert_less(value, 10.0)]):
        return tf.identity(total)


@pytest.mark.parametrize(
    "accumulate",
    [
        lambda a, x: a + _after_check(x, x),
        lambda a, x: _after_check(a, x) + x,
        lambda a, x: _after_check(a + x, x),
    ],
)
def test_a_sum_that_checks_its_values_is_not_summed_at_once(local, fast, accumulate):
    add = tff.tensorflow.computation(accumulate, np.float32, np.float32)
    zero = tff.tensorflow.computation(lambda: np.float32(0))
    plus = tff.tensorflow.computation(lambda a, b: a + b, np.float32, np.float32)
    same = tff.tensorflow.computation(lambda a: a, np.float32)
    data_type = tff.SequenceType(np.float32)
    total = tff.tensorflow.computation(
        lambda data: data.reduce(np.float32(0), lambda a, b: a + b), data_type
    )

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def aggregate(data):
        values = tff.federated_map(total, data)
        return tff.federated_aggregate(values, zero(), add, plus, same)

    assert _forms(fast, aggregate) == ["added one client after the other"]
    with tff.framework.get_context_stack().install(local):
        assert aggregate([[1.0, 2.0], [3.0, 4.0]]) == 10.0
        with pytest.raises(tf.errors.InvalidArgumentError):
            aggregate([[1.0, 2.0], [30.0, 4.0]])


@pytest.mark.parametrize(
    "build",
    tiers.first(
        [0],
        [
            lambda: algorithms.build_fed_avg(models.softmax_regression, 0.3),
            # It gathers its batches.
            lambda: algorithms.build_uga(
                models.softmax_regression, 0.1, 0.5, local_epochs=2
            ),
        ],
    ),
    ids=["FedAvg", "UGA"],
)
def test_loops_over_batches_run_step_by_step(fast, build):
    process = build()
    (told,) = training(fast, process.next)
    assert told.startswith("vectorized in lockstep or one by one: ")


def _sum_of_list(scope, loop, last_first=True):
    """Returns what sums up a dataset that it has gathered, the last element first."""
    raw_ops = tf.raw_ops

    def total(data):
        no_shape = tf.constant([], tf.int32)
        empty = raw_ops.EmptyTensorList(
            element_shape=no_shape, max_num_elements=-1, element_dtype=tf.float32
        )

        def gather(state, x):
            count, items = state
            return count + 1, raw_ops.TensorListPushBack(input_handle=items, tensor=x)

        with tf.name_scope(scope):
            count, items = data.reduce((tf.constant(0), empty), gather)

        def add(index, total):
            item = raw_ops.TensorListGetItem(
                input_handle=items,
                index=index - 1 if last_first else index,
                element_shape=no_shape,
                element_dtype=tf.float32,
            )
            return index - 1 if last_first else index + 1, total / 2 + item

        return tf.while_loop(
            lambda index, _: index > 0 if last_first else index < count,
            add,
            (count if last_first else tf.constant(0), tf.constant(0.0)),
            name=loop,
        )[1]

    return tff.tensorflow.computation(total, tff.SequenceType(np.float32))


def _totals(total):
    @tff.federated_computation(
        tff.FederatedType(total.type_signature.parameter, tff.CLIENTS)
    )
    def totals(data):
        return tff.federated_map(total, data)

    return totals


def test_anyones_gathered_batches_are_taken_in_lockstep_by_their_names():
    total = _sum_of_list("gathered_batches_of_1_epochs", "last_epoch", False)
    context = execution.create_local_execution_context(batch_clients=True)
    data = [[1.0, 2.0], [3.0, 4.0, 5.0, 7.0], [8.0, 0.5]]
    (told, *_) = training(context, _totals(total), data)
    assert told.startswith("vectorized in lockstep")
    # The last elements, and half of what comes before them.
    assert call(context, _totals(total), data) == [2.5, 10.875, 4.5]


@pytest.mark.parametrize(
    ("scope", "loop", "reason"),
    [
        ("gathered", "last_epoch", "its loop carries a resource"),
        (
            "gathered_batches_of_2_epochs",
            "backwards",
            "it takes gathered batches in an unknown order",
        ),
    ],
)
def test_other_loops_over_lists_are_left_to_themselves(
    local, native, fast, scope, loop, reason
):
    totals = _totals(_sum_of_list(scope, loop))
    data = [[1.0, 2.0], [3.0, 4.0, 5.0, 7.0], [8.0, 0.5]]
    assert call(local, totals, data) == call(native, totals, data)
    assert f"cannot be vectorized: {reason}" in "".join(training(fast, totals))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.keras.layers.Conv1D(2, 2),
        lambda: tf.keras.layers.DepthwiseConv1D(2),
        lambda: tf.keras.layers.Conv1DTranspose(2, 2),
        lambda: tf.keras.layers.SeparableConv1D(2, 2),
    ],
    ids=["Conv1D", "DepthwiseConv1D", "Conv1DTranspose", "SeparableConv1D"],
)
def test_convolutions_of_keras_are_told_by_their_operations(make):
    # Made here: a layer becomes invalid when Keras makes one of its kind in a graph
    # of TensorFlow 1, as it does for TFF.
    layer = make()
    layer.build([None, 4, 3])
    apply = tf.function(lambda x: layer(x)).get_concrete_function(tf.zeros([1, 4, 3]))
    operations = {operation.type for operation in apply.graph.get_operations()}
    assert patterns.has_convolution(operations)
    dense = tf.function(lambda x: x @ x).get_concrete_function(tf.zeros([2, 2]))
    operations = {operation.type for operation in dense.graph.get_operations()}
    assert not patterns.has_convolution(operations)


RANGE = tf.data.Dataset.range(3)


@pytest.mark.parametrize(
    ("dataset", "repeatable", "random"),
    [
        (RANGE.batch(1).repeat(2).take(3), True, False),
        (RANGE.skip(1).cache().prefetch(1), True, False),
        (RANGE.concatenate(RANGE).batch(2), True, False),
        (RANGE.shuffle(2, seed=1).batch(2), False, True),
        (tf.data.Dataset.random(seed=1).take(2), False, True),
        (RANGE.map(lambda x: x + 1), False, False),
    ],
)
def test_datasets_are_told_by_their_kind(dataset, repeatable, random):
    assert patterns.is_repeatable(dataset) == repeatable
    assert patterns.draws_random_numbers(dataset) == random


def test_strings_are_concatenated_and_not_summed():
    with tf.Graph().as_default():
        accumulator, value = (tf.compat.v1.placeholder(tf.string, []) for _ in "ab")
        assert patterns.summand(accumulator + value, accumulator) is None
