import collections
import itertools
import math

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_drift import aggregators

VECTOR = tff.TensorType(np.float32, [3])
WEIGHT = tff.TensorType(np.float32)


def mean_cosine_over_pairs(updates):
    """The definition: a loop over all pairs, a zero vector's cosine being 0."""
    cosines = []
    for x, y in itertools.combinations(np.asarray(updates, np.float64), 2):
        norms = np.linalg.norm(x) * np.linalg.norm(y)
        cosines.append(x @ y / norms if norms else 0.0)
    return np.mean(cosines)


@pytest.fixture(scope="module")
def process():
    return aggregators.cohort_measurements_factory(
        tff.aggregators.UnweightedMeanFactory()
    ).create(VECTOR)


def measure(process, updates):
    values = [np.array(update, np.float32) for update in updates]
    return process.next(process.initialize(), values).measurements


@pytest.mark.parametrize(
    ("updates", "cosine"),
    [
        # Products 24, -24 and -12; squared norms 54, 24 and 18.
        (
            [[1, 2, 7], [2, 4, 2], [-3, 0, -3]],
            (24 / math.sqrt(54 * 24) - 24 / math.sqrt(54 * 18) - 12 / math.sqrt(432))
            / 3,
        ),
        ([[1, 0, 0], [0, 5, 0], [0, 0, -0.1]], 0.0),
        ([[1, 2, 3], [-2, -4, -6]], -1.0),
        ([[1, 2, 3]] * 4, 1.0),
        # Of the three pairs only the one without the zero vector counts.
        ([[1, 2, 3], [0, 0, 0], [0.5, 1, 1.5]], 1 / 3),
        ([[0, 0, 0], [0, 0, 0]], 0.0),
        ([[1e-15, 0, 0], [1e15, 1e15, 0]], math.sqrt(0.5)),
    ],
    ids=["hand", "orthogonal", "opposite", "identical", "zero", "zeros", "scales"],
)
def test_mean_pairwise_cosine(process, updates, cosine):
    assert mean_cosine_over_pairs(updates) == pytest.approx(cosine)
    measured = measure(process, updates)["mean_pairwise_cosine"]
    assert measured == pytest.approx(cosine, abs=1e-6)


def test_cosine_of_a_large_cohort(process):
    updates = np.random.default_rng(2).normal(0.3, 1.0, size=(60, 3))
    measured = measure(process, updates)["mean_pairwise_cosine"]
    assert measured == pytest.approx(mean_cosine_over_pairs(updates), abs=1e-6)


def test_norms(process):
    measured = measure(process, [[3, 4, 0], [0, 0, 0], [0, 5, 12]])
    assert measured["mean_client_norm"] == pytest.approx((5 + 0 + 13) / 3)
    assert measured["pseudo_gradient_norm"] == pytest.approx(
        np.linalg.norm([1, 3, 4]), rel=1e-6
    )


def test_small_and_broken_cohorts(process):
    # Not a unit vector in float32, so that the rounding errors show.
    single = measure(process, [[1, 2, 7]])
    assert np.isnan(single["mean_pairwise_cosine"])
    assert single["mean_client_norm"] == pytest.approx(math.sqrt(54))

    broken = measure(process, [[1, 2, 7], [np.nan, 0, 0]])
    assert all(np.isnan(value) for name, value in own(broken).items())

    infinite = measure(process, [[1, 2, 7], [np.inf, 0, 0]])
    assert infinite["pseudo_gradient_norm"] == np.inf
    assert infinite["mean_client_norm"] == np.inf
    assert np.isnan(infinite["mean_pairwise_cosine"])

    overflow = measure(process, [[1e30, 0, 0], [1, 0, 0]])
    assert overflow["mean_client_norm"] == np.inf
    assert overflow["mean_pairwise_cosine"] == 0


def own(measurements):
    names = ("pseudo_gradient_norm", "mean_client_norm", "mean_pairwise_cosine")
    return {name: measurements[name] for name in names}


