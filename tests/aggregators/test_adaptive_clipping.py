import collections
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_drift import aggregators, execution

SCALAR = tff.TensorType(np.float32)
WEIGHT = tff.TensorType(np.float32)
NESTED = tff.to_type(
    collections.OrderedDict(
        kernel=tff.TensorType(np.float32, [2]),
        others=(tff.TensorType(np.float16, [1]), np.float64),
    )
)


def nested(kernel, half, double):
    return collections.OrderedDict(
        kernel=np.array(kernel, np.float32),
        others=(np.array([half], np.float16), np.float64(double)),
    )


def flat(value):
    return np.concatenate(
        [
            np.asarray(part, np.float64).ravel()
            for part in (value["kernel"], *value["others"])
        ]
    )


def expected_norms(norms, initial, quantile, rate, rounds):
    """The clipping norm after each round in which clients have these norms."""
    trajectory, rho = [], np.float64(initial)
    for _ in range(rounds):
        b = np.mean(np.asarray(norms) <= rho)
        rho = rho * np.exp(-rate * (b - quantile))
        trajectory.append(rho)
    return trajectory


def test_three_rounds_by_hand(run_rounds):
    process = aggregators.adaptive_clipping_factory().create(NESTED, WEIGHT)
    # Norms 0.5, 2 and 5. The weights would give b = 1/8 instead of 1/3.
    half = nested([0.5, 0], 0, 0)
    two = nested([1, 1], 1, 1)
    five = nested([0, 3], 4, 0)
    first = [half, two, five]
    # Norms 1, 1.09 (float32) and 5, against a clipping norm of about 1.0978.
    second = [nested([0, 0], 0, -1), nested([-1.09, 0], 0, 0), five]
    third = [half, half, half]
    weights = [1.0, 2.0, 5.0]
    outputs = run_rounds(process, (first, weights), (second, weights), (third, weights))

    norms = [
        1.0,
        math.exp(-0.2 * (1 / 3 - 0.8)),
        math.exp(-0.2 * (1 / 3 - 0.8)) * math.exp(-0.2 * (2 / 3 - 0.8)),
        math.exp(-0.2 * (1 / 3 - 0.8))
        * math.exp(-0.2 * (2 / 3 - 0.8))
        * math.exp(-0.2 * (1 - 0.8)),
    ]
    np.testing.assert_allclose(
        [output.measurements["clipping_norm"] for output in outputs],
        norms[:3],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        [aggregators.clipping_norm(output.state) for output in outputs],
        norms[1:],
        rtol=1e-6,
    )
    assert [output.measurements["clipped_count"] for output in outputs] == [2, 1, 0]
    np.testing.assert_allclose(
        [output.measurements["clipped_fraction"] for output in outputs],
        [2 / 3, 1 / 3, 0],
        rtol=1e-6,
    )
    # The weighted mean, of updates clipped to the norm from before the update.
    np.testing.assert_allclose(
        flat(outputs[0].result),
        (1 * flat(half) + 2 * flat(two) / 2 + 5 * flat(five) / 5) / 8,
        rtol=1e-3,
    )
    np.testing.assert_allclose(
        flat(outputs[1].result),
        (flat(second[0]) + 2 * flat(second[1]) + 5 * flat(five) * norms[1] / 5) / 8,
        rtol=1e-3,
    )
    np.testing.assert_allclose(flat(outputs[2].result), flat(half), rtol=1e-6)


@pytest.fixture
def local():
    """Runs a test under the local context, where many rounds take less."""
    context = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield


@pytest.mark.parametrize(("initial", "rounds"), [(1.0, 60), (100.0, 75)])
def test_converges_to_the_quantile_of_known_norms(initial, rounds, run_rounds, local):
    process = aggregators.adaptive_clipping_factory(
        tff.aggregators.UnweightedMeanFactory(), initial_clipping_norm=initial
    ).create(SCALAR)
    norms = np.arange(1, 11, dtype=np.float32)
    updates = list(norms * np.where(norms % 2, 1, -1).astype(np.float32))
    outputs = run_rounds(process, *[(updates,)] * rounds)
    trajectory = [aggregators.clipping_norm(output.state) for output in outputs]

    reference = expected_norms(norms, initial, 0.8, 0.2, 400)
    np.testing.assert_allclose(trajectory, reference[:rounds], rtol=1e-5)
    # 8 of the 10 norms are at most rho exactly where 8 <= rho < 9.
    assert 8 <= trajectory[-1] < 9
    assert reference[-1] == pytest.approx(trajectory[-1], rel=1e-5)


