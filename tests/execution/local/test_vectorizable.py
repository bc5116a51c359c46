"""Operations that clients are vectorized with, each compared with one by one."""

import inspect
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import tiers
from tests.execution.local.operation_cases import CASES, NUM_CLIENTS, Own
from tff_drift import execution
from tff_drift.execution.local.client_program import convolutions, vectorizable
from tff_drift.execution.local.client_program.interpreter import GraphInterpreter
from tff_drift.execution.local.runners.vectorization import vectorized_map

# What draws other numbers for every client, and what clients' computations are
# compared for in `test_one_by_one`.
RANDOM = {
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
}
CONTROL_FLOW = {"Assert", "If", "StatelessIf"}
# How many of its results an operation has for others to read. Of the rest of these
# TensorFlow gives another shape than it says.
NUM_RESULTS = {"FusedBatchNormGradV3": 3, "FusedBatchNormV3": 5}


def test_every_trusted_operation_has_a_case():
    cases = {each.operation for each in CASES}
    others = RANDOM | CONTROL_FLOW | vectorizable.WITHOUT_CLIENTS
    assert cases | others == vectorizable.TRUSTED
    assert not cases & others


def _apply(each, inputs):
    function = getattr(tf.raw_ops, each.operation)
    names = list(inspect.signature(function).parameters)
    results = function(**dict(zip(names, inputs, strict=False)), **each.attributes)
    return tf.nest.flatten(results)[: NUM_RESULTS.get(each.operation)]


def _gradients(results, inputs):
    """The gradients of a function of all results, by inputs that have one."""
    floats = [result for result in results if result.dtype == tf.float32]
    inputs = [x for x in inputs if x.dtype == tf.float32]
    if not floats or not inputs:
        return []
    total = tf.add_n([tf.reduce_sum(tf.sin(result)) for result in floats])
    try:
        gradients = tf.gradients(total, inputs)
    except (LookupError, NotImplementedError):
        return []
    return [tf.convert_to_tensor(each) for each in gradients if each is not None]


def _graph(each):
    """Returns a client's graph, its inputs, its results, and their gradients."""
    flat = tf.nest.flatten(list(each.inputs))
    with tf.Graph().as_default() as graph:
        inputs = [
            tf.compat.v1.placeholder(x.values.dtype, x.values.shape[1:])
            if isinstance(x, Own)
            else tf.constant(x)
            for x in flat
        ]
        results = _apply(each, tf.nest.pack_sequence_as(list(each.inputs), inputs))
        own = [
            tensor for x, tensor in zip(flat, inputs, strict=True) if isinstance(x, Own)
        ]
        gradients = _gradients(results, own)
    return graph.as_graph_def(), own, results, gradients


def _evaluate(graph_def, own, values, fetches):
    interpreter = GraphInterpreter(graph_def, None)
    feeds = {tensor.op.name: value for tensor, value in zip(own, values, strict=True)}
    results = interpreter.evaluate(feeds, [tensor.name for tensor in fetches])
    return results, interpreter.operations


def _compare(graph_def, own, values, fetches, num_clients):
    """Compares vectorized and single results, whoever has inputs of its own."""
    # All subsets of three inputs. Of more: one, all but one, and all.
    subsets = [
        subset
        for number in sorted({1, len(own) - 1, len(own)} - {0})
        for subset in itertools.combinations(range(len(own)), number)
    ]
    pairs = []
    with tf.Graph().as_default():
        # Not constants, which TensorFlow would look into.
        stacks = [
            tf.compat.v1.placeholder_with_default(
                x[:num_clients], [num_clients, *x.shape[1:]]
            )
            for x in values
        ]
        for subset in subsets:

            def of_client(given, subset=subset):
                fed = [stack[0] for stack in stacks]
                for position, value in zip(subset, given, strict=True):
                    fed[position] = value
                return _evaluate(graph_def, own, fed, fetches)[0]

            vectorized = vectorized_map(of_client, [stacks[k] for k in subset])
            single = [
                of_client([stacks[k][client] for k in subset])
                for client in range(num_clients)
            ]
            pairs += [
                (v, s)
                for v, s in zip(vectorized, zip(*single, strict=True), strict=True)
            ]
        with tf.compat.v1.Session() as session:
            pairs = session.run(pairs)
    for vectorized, single in pairs:
        assert vectorized.dtype == single[0].dtype
        single = np.stack(single)
        np.testing.assert_allclose(
            vectorized, single, rtol=2e-5, atol=2e-5 * _scale(single)
        )


def _scale(values):
    """The largest value, at least 1: sums of such values are as inexact near zero."""
    if values.dtype.kind not in "fc":
        return 1.0
    return np.max(np.abs(values), initial=1.0, where=np.isfinite(values))


def _is_trusted(graph_def, own, values, fetches):
    with tf.Graph().as_default():
        fed = [tf.constant(each[0]) for each in values]
        operations = _evaluate(graph_def, own, fed, fetches)[1]
    # What is fetched alone counts.
    return vectorizable.obstacle(operations) is None


