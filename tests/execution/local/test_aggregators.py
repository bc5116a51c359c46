"""Every aggregator of TFF and of this library, two rounds each."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import assert_same, call, call_native
from tff_drift import aggregators

VALUE_TYPE = tff.to_type(
    collections.OrderedDict(
        b=tff.TensorType(np.float32, [2, 3]), a=tff.TensorType(np.float32, [4])
    )
)
INTEGERS = tff.TensorType(np.int32, [3])
FLOATS = tff.TensorType(np.float32, [6])
agg = tff.aggregators


def _specs():
    return tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape, t.dtype),
        collections.OrderedDict(
            b=tf.TensorSpec([2, 3], tf.float32), a=tf.TensorSpec([4], tf.float32)
        ),
    )


def _quantile():
    return agg.PrivateQuantileEstimationProcess.no_noise(1.0, 0.5, 0.3)


def _clipped(inner):
    return agg.clipping_factory(_quantile(), agg.zeroing_factory(3.0, inner))


def _tree(**options):
    return agg.DifferentiallyPrivateFactory.tree_aggregation(
        0.0, 3.0, 0.5, _specs(), noise_seed=1, **options
    )


# The name, the factory and the type of a client's value.
CASES = {
    "sum": (agg.SumFactory, VALUE_TYPE),
    "sum_integers": (agg.SumFactory, INTEGERS),
    "mean": (agg.MeanFactory, VALUE_TYPE),
    "mean_no_nan": (lambda: agg.MeanFactory(no_nan_division=True), VALUE_TYPE),
    "unweighted_mean": (agg.UnweightedMeanFactory, VALUE_TYPE),
    "clipping_zeroing": (lambda: _clipped(agg.MeanFactory()), VALUE_TYPE),
    "concat": (lambda: agg.concat_factory(agg.SumFactory()), VALUE_TYPE),
    "hadamard": (
        lambda: agg.HadamardTransformFactory(agg.SumFactory(), num_repeats=2),
        FLOATS,
    ),
    "fourier": (agg.DiscreteFourierTransformFactory, FLOATS),
    "secure_sum": (lambda: agg.SecureSumFactory(3.0, -3.0), VALUE_TYPE),
    "secure_sum_integers": (lambda: agg.SecureSumFactory(50, -50), INTEGERS),
    "secure_sum_adaptive": (lambda: agg.SecureSumFactory(_quantile()), VALUE_TYPE),
    "secure_modular_sum": (
        lambda: agg.SecureModularSumFactory(7, symmetric_range=True),
        INTEGERS,
    ),
    "secure_mean": (
        lambda: agg.MeanFactory(agg.SecureSumFactory(9.0), agg.SecureSumFactory(9.0)),
        VALUE_TYPE,
    ),
    "dp_fixed": (
        lambda: agg.DifferentiallyPrivateFactory.gaussian_fixed(0.0, 3.0, 0.5),
        VALUE_TYPE,
    ),
    "dp_adaptive": (
        lambda: agg.DifferentiallyPrivateFactory.gaussian_adaptive(
            1e-9, 3.0, clipped_count_stddev=1e-9
        ),
        VALUE_TYPE,
    ),
    "dp_tree": (_tree, VALUE_TYPE),
    "encoded_sum": (
        lambda: agg.EncodedSumFactory(_identity_encoder),
        VALUE_TYPE,
    ),
    "reservoir": (
        lambda: agg.UnweightedReservoirSamplingFactory(5),
        INTEGERS,
    ),
    "measurements": (
        lambda: agg.add_measurements(
            agg.SumFactory(),
            client_measurement_fn=lambda v: collections.OrderedDict(
                most=tff.federated_max(v)
            ),
            server_measurement_fn=lambda v: collections.OrderedDict(total=v),
        ),
        INTEGERS,
    ),
    "robust": (tff.learning.robust_aggregator, VALUE_TYPE),
    "secure": (tff.learning.secure_aggregator, FLOATS),
    "distributed_dp": (
        # With zeroing its protocol buffer is too deep for TFF's own compiler.
        lambda: tff.learning.ddp_secure_aggregator(1e-6, 3, bits=22, zeroing=False),
        FLOATS,
    ),
    "debug_measurements": (
        lambda: tff.learning.add_debug_measurements(agg.MeanFactory()),
        VALUE_TYPE,
    ),
    "adaptive_clipping": (
        lambda: aggregators.adaptive_clipping_factory(agg.MeanFactory()),
        VALUE_TYPE,
    ),
    "cohort_measurements": (
        lambda: aggregators.cohort_measurements_factory(agg.MeanFactory()),
        VALUE_TYPE,
    ),
    "reject_non_finite": (
        lambda: aggregators.reject_non_finite_factory(agg.MeanFactory()),
        VALUE_TYPE,
    ),
}
# Their random rotations differ from run to run, and cancel but for rounding.
LOOSE = {"hadamard", "fourier", "distributed_dp", "dp_adaptive"}
# Of these the state holds a seed that is drawn, or samples that are.
RESULT_ONLY = {"hadamard", "fourier", "distributed_dp", "reservoir", "dp_tree"}


def _identity_encoder(spec):
    from tensorflow_model_optimization.python.core.internal import tensor_encoding

    return tensor_encoding.encoders.as_gather_encoder(
        tensor_encoding.encoders.identity(), spec
    )


def client_values(value_type, weighted):
    random = np.random.default_rng(5)

    def value(tensor_type):
        if np.issubdtype(tensor_type.dtype, np.integer):
            return random.integers(-20, 20, tensor_type.shape).astype(np.int32)
        return random.normal(size=tensor_type.shape).astype(np.float32)

    def draw():
        if isinstance(value_type, tff.TensorType):
            return value(value_type)
        return collections.OrderedDict(
            (name, value(element))
            for name, element in tff.structure.iter_elements(value_type)
        )

    values = [draw() for _ in range(3)]
    return [values, [1.0, 2.0, 0.5]] if weighted else [values]


def create(factory, value_type):
    if isinstance(factory, agg.WeightedAggregationFactory):
        return factory.create(value_type, tff.TensorType(np.float32)), True
    return factory.create(value_type), False


# In the first tier one of each kind of sums, states and measurements.
FIRST = (
    *("mean", "clipping_zeroing", "concat", "secure_modular_sum", "secure_mean"),
    *("dp_adaptive", "measurements", "adaptive_clipping", "cohort_measurements"),
    "reject_non_finite",
)


@pytest.mark.parametrize("name", tiers.first(FIRST, list(CASES)))
def test_aggregates_as_the_native_context_does(name, contexts, native):
    build, value_type = CASES[name]
    process, weighted = create(build(), value_type)
    arguments = client_values(value_type, weighted)
    state = call_native(native, process.initialize)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if name in LOOSE else {"rtol": 1e-6}
    for context in contexts.values():
        if name not in RESULT_ONLY:
            assert_same(call(context, process.initialize), state)
    for _ in range(2):
        expected = call_native(native, process.next, state, *arguments)
        for context in contexts.values():
            output = call(context, process.next, state, *arguments)
            if name == "reservoir":
                # All three clients fit into the sample; their order is drawn.
                assert sorted(map(tuple, output.result)) == sorted(
                    map(tuple, expected["result"])
                )
            elif name in RESULT_ONLY:
                assert_same(output.result, expected["result"], **tolerance)
            else:
                assert_same(output, expected, **tolerance)
        state = expected["state"]


def test_secure_sum_refuses_values_out_of_range(local):
    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def total(x):
        return tff.federated_secure_sum(x, 10)

    assert call(local, total, [1, 10]) == 11
    with pytest.raises(tf.errors.InvalidArgumentError, match="larger than maximum"):
        call(local, total, [1, 11])
