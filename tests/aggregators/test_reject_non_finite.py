import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_drift import aggregators

WEIGHT = tff.TensorType(np.float32)
NESTED = tff.to_type(
    collections.OrderedDict(
        kernel=tff.TensorType(np.float32, [2, 1]),
        others=[np.float16, (np.float64,)],
    )
)


def nested(first, second=0.0, half=0.0, double=0.0):
    return collections.OrderedDict(
        kernel=np.array([[first], [second]], np.float32),
        others=[np.float16(half), (np.float64(double),)],
    )


def flat(value):
    half, (double,) = value["others"]
    return [*value["kernel"].ravel(), half, double]


@pytest.fixture(scope="module")
def weighted():
    return aggregators.reject_non_finite_factory().create(NESTED, WEIGHT)


@pytest.mark.parametrize(
    "bad",
    [
        nested(np.nan),
        nested(1.0, np.inf),
        nested(1.0, half=-np.inf),
        nested(1.0, double=np.nan),
    ],
    ids=["nan", "inf", "minus_inf_in_float16", "nan_in_float64"],
)
def test_rejects_a_bad_update_with_its_weight(weighted, bad):
    values = [nested(1, 2, 3, 4), bad, nested(5, 6, 7, 8)]
    output = weighted.next(weighted.initialize(), values, [1.0, 100.0, 3.0])
    assert output.measurements["rejected_clients"] == 1
    np.testing.assert_allclose(flat(output.result), [4, 5, 6, 7], rtol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rejects_a_bad_weight_with_its_update(weighted, bad):
    values = [nested(1, 2, 3, 4), nested(9, 9, 9, 9), nested(5, 6, 7, 8)]
    output = weighted.next(weighted.initialize(), values, [1.0, bad, 3.0])
    assert output.measurements["rejected_clients"] == 1
    np.testing.assert_allclose(flat(output.result), [4, 5, 6, 7], rtol=1e-3)


def test_all_rejected_gives_zeros(weighted):
    values = [nested(np.nan), nested(0, np.inf), nested(1)]
    output = weighted.next(weighted.initialize(), values, [1.0, 2.0, np.nan])
    assert output.measurements["rejected_clients"] == 3
    assert flat(output.result) == [0, 0, 0, 0]


def test_finite_updates_are_the_plain_mean_bit_for_bit(weighted):
    generator = np.random.default_rng(1)
    values = [nested(*generator.normal(size=4)) for _ in range(5)]
    # A client without examples has weight 0: it is not rejected.
    weights = [1.5, 0.0, 30.0, 7.25, 2.0]
    plain = tff.aggregators.MeanFactory().create(NESTED, WEIGHT)
    actual = weighted.next(weighted.initialize(), values, weights)
    expected = plain.next(plain.initialize(), values, weights)
    assert actual.measurements["rejected_clients"] == 0
    for ours, theirs in zip(flat(actual.result), flat(expected.result), strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_unweighted_counts_the_rejected_as_zeros(run_rounds):
    process = aggregators.reject_non_finite_factory(
        tff.aggregators.UnweightedMeanFactory()
    ).create(NESTED)
    values = [nested(3, 6), nested(0, np.nan), nested(9, 3)]
    all_bad = [nested(np.inf)] * 2
    some, none = run_rounds(process, (values,), (all_bad,))
    assert some.measurements["rejected_clients"] == 1
    np.testing.assert_allclose(flat(some.result), [4, 3, 0, 0])
    assert none.measurements["rejected_clients"] == 2
    assert flat(none.result) == [0, 0, 0, 0]


def test_integer_weights(run_rounds):
    process = aggregators.reject_non_finite_factory().create(
        tff.TensorType(np.float32), tff.TensorType(np.int32)
    )
    values = [np.float32(1), np.float32(np.nan), np.float32(4)]
    (output,) = run_rounds(process, (values, [2, 5, 1]))
    assert output.measurements["rejected_clients"] == 1
    assert output.result == pytest.approx(2.0)


def test_type_signature(weighted):
    state = collections.OrderedDict(
        count=(),
        inner=collections.OrderedDict(value_sum_process=(), weight_sum_process=()),
    )
    measurements = collections.OrderedDict(
        rejected_clients=np.int32, mean_value=(), mean_weight=()
    )
    output = weighted.next.type_signature.result
    assert weighted.is_weighted
    assert output.state == tff.FederatedType(tff.to_type(state), tff.SERVER)
    assert output.result == tff.FederatedType(NESTED, tff.SERVER)
    assert output.measurements == tff.FederatedType(
        tff.to_type(measurements), tff.SERVER
    )


@pytest.mark.parametrize(
    "factory",
    [
        tff.aggregators.MeanFactory(),
        tff.aggregators.UnweightedMeanFactory(),
        lambda value_type: None,
    ],
)
def test_bad_count_sum_factory(factory):
    with pytest.raises(TypeError, match="count_sum_factory must"):
        aggregators.reject_non_finite_factory(count_sum_factory=factory)