def _has_kernels(graph_def, own, values, fetches):
    """Whether this processor trains one client: without oneDNN, none with dilations."""
    with tf.Graph().as_default():
        fed = [tf.constant(each[0]) for each in values]
        results = _evaluate(graph_def, own, fed, fetches)[0]
        try:
            with tf.compat.v1.Session() as session:
                session.run(results)
        except tf.errors.InvalidArgumentError as error:
            if "dilation rates larger than 1" not in error.message:
                raise
            return False
    return True


def test_squeeze_of_any_shape_keeps_clients():
    with tf.Graph().as_default() as graph:
        given = tf.compat.v1.placeholder(tf.float32, [None, None])
        squeezed = tf.squeeze(given)

    def of_client(own):
        return _evaluate(graph.as_graph_def(), [given], own, [squeezed])[0]

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for shape in ((1, 4, 1), (1, 1, 1), (3, 1, 2)):
            stack = tf.compat.v1.placeholder_with_default(
                np.ones(shape, np.float32), [None, None, None]
            )
            (results,) = vectorized_map(of_client, [stack])
            of_one = tuple(size for size in shape[1:] if size > 1)
            assert session.run(results).shape == (shape[0], *of_one)


@pytest.mark.parametrize(
    ("weights", "shape", "kind"),
    [
        (6, [None, 2], "V3"),
        (5, [None, 2], "V2"),
        # Two values of each example, as they come or flattened.
        (6, [None, 1, 2], "V3"),
        # Two values of each of an example's five words.
        (6, [None, 5, 2], "V2"),
    ],
)
def test_products_of_few_weights_are_not_split(weights, shape, kind):
    """A client's batch of any size, and two by three weights."""
    with tf.Graph().as_default() as graph:
        batch = tf.compat.v1.placeholder(tf.float32, shape)
        given = [batch, tf.compat.v1.placeholder(tf.float32, [2, 3])]
        product = tf.matmul(
            tf.reshape(batch, [-1, 2]) if len(shape) > 2 else batch, given[1]
        )
    _check_kind(graph, given, product, weights, kind)


@pytest.mark.parametrize(("weights", "kind"), [(6, "V3"), (5, "V2")])
def test_products_of_turned_batches_are_not_split(weights, kind):
    with tf.Graph().as_default() as graph:
        given = [
            tf.compat.v1.placeholder(tf.float32, shape) for shape in ([2, None], [2, 3])
        ]
        product = tf.matmul(*given, transpose_a=True)
    _check_kind(graph, given, product, weights, kind)


@pytest.mark.parametrize(("weights", "kind"), [(36, "V3"), (35, "V2")])
def test_a_filter_s_weights_count_once_for_each_place(weights, kind):
    """Images of 4 by 4 pixels, and a filter of 2 by 2 at nine places."""
    with tf.Graph().as_default() as graph:
        given = [
            tf.compat.v1.placeholder(tf.float32, shape)
            for shape in ([None, 4, 4, 1], [2, 2, 1, 1])
        ]
        results = tf.nn.conv2d(*given, 1, "VALID")
    _check_kind(graph, given, results, weights, kind)


def _check_kind(graph, given, result, weights, kind):
    """Checks of which kind a client's product is with the others'."""

    def of_client(own):
        return _evaluate(graph.as_graph_def(), given, own, [result])[0]

    limits = execution.Limits(small_product_weights=weights)
    with tf.Graph().as_default() as graph_of_all, convolutions.limited_by(limits):
        stacks = [
            tf.compat.v1.placeholder(tf.float32, [4, *tensor.shape]) for tensor in given
        ]
        vectorized_map(of_client, stacks)
    kinds = {each.type for each in graph_of_all.get_operations()}
    assert kinds & {"BatchMatMulV2", "BatchMatMulV3"} == {f"BatchMatMul{kind}"}


OPERATIONS = sorted({each.operation for each in CASES})


# In the first tier every thirtieth.
@pytest.mark.parametrize(
    "operation", tiers.first(["Roll", *range(1, len(OPERATIONS), 30)], OPERATIONS)
)
def test_vectorized_as_one_by_one(operation):
    for each in CASES:
        if each.operation != operation:
            continue
        values = [
            x.values for x in tf.nest.flatten(list(each.inputs)) if isinstance(x, Own)
        ]
        graph_def, own, results, gradients = _graph(each)
        fetches = [*results, *gradients]
        if not _is_trusted(graph_def, own, values, fetches):
            # Who takes the gradient trains one by one.
            with tf.Graph().as_default() as forward:
                tf.graph_util.import_graph_def(graph_def, name="")
            fetches = results
            graph_def = tf.compat.v1.graph_util.extract_sub_graph(
                forward.as_graph_def(), [x.op.name for x in results]
            )
            assert _is_trusted(graph_def, own, values, fetches)
        if not _has_kernels(graph_def, own, values, fetches):
            fetches = results
            if not _has_kernels(graph_def, own, values, fetches):
                continue
        for num_clients in (NUM_CLIENTS, 1):
            _compare(graph_def, own, values, fetches, num_clients)