def test_changes_no_result_and_ignores_weights(run_rounds):
    nested = tff.to_type(
        collections.OrderedDict(
            kernel=tff.TensorType(np.float32, [2]), others=(np.float16, np.float64)
        )
    )
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(5, 4))
    # Values that float16 holds, so that the reference sees what the code sees.
    rows[:, 2] = rows[:, 2].astype(np.float16)
    values = [
        collections.OrderedDict(
            kernel=row[:2].astype(np.float32),
            others=(np.float16(row[2]), np.float64(row[3])),
        )
        for row in rows
    ]
    weights = list(generator.uniform(1, 100, size=5).astype(np.float32))
    ours = aggregators.cohort_measurements_factory().create(nested, WEIGHT)
    plain = tff.aggregators.MeanFactory().create(nested, WEIGHT)
    (actual,) = run_rounds(ours, (values, weights))
    (expected,) = run_rounds(plain, (values, weights))

    assert actual.result["kernel"].tobytes() == expected.result["kernel"].tobytes()
    for x, y in zip(actual.result["others"], expected.result["others"], strict=True):
        assert x.tobytes() == y.tobytes()
    assert actual.measurements["mean_client_norm"] == pytest.approx(
        np.mean(np.linalg.norm(rows, axis=1)), rel=1e-6
    )
    assert actual.measurements["mean_pairwise_cosine"] == pytest.approx(
        mean_cosine_over_pairs(rows), abs=1e-6
    )
    result = [expected.result["kernel"], *map(np.atleast_1d, expected.result["others"])]
    assert actual.measurements["pseudo_gradient_norm"] == pytest.approx(
        np.linalg.norm(np.concatenate(result).astype(np.float64)), rel=1e-6
    )


@pytest.mark.conformance
def test_secure_sums_give_the_same_measurements(run_rounds, secure_sums_run):
    process = aggregators.cohort_measurements_factory(
        tff.aggregators.SecureSumFactory(100.0),
        sum_factory=tff.aggregators.SecureSumFactory(1e3),
    ).create(VECTOR)
    tff.test.assert_not_contains_unsecure_aggregation(process.next)
    updates = [np.array(row, np.float32) for row in ([1, 2, 7], [2, 4, 2], [-3, 0, -3])]
    three, one = run_rounds(process, (updates,), (updates[:1],))
    assert three.measurements["mean_pairwise_cosine"] == pytest.approx(
        mean_cosine_over_pairs(updates), abs=1e-5
    )
    assert three.measurements["mean_client_norm"] == pytest.approx(
        (math.sqrt(54) + math.sqrt(24) + math.sqrt(18)) / 3, abs=1e-4
    )
    # The number of clients is exact, in spite of quantised sums.
    assert np.isnan(one.measurements["mean_pairwise_cosine"])


def test_type_signature(process):
    state = collections.OrderedDict(directions=(), norms=(), inner=((), ()))
    measurements = collections.OrderedDict(
        pseudo_gradient_norm=np.float32,
        mean_client_norm=np.float32,
        mean_pairwise_cosine=np.float32,
        mean_value=(),
        mean_count=(),
    )
    output = process.next.type_signature.result
    assert not process.is_weighted
    assert output.state == tff.FederatedType(tff.to_type(state), tff.SERVER)
    assert output.result == tff.FederatedType(VECTOR, tff.SERVER)
    assert output.measurements == tff.FederatedType(
        tff.to_type(measurements), tff.SERVER
    )


def test_bad_sum_factory():
    with pytest.raises(TypeError, match="sum_factory must"):
        aggregators.cohort_measurements_factory(
            sum_factory=tff.aggregators.MeanFactory()
        )
    factory = aggregators.cohort_measurements_factory(
        sum_factory=tff.aggregators.SecureSumFactory(1, 0)
    )
    with pytest.raises(TypeError, match=r"sum_factory must sum .* refuses"):
        factory.create(VECTOR, WEIGHT)
    factory = aggregators.cohort_measurements_factory(
        sum_factory=tff.aggregators.UnweightedMeanFactory()
    )
    with pytest.raises(TypeError, match=r"sum_factory must sum .* averages them"):
        factory.create(VECTOR, WEIGHT)


def test_result_without_a_norm():
    class CountFactory(tff.aggregators.UnweightedAggregationFactory):
        def create(self, value_type):
            inner = tff.aggregators.SumFactory().create(tff.TensorType(np.int32))

            @tff.federated_computation(
                inner.state_type, tff.FederatedType(value_type, tff.CLIENTS)
            )
            def next_fn(state, value):
                del value
                return inner.next(state, tff.federated_value(1, tff.CLIENTS))

            return tff.templates.AggregationProcess(inner.initialize, next_fn)

    with pytest.raises(TypeError, match="result type of inner_factory"):
        aggregators.cohort_measurements_factory(CountFactory()).create(VECTOR)
