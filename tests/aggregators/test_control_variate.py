"""The server's control variate as an aggregator, by hand."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy

from tff_drift import aggregators

VECTOR = tff.TensorType(np.float32, [2])


def vectors(*rows):
    return [np.array(row, np.float32) for row in rows]


def test_moves_by_the_sum_over_all_N_clients_not_over_the_cohort(run_rounds):
    process = aggregators.ControlVariateFactory(4).create(VECTOR)
    assert process.is_weighted is False
    first, second, third = run_rounds(
        process,
        [vectors([4, 0], [8, -12])],  # Two of four clients.
        [vectors([0, 2])],
        [vectors([0, 0], [0, 0], [0, 0])],
    )
    np.testing.assert_allclose(first.result, [3.0, -3.0])
    np.testing.assert_allclose(second.result, [3.0, -2.5])
    np.testing.assert_allclose(third.result, second.result)
    np.testing.assert_allclose(second.state["control_variate"], second.result)
    np.testing.assert_allclose(
        second.measurements["control_variate_norm"], np.hypot(3.0, 2.5), rtol=1e-6
    )


def test_structures_of_several_dtypes_and_a_sum_of_weights(run_rounds):
    value_type = tff.to_type(
        collections.OrderedDict(
            matrix=(np.float32, [1, 2]), scalar=tff.TensorType(np.float64)
        )
    )
    process = aggregators.ControlVariateFactory(2.5).create(value_type)

    def value(first, second, third):
        return collections.OrderedDict(
            matrix=np.array([[first, second]], np.float32), scalar=np.float64(third)
        )

    (output,) = run_rounds(process, [[value(0, 3, 4), value(10, 0, 0)]])
    np.testing.assert_allclose(output.result["matrix"], [[4.0, 1.2]], rtol=1e-6)
    np.testing.assert_allclose(output.result["scalar"], 1.6, rtol=1e-6)
    np.testing.assert_allclose(
        output.measurements["control_variate_norm"], np.sqrt(20.0), rtol=1e-6
    )
    assert output.result["scalar"].dtype == np.float64


def test_a_sum_of_ones_own(run_rounds):
    process = aggregators.ControlVariateFactory(
        2, tff.aggregators.clipping_factory(5.0, tff.aggregators.SumFactory())
    ).create(VECTOR)
    (output,) = run_rounds(process, [vectors([3, 4], [10, 0])])
    # The sum clips each client's value to norm 5.
    np.testing.assert_allclose(output.result, [4.0, 2.0], rtol=1e-6)


def test_has_the_documented_type():
    process = aggregators.ControlVariateFactory(4).create(VECTOR)
    assert str(process.initialize.type_signature) == (
        "( -> <control_variate=float32[2],sum=<>>@SERVER)"
    )
    result = process.next.type_signature.result
    assert str(result.result) == "float32[2]@SERVER"
    assert str(result.measurements) == "<control_variate_norm=float32>@SERVER"


@pytest.mark.parametrize(
    ("num_clients", "error"),
    [
        (0, ValueError),
        (-3, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (True, TypeError),
        ("4", TypeError),
        (None, TypeError),
    ],
)
def test_a_bad_number_of_clients_is_refused(num_clients, error):
    with pytest.raises(error, match="num_clients must be"):
        aggregators.ControlVariateFactory(num_clients)


@pytest.mark.parametrize("sum_factory", [tff.aggregators.MeanFactory(), 3])
def test_a_factory_that_does_not_sum_is_refused(sum_factory):
    with pytest.raises(TypeError, match="sum_factory must be"):
        aggregators.ControlVariateFactory(4, sum_factory)


_AGG = tff.aggregators
_DP = _AGG.DifferentiallyPrivateFactory
_MEANS = {
    "mean": _AGG.UnweightedMeanFactory(),
    "clipped": _AGG.clipping_factory(1.0, _AGG.UnweightedMeanFactory()),
    "rotated": _AGG.HadamardTransformFactory(_AGG.UnweightedMeanFactory()),
    "ours": aggregators.reject_non_finite_factory(_AGG.UnweightedMeanFactory()),
    "private": _DP.gaussian_fixed(0.0, 2.0, 1.0),
    "private_and_adaptive": _DP.gaussian_adaptive(0.1, 2.0),
    "private_tree": _DP.tree_aggregation(0.1, 2.0, 1.0, tf.TensorSpec([2])),
    "private_and_zeroed": _AGG.zeroing_factory(1.0, _DP.gaussian_fixed(0.0, 2.0, 1.0)),
}
_SUMS = {
    "secure": _AGG.SecureSumFactory(8.0),
    "encoded": _AGG.EncodedSumFactory.quantize_above_threshold(),
    "clipped_by_an_estimate": _AGG.clipping_factory(
        _AGG.PrivateQuantileEstimationProcess.no_noise(1.0, 0.8, 0.2),
        _AGG.SumFactory(),
    ),
    "private": _DP(tensorflow_privacy.GaussianSumQuery(1.0, 0.0)),
    "private_of_one": _DP.gaussian_fixed(0.0, 1, 1.0),
    "private_of_one_and_adaptive": _DP.gaussian_adaptive(0.0, 1),
    "private_of_one_and_zeroed": _AGG.zeroing_factory(
        1.0, _DP.gaussian_fixed(0.0, 1, 1.0)
    ),
    "private_and_adaptive": _DP(
        tensorflow_privacy.QuantileAdaptiveClipSumQuery(1.0, 0.1, 0.5, 0.2, 0.1, 2)
    ),
}


@pytest.mark.parametrize("sum_factory", _MEANS.values(), ids=_MEANS)
def test_a_mean_is_refused(sum_factory):
    factory = aggregators.ControlVariateFactory(4, sum_factory)
    with pytest.raises(TypeError, match=r"^sum_factory .* must sum .* averages them"):
        factory.create(VECTOR)


@pytest.mark.parametrize("sum_factory", _SUMS.values(), ids=_SUMS)
def test_a_sum_of_any_kind_is_taken(sum_factory):
    process = aggregators.ControlVariateFactory(4, sum_factory).create(VECTOR)
    assert process.next.type_signature.result.result.member == VECTOR


def test_a_private_query_for_one_client_sums():
    process = aggregators.ControlVariateFactory(4, _SUMS["private_of_one"]).create(
        VECTOR
    )
    values = [np.float32([0.5, 0.25]), np.float32([0.25, -0.5])]
    result = process.next(process.initialize(), values).result
    # A quarter of the sum: no value is longer than 1, and there is no noise.
    np.testing.assert_allclose(result, [0.1875, -0.0625], rtol=1e-6)


def test_integers_are_refused():
    with pytest.raises(
        TypeError, match="value_type must hold tensors of float16, float32"
    ):
        aggregators.ControlVariateFactory(4).create(tff.TensorType(np.int32, [2]))