def test_follows_tff_quantile_estimation(run_rounds):
    """TFF's own process is an independent implementation of the same rule."""
    settings = {"target_quantile": 0.55, "learning_rate": 0.7}
    process = aggregators.adaptive_clipping_factory(
        tff.aggregators.SumFactory(), initial_clipping_norm=0.3, **settings
    ).create(SCALAR)
    theirs = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(0.3, **settings)
    norms = [0.1, 0.3, 0.7, 0.9, 1.6, 4.0, 4.1]
    outputs = run_rounds(process, *[([np.float32(n) for n in norms],)] * 8)

    state = theirs.initialize()
    for output in outputs:
        state = theirs.next(state, norms)
        assert aggregators.clipping_norm(output.state) == pytest.approx(
            theirs.report(state), rel=1e-5
        )


def test_unreachable_threshold_equals_plain_mean_bit_for_bit():
    generator = np.random.default_rng(0)
    values = [
        nested(generator.normal(size=2), generator.normal(), generator.normal())
        for _ in range(5)
    ]
    weights = list(generator.uniform(1, 100, size=5).astype(np.float32))
    ours = aggregators.adaptive_clipping_factory(initial_clipping_norm=1e30)
    process = ours.create(NESTED, WEIGHT)
    plain = tff.aggregators.MeanFactory().create(NESTED, WEIGHT)
    actual = process.next(process.initialize(), values, weights)
    expected = plain.next(plain.initialize(), values, weights).result
    assert actual.measurements["clipped_count"] == 0
    assert actual.result["kernel"].tobytes() == expected["kernel"].tobytes()
    for ours, theirs in zip(actual.result["others"], expected["others"], strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_unclipped_updates_keep_their_bits(run_rounds):
    # Denormal numbers, which any arithmetic in TensorFlow flushes to zero.
    update = np.array([3.0, 4.0, 1e-40, -0.0], np.float32)
    # A sample of all clients is the one TFF aggregation without arithmetic.
    process = aggregators.adaptive_clipping_factory(
        tff.aggregators.UnweightedReservoirSamplingFactory(sample_size=1),
        initial_clipping_norm=5.0,
    ).create(tff.TensorType(np.float32, [4]))
    (output,) = run_rounds(process, ([update],))
    # Its norm is exactly the threshold, which counts as not clipped.
    assert output.measurements["clipped_count"] == 0
    assert output.result[0].tobytes() == update.tobytes()
    np.testing.assert_allclose(
        aggregators.clipping_norm(output.state), 5 * math.exp(-0.2 * 0.2), rtol=1e-6
    )


def test_norms_are_of_float32():
    # 300 squared overflows float16; 1e-9 * 300 vanishes in float16.
    half = tff.TensorType(np.float16, [2])
    update = np.array([300, 400], np.float16)
    for threshold, clipped in [(500.0, 0), (1e-7, 1)]:
        process = aggregators.adaptive_clipping_factory(
            tff.aggregators.SumFactory(), initial_clipping_norm=threshold
        ).create(half)
        output = process.next(process.initialize(), [update])
        assert output.measurements["clipped_count"] == clipped
        assert output.result.dtype == np.float16
        np.testing.assert_allclose(
            output.result, update * (threshold / 500.0), rtol=0.2, atol=6e-8
        )
        assert np.any(output.result > 0)


def test_extreme_updates(run_rounds):
    process = aggregators.adaptive_clipping_factory(
        tff.aggregators.SumFactory(), initial_clipping_norm=2.0
    ).create(tff.TensorType(np.float32, [2]))
    huge, infinite, nan, zero = (
        np.array(entries, np.float32)
        for entries in ([1e30, 1e30], [np.inf, 1], [np.nan, 0], [0, 0])
    )
    outputs = run_rounds(process, ([huge],), ([infinite],), ([nan],), ([zero],), ([],))
    counts = [output.measurements["clipped_count"] for output in outputs]
    assert counts == [1, 1, 1, 0, 0]
    np.testing.assert_array_equal(outputs[0].result, [0, 0])
    assert not np.all(np.isfinite(outputs[1].result))
    assert not np.all(np.isfinite(outputs[2].result))
    np.testing.assert_array_equal(outputs[3].result, [0, 0])
    # Without clients the norm stays; it has been finite all along.
    rhos = [aggregators.clipping_norm(output.state) for output in outputs]
    np.testing.assert_allclose(
        rhos,
        2 * np.exp([0.16, 0.32, 0.48, 0.44, 0.44]),
        rtol=1e-6,
    )
    assert outputs[4].measurements["clipped_fraction"] == 0


def test_clipping_norm_stays_positive_and_finite(run_rounds):
    process = aggregators.adaptive_clipping_factory(
        tff.aggregators.SumFactory(), target_quantile=0.5, learning_rate=10.0
    ).create(SCALAR)
    # Each round divides or multiplies the norm by exp(5), that is by 148.
    small, large = ([np.float32(0)],), ([np.float32(np.inf)],)
    down = run_rounds(process, *[small] * 25, large)
    up = run_rounds(process, *[large] * 25, small)
    lowest, highest = np.finfo(np.float32).tiny, np.finfo(np.float32).max
    for outputs, end, back in [
        (down, lowest, math.exp(5)),
        (up, highest, math.exp(-5)),
    ]:
        assert aggregators.clipping_norm(outputs[-2].state) == end
        assert aggregators.clipping_norm(outputs[-1].state) == pytest.approx(
            end * back, rel=1e-5
        )


def test_zero_learning_rate_keeps_the_norm(run_rounds):
    process = aggregators.adaptive_clipping_factory(
        initial_clipping_norm=0.7, learning_rate=0
    ).create(SCALAR, WEIGHT)
    outputs = run_rounds(process, *[([np.float32(3), np.float32(0.1)], [1.0, 3.0])] * 2)
    for output in outputs:
        assert aggregators.clipping_norm(output.state) == np.float32(0.7)
        np.testing.assert_allclose(output.result, (0.7 + 0.3) / 4, rtol=1e-6)


@pytest.mark.conformance
def test_secure_indicator_gives_the_same_numbers(run_rounds, secure_sums_run):
    norms = [0.5, 2.0, 3.0]
    rounds = [([np.float32(norm) for norm in norms],)] * 3
    process = aggregators.adaptive_clipping_factory(
        tff.aggregators.UnweightedMeanFactory(
            tff.aggregators.SecureSumFactory(1e3),
            tff.aggregators.SecureSumFactory(1, 0),
        ),
        indicator_factory=tff.aggregators.SecureSumFactory(1, 0),
    ).create(SCALAR)
    tff.test.assert_not_contains_unsecure_aggregation(process.next)
    outputs = run_rounds(process, *rounds)
    np.testing.assert_allclose(
        [aggregators.clipping_norm(output.state) for output in outputs],
        expected_norms(norms, 1.0, 0.8, 0.2, 3),
        rtol=1e-6,
    )
    assert outputs[0].measurements["clipped_count"] == 2
    np.testing.assert_allclose(outputs[0].result, (0.5 + 1 + 1) / 3, atol=1e-5)


def test_default_indicator_is_not_secure():
    process = aggregators.adaptive_clipping_factory(
        tff.aggregators.SecureSumFactory(1e3)
    ).create(SCALAR)
    tff.test.assert_contains_unsecure_aggregation(process.next)


def test_type_signatures():
    weighted = aggregators.adaptive_clipping_factory()
    unweighted = aggregators.adaptive_clipping_factory(tff.aggregators.SumFactory())
    assert isinstance(weighted, tff.aggregators.WeightedAggregationFactory)
    assert isinstance(unweighted, tff.aggregators.UnweightedAggregationFactory)
    process = unweighted.create(NESTED)
    state = collections.OrderedDict(
        clipping_norm=tff.TensorType(np.float32), indicator=(), inner=()
    )
    measurements = collections.OrderedDict(
        clipping_norm=np.float32, clipped_count=np.int32, clipped_fraction=np.float32
    )
    assert process.initialize.type_signature.result == tff.FederatedType(
        tff.to_type(state), tff.SERVER
    )
    output = process.next.type_signature.result
    assert output.result == tff.FederatedType(NESTED, tff.SERVER)
    assert output.measurements == tff.FederatedType(
        tff.to_type(measurements), tff.SERVER
    )


class TestClippingNorm:
    def test_reads_through_other_factories(self):
        process = aggregators.reject_non_finite_factory(
            tff.aggregators.zeroing_factory(
                10.0, aggregators.adaptive_clipping_factory(initial_clipping_norm=0.25)
            )
        ).create(SCALAR, WEIGHT)
        assert aggregators.clipping_norm(process.initialize()) == 0.25

    def test_ignores_the_fixed_clipping_of_tff(self):
        state = collections.OrderedDict(
            clipping_norm=(3.0, ()),
            inner_agg=[collections.OrderedDict(clipping_norm=np.float32(0.5))],
        )
        assert aggregators.clipping_norm(state) == 0.5

    @pytest.mark.parametrize(
        ("state", "count"),
        [
            ((), 0),
            (collections.OrderedDict(clipping_norm=()), 0),
            ([{"clipping_norm": 1.0}, {"clipping_norm": 2.0}], 2),
        ],
    )
    def test_raises_unless_there_is_exactly_one(self, state, count):
        with pytest.raises(ValueError, match=f"exactly one .* found {count}"):
            aggregators.clipping_norm(state)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("initial_clipping_norm", 0.0, ValueError),
        ("initial_clipping_norm", -1.0, ValueError),
        ("initial_clipping_norm", math.nan, ValueError),
        ("initial_clipping_norm", math.inf, ValueError),
        ("initial_clipping_norm", 1e-60, ValueError),
        ("initial_clipping_norm", 1e60, ValueError),
        ("initial_clipping_norm", "1", TypeError),
        ("target_quantile", -0.1, ValueError),
        ("target_quantile", 1.1, ValueError),
        ("target_quantile", math.nan, ValueError),
        ("target_quantile", None, TypeError),
        ("learning_rate", -0.2, ValueError),
        ("learning_rate", math.nan, ValueError),
        ("learning_rate", math.inf, ValueError),
        ("indicator_factory", tff.aggregators.MeanFactory(), TypeError),
        ("indicator_factory", tff.aggregators.SumFactory, TypeError),
        ("indicator_factory", tff.aggregators.UnweightedMeanFactory(), TypeError),
        ("indicator_factory", tff.aggregators.SecureSumFactory(1.0), TypeError),
        (
            "indicator_factory",
            tff.aggregators.UnweightedReservoirSamplingFactory(3),
            TypeError,
        ),
    ],
)
def test_bad_arguments(name, value, error):
    with pytest.raises(error, match=name):
        aggregators.adaptive_clipping_factory(**{name: value})


def test_clients_of_weight_0_do_not_move_the_clipping_norm(run_rounds):
    process = aggregators.adaptive_clipping_factory().create(NESTED, WEIGHT)
    zero, five = nested([0, 0], 0, 0), nested([0, 3], 4, 0)
    weighted, nobody = run_rounds(
        process, ([five, zero, zero], [2.0, 0.0, 0.0]), ([zero], [0.0])
    )
    # b is 0, and not the 2/3 of which the zeros of clients that count would tell.
    assert weighted.measurements["clipped_count"] == 1
    assert weighted.measurements["clipped_fraction"] == 1.0
    norm = math.exp(-0.2 * (0 - 0.8))
    for output in (weighted, nobody):
        np.testing.assert_allclose(aggregators.clipping_norm(output.state), norm)
    assert nobody.measurements["clipped_fraction"] == 0.0
