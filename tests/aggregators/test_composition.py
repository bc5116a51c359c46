"""The aggregators with one another, with TFF's own and in TFF's builders."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tff_drift import aggregators

VECTOR = tff.TensorType(np.float32, [2])
WEIGHT = tff.TensorType(np.float32)
ONE_OR_ZERO = tff.aggregators.SecureSumFactory(1, 0)

WRAPPERS = {
    "clipping": aggregators.adaptive_clipping_factory,
    "rejection": aggregators.reject_non_finite_factory,
    "measurements": aggregators.cohort_measurements_factory,
}
SECURE_WRAPPERS = {
    "clipping": lambda inner: aggregators.adaptive_clipping_factory(
        inner, indicator_factory=ONE_OR_ZERO
    ),
    "rejection": lambda inner: aggregators.reject_non_finite_factory(
        inner, count_sum_factory=ONE_OR_ZERO
    ),
    "measurements": lambda inner: aggregators.cohort_measurements_factory(
        inner, sum_factory=tff.aggregators.SecureSumFactory(100.0)
    ),
}
MEASUREMENTS = {
    "clipping_norm",
    "clipped_count",
    "clipped_fraction",
    "rejected_clients",
    "pseudo_gradient_norm",
    "mean_client_norm",
    "mean_pairwise_cosine",
}
ORDERS = list(itertools.permutations(WRAPPERS))


def _orders(chosen, orders):
    """Cases of orders, of which those at some positions are in the first tier."""
    return tiers.first(chosen, [(order,) for order in orders], map("-".join, orders))


def wrapped(order, inner_factory, wrappers=WRAPPERS):
    for name in order:
        inner_factory = wrappers[name](inner_factory)
    return inner_factory


def vectors(*rows):
    return [np.array(row, np.float32) for row in rows]


@pytest.mark.parametrize("order", _orders([0, 3, 5], ORDERS))
def test_any_order(order, run_rounds):
    process = wrapped(order, tff.aggregators.MeanFactory(no_nan_division=True)).create(
        VECTOR, WEIGHT
    )
    # Norms 5, 0.5 and not finite, against a clipping norm of 1.
    values = vectors([3, 4], [0.3, -0.4], [np.nan, 1])
    (output,) = run_rounds(process, (values, [1.0, 3.0, 10.0]))
    np.testing.assert_allclose(
        output.result, [(0.6 + 0.9) / 4, (0.8 - 1.2) / 4], rtol=1e-6
    )
    measurements = output.measurements
    assert set(measurements) == MEASUREMENTS | {"mean_value", "mean_weight"}
    assert measurements["rejected_clients"] == 1
    # Where clipping comes first (outermost), it sees NaN, which is not <= 1.
    sees_nan = order.index("clipping") > order.index("rejection")
    assert measurements["clipped_count"] == (2 if sees_nan else 1)
    # A client that was rejected before has weight 0 and does not count.
    b = 1 / 3 if sees_nan else 1 / 2
    assert aggregators.clipping_norm(output.state) == pytest.approx(
        np.exp(-0.2 * (b - 0.8)), rel=1e-6
    )
    measures_nan = order.index("measurements") > order.index("rejection")
    assert np.isnan(measurements["mean_client_norm"]) == measures_nan
    assert measurements["pseudo_gradient_norm"] == pytest.approx(
        np.linalg.norm([0.375, -0.1]), rel=1e-6
    )


@pytest.mark.parametrize("order", _orders([], [ORDERS[0], ORDERS[-1]]))
def test_around_differential_privacy(order, run_rounds):
    # Without noise the result is known: the sum of updates of norm at most 0.5,
    # divided by the expected number of clients.
    dp = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        noise_multiplier=0.0, clients_per_round=4.0, clip=0.5
    )
    process = wrapped(order, dp).create(VECTOR)
    values = vectors([3, 4], [0.06, -0.08], [np.inf, 0])
    (output,) = run_rounds(process, (values,))
    np.testing.assert_allclose(
        output.result, [(0.3 + 0.06) / 4, (0.4 - 0.08) / 4], rtol=1e-5
    )
    assert output.measurements["rejected_clients"] == 1
    assert output.measurements["clipped_count"] >= 1


def test_noise_of_differential_privacy_passes_through(run_rounds):
    dp = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
        noise_multiplier=1.0, clients_per_round=2.0, clip=0.5
    )
    process = wrapped(ORDERS[0], dp).create(tff.TensorType(np.float32, [10_000]))
    zeros = [np.zeros(10_000, np.float32)] * 2
    (output,) = run_rounds(process, (zeros,))
    assert np.std(output.result) == pytest.approx(0.25, rel=0.1)


@pytest.fixture(scope="module")
def secure_mean():
    return tff.aggregators.MeanFactory(
        value_sum_factory=tff.aggregators.SecureSumFactory(100.0),
        weight_sum_factory=tff.aggregators.SecureSumFactory(100.0, 0.0),
        no_nan_division=True,
    )


@pytest.mark.parametrize("order", _orders([0], ORDERS))
def test_only_secure_aggregation(order, secure_mean):
    process = wrapped(order, secure_mean, SECURE_WRAPPERS).create(VECTOR, WEIGHT)
    tff.test.assert_contains_secure_aggregation(process.next)
    tff.test.assert_not_contains_unsecure_aggregation(process.next)


def test_secure_aggregation_runs(secure_mean, run_rounds, secure_sums_run):
    order = ("clipping", "measurements", "rejection")
    process = wrapped(order, secure_mean, SECURE_WRAPPERS).create(VECTOR, WEIGHT)
    values = vectors([3, 4], [0.3, -0.4], [np.nan, 1])
    (output,) = run_rounds(process, (values, [1.0, 3.0, 10.0]))
    np.testing.assert_allclose(
        output.result, [(0.6 + 0.9) / 4, (0.8 - 1.2) / 4], atol=1e-5
    )
    assert output.measurements["rejected_clients"] == 1
    assert output.measurements["clipped_count"] == 1
    assert output.measurements["mean_client_norm"] == pytest.approx(5.5 / 3, rel=1e-5)


def model_fn():
    inputs = tf.keras.Input([2])
    model = tf.keras.Model(
        inputs, tf.keras.layers.Dense(1, kernel_initializer="zeros")(inputs)
    )
    return tff.learning.models.from_keras_model(
        model,
        loss=tf.keras.losses.MeanSquaredError(),
        input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
    )


@pytest.fixture(scope="module")
def cohort():
    generator = np.random.default_rng(4)
    return [
        tf.data.Dataset.from_tensor_slices(
            (
                generator.normal(size=[size, 2]).astype(np.float32),
                generator.normal(size=[size, 1]).astype(np.float32),
            )
        ).batch(2)
        for size in (3, 5, 8)
    ]


def train(build, cohort, rounds=2, **options):
    process = build(
        model_fn, tff.learning.optimizers.build_sgdm(learning_rate=0.1), **options
    )
    state = process.initialize()
    outputs = []
    for _ in range(rounds):
        outputs.append(process.next(state, cohort))
        state = outputs[-1].state
    return process.get_model_weights(state).trainable, outputs


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("build", "inner_factory"),
    tiers.first(
        [1],
        [
            (tff.learning.algorithms.build_weighted_fed_avg, None),
            (
                tff.learning.algorithms.build_unweighted_fed_avg,
                tff.aggregators.UnweightedMeanFactory(),
            ),
        ],
    ),
    ids=["weighted", "unweighted"],
)
def test_builders_of_tff_train_the_same_model(build, inner_factory, cohort):
    """An unreachable threshold, nothing to reject and measuring change no bit."""
    factory = aggregators.reject_non_finite_factory(
        aggregators.cohort_measurements_factory(
            aggregators.adaptive_clipping_factory(
                inner_factory, initial_clipping_norm=1e9
            )
        )
    )
    weights, outputs = train(build, cohort, model_aggregator=factory)
    expected, _ = train(build, cohort)
    assert [w.tobytes() for w in weights] == [w.tobytes() for w in expected]
    assert np.any(weights[0] != 0)

    for output in outputs:
        measured = output.metrics["aggregator"]
        assert measured.keys() >= MEASUREMENTS
        assert (measured["clipped_count"], measured["rejected_clients"]) == (0, 0)
        assert 0 < measured["pseudo_gradient_norm"] <= 3 * measured["mean_client_norm"]
        assert -1 <= measured["mean_pairwise_cosine"] <= 1
    # Two rounds in which every client stayed below the norm.
    final = 1e9 * np.exp(-0.2 * 0.2) ** 2
    for state in (outputs[-1].state, outputs[-1].state.aggregator):
        assert aggregators.clipping_norm(state) == pytest.approx(final, rel=1e-6)


@pytest.mark.conformance
def test_around_the_dp_aggregator_of_tff(cohort):
    dp = tff.learning.dp_aggregator(noise_multiplier=1e-3, clients_per_round=3.0)
    weights, (output,) = train(
        tff.learning.algorithms.build_unweighted_fed_avg,
        cohort,
        rounds=1,
        model_aggregator=wrapped(ORDERS[0], dp),
    )
    assert all(np.all(np.isfinite(w)) for w in weights)
    # TFF's adaptive clipping starts at 0.1; noise of 1e-4 comes on top.
    assert 0 < output.metrics["aggregator"]["pseudo_gradient_norm"] < 0.11


@pytest.mark.conformance
def test_a_builder_of_tff_with_secure_sums_only():
    factory = wrapped(ORDERS[0], tff.learning.secure_aggregator(), SECURE_WRAPPERS)
    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        tff.learning.optimizers.build_sgdm(learning_rate=0.1),
        model_aggregator=factory,
        metrics_aggregator=tff.learning.metrics.secure_sum_then_finalize,
    )
    tff.test.assert_contains_secure_aggregation(process.next)
    tff.test.assert_not_contains_unsecure_aggregation(process.next)
    assert aggregators.clipping_norm(process.initialize()) == 1.0


def test_inside_the_factories_of_tff(run_rounds):
    factory = tff.aggregators.zeroing_factory(
        100.0,
        tff.learning.add_debug_measurements(
            aggregators.adaptive_clipping_factory(
                aggregators.cohort_measurements_factory()
            )
        ),
    )
    process = factory.create(VECTOR, WEIGHT)
    (output,) = run_rounds(process, (vectors([3, 4], [500, 0]), [1.0, 1.0]))
    np.testing.assert_allclose(output.result, [0.3, 0.4], rtol=1e-6)
    inner = output.measurements["zeroing"]
    assert isinstance(inner, collections.OrderedDict)
    assert inner["clipped_count"] == 1
    assert inner["mean_client_norm"] == pytest.approx(0.5)
    assert aggregators.clipping_norm(output.state) == pytest.approx(
        np.exp(-0.2 * (0.5 - 0.8)), rel=1e-6
    )


def test_a_structure_without_tensors(run_rounds):
    factory = aggregators.reject_non_finite_factory(
        aggregators.cohort_measurements_factory(aggregators.adaptive_clipping_factory())
    )
    process = factory.create(tff.to_type(()), WEIGHT)
    (output,) = run_rounds(process, ([(), ()], [1.0, 2.0]))
    assert output.measurements["rejected_clients"] == 0
    assert output.measurements["mean_client_norm"] == 0
