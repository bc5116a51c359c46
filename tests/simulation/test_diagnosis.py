"""A diagnosis of drift against closed forms of quadratics, and on clients of a kind."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import tiers
from tests.simulation.diagnosis_clients import (
    CLASSES,
    DIMENSION,
    FEATURES,
    RATE,
    START,
    datasets,
    diagnose_softmax,
    labelled,
    quadratic,
    quadratics,
)
from tff_drift import execution, optimizers, simulation
from tff_drift.simulation.diagnosis.diagnose import _scales

pytestmark = pytest.mark.no_smoke

COHORT = 4


@pytest.fixture(autouse=True)
def local_context():
    execution.set_local_execution_context()


@pytest.fixture(scope="module")
def unequal():
    """A diagnosis of quadratics that differ in A_i, b_i and K_i, and what they are."""
    random = np.random.default_rng(0)
    sizes = np.array([2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 40])
    optima = random.normal(1, 1, (12, DIMENSION))
    curvatures = [np.diag(random.uniform(0.2, 5, DIMENSION)) for _ in sizes]
    clients, hessians = quadratics(sizes, curvatures, optima)
    execution.set_local_execution_context()
    report = simulation.diagnose(
        quadratic(),
        datasets(clients, batch_size=16, epochs=6),
        client_optimizer_fn=RATE,
        cohort_size=COHORT,
        rounds=0,
    )
    # The measured clients are drawn in another order.
    order = [np.flatnonzero(sizes == size)[0] for size in report.sizes]
    assert sorted(order) == list(range(12))
    steps = 6 * -(-sizes // 16)
    assert list(report.steps) == list(steps[order])
    gradients = np.einsum("nij,nj->ni", hessians, START - optima)
    return report, hessians, gradients, sizes / sizes.sum(), steps


def descend(hessians, gradients, directions, steps):
    """K_i steps along A_i (y - x) + g_i + d_i, one by one."""
    updates = np.zeros_like(gradients)
    for place, count in enumerate(np.broadcast_to(steps, len(gradients))):
        for _ in range(count):
            slope = gradients[place] - hessians[place] @ updates[place]
            updates[place] += RATE * (slope + directions[place])
    return updates


def both(hessians, gradients, shares, steps):
    """Δ_i of gradient descent, and with the control variates c - c_i of option II."""
    each = descend(hessians, gradients, np.zeros_like(gradients), steps)
    directions = (each.T / (RATE * np.broadcast_to(steps, len(each)))).T
    variates = shares @ directions - directions
    return each, descend(hessians, gradients, variates, steps)


def off(mean, direction):
    """The squared tangent of the angle between two vectors."""
    along = (mean @ direction) ** 2 / (direction @ direction)
    return mean @ mean / along - 1


def spread(shares, each):
    """N Σ p_i² ‖u_i - mean‖²."""
    gaps = each - shares @ each
    return len(shares) * np.sum(shares**2 * np.sum(gaps**2, 1))


def value(estimates, name):
    return estimates[name].value


def test_dissimilarity_is_that_of_the_quadratics(unequal):
    report, _, gradients, shares, _ = unequal
    lengths = shares @ np.sum(gradients**2, 1)
    mean = shares @ gradients
    found = report.differences[0]
    assert list(report.differences) == [0]
    assert value(found, "mean_squared_length") == pytest.approx(lengths, 1e-4)
    assert value(found, "squared_length_of_mean") == pytest.approx(mean @ mean, 1e-4)
    assert value(found, "g2") == pytest.approx(lengths - mean @ mean, 1e-4)
    assert report.b2(0).value == pytest.approx(lengths / (mean @ mean), 1e-4)
    # Copies of one example are no noise.
    assert value(found, "noise_share") == pytest.approx(0, abs=1e-4)


def test_bias_is_that_of_gradient_descent_for_all_steps(unequal):
    report, hessians, gradients, shares, steps = unequal
    # Up to half of the mean by examples, 10.9.
    assert list(report.drift) == [1, 2, 5]
    assert value(report.drift[1], "bias") == pytest.approx(0, abs=1e-5)
    assert value(report.drift[1], "shrinkage") == pytest.approx(0, abs=1e-4)
    for number, found in [*report.drift.items(), (steps, report.as_trained)]:
        each, corrected = both(hessians, gradients, shares, number)
        mean, there = shares @ each, shares @ corrected
        wanted = off(mean, there)
        assert value(found, "bias") == pytest.approx(wanted, 0.02, abs=1e-5)
        shrinkage = mean @ there / (there @ there) - 1
        assert value(found, "shrinkage") == pytest.approx(shrinkage, 1e-3, 1e-4)
        lengths = np.linalg.norm(each, axis=1)
        assert value(found, "drift") == pytest.approx(shares @ lengths, 1e-4)
        over = shares @ lengths / np.linalg.norm(mean)
        assert value(found, "drift_over_mean") == pytest.approx(over, 1e-3)
    assert wanted > 0.001


def test_what_fed_nova_removes_is_the_bias_of_unequal_work(unequal):
    report, hessians, gradients, shares, steps = unequal
    each, corrected = both(hessians, gradients, shares, steps)
    there = shares @ corrected
    normalized = shares @ (each / steps[:, np.newaxis])
    wanted = off(shares @ each, there) - off(normalized, there)
    found = report.as_trained["bias_of_unequal_work"]
    assert found.value == pytest.approx(wanted, 0.02)


def test_noise_of_the_cohort_is_that_of_drawing_clients(unequal):
    report, hessians, gradients, shares, steps = unequal
    each, corrected = both(hessians, gradients, shares, steps)
    mean, there = shares @ each, shares @ corrected
    # Of four of twelve clients without replacement.
    left_out = (12 - COHORT) / 11 / COHORT / ((mean @ there) ** 2 / (there @ there))
    noise, kept = spread(shares, each) * left_out, spread(shares, corrected) * left_out
    found = report.as_trained
    assert value(found, "cohort_noise") == pytest.approx(noise, 1e-3)
    assert value(found, "minibatch_noise") == pytest.approx(0, abs=1e-6)
    bias = off(mean, there)
    assert value(found, "bias_share") == pytest.approx(bias / (bias + noise), 0.02)
    removed = 1 - kept / (bias + noise)
    assert value(found, "variates_share") == pytest.approx(removed, 0.01)
    scale = spread(shares, each) / (mean @ mean)
    assert value(found, "noise_scale") == pytest.approx(scale, 1e-3)


@pytest.fixture(scope="module")
def one_class():
    execution.set_local_execution_context()
    clients = labelled([np.full(20, i % CLASSES) for i in range(30)], 4)
    return diagnose_softmax(clients, max_clients=30, race=lambda methods: methods)


def test_clients_with_one_class_each_differ(one_class):
    distances, by_chance = one_class.labels
    assert distances == pytest.approx(0.9)
    # Twenty labels of ten classes: the mean of |k / 20 - 0.1|, five times.
    k = np.arange(21)
    ways = np.cumprod([1, *((21 - i) / i for i in range(1, 21))])
    chances = ways * 0.1**k * 0.9 ** (20 - k)
    assert by_chance == pytest.approx(5 * chances @ np.abs(k / 20 - 0.1), 0.1)
    assert list(one_class.differences) == [0, 2]
    assert one_class.b2(2).low > 2
    assert one_class.finding in ("cohort", "drift", "unclear")
    assert value(one_class.as_trained, "variates_share") > 0.5
    assert "labels are 0.90 from everyone's" in one_class.sentences[1]


def test_methods_that_follow_are_raced_with_fed_avg(one_class):
    assert one_class.race == ["fed_avg", *one_class.methods]
    assert "scaffold" in one_class.methods


@pytest.mark.conformance
def test_halves_take_the_noise_of_examples_out():
    random = np.random.default_rng(1)
    optima = random.normal(1, 0.5, (300, DIMENSION))
    labels = optima[:, np.newaxis] + random.normal(0, 1.7, (300, 100, DIMENSION))
    one = np.tile(np.eye(DIMENSION, dtype=np.float32), (100, 1, 1))
    clients = {f"c{i:03}": (one, y.astype(np.float32)) for i, y in enumerate(labels)}
    report = simulation.diagnose(
        quadratic(),
        datasets(clients, batch_size=20),
        client_optimizer_fn=0.2,
        cohort_size=30,
        rounds=0,
        max_clients=300,
    )
    gradients = START - optima
    mean = gradients.mean(0)
    true = np.mean(np.sum(gradients**2, 1)) - mean @ mean
    noise = DIMENSION * 1.7**2 / 100
    found = report.differences[0]
    assert value(found, "g2") == pytest.approx(true, 0.05)
    assert value(found, "g2_naive") == pytest.approx(true + noise, 0.05)
    assert value(found, "noise_share") == pytest.approx(noise / (true + noise), 0.2)
    assert found["g2"].low < true < found["g2"].high
    # Of five batches of 20 without replacement, by η (1 - η)^(5 - k).
    parts = 0.2 * 0.8 ** np.arange(5)
    variance = labels.var(1, ddof=1).sum(1).mean()
    of_orders = variance * (np.sum(parts**2) / 20 - np.sum(parts) ** 2 / 100)
    along = np.sum((parts.sum() * (START - labels.mean((0, 1)))) ** 2)
    assert value(report.as_trained, "minibatch_noise") == pytest.approx(
        of_orders / 30 / along, 0.1
    )


@pytest.mark.conformance
def test_identical_clients_of_unequal_size_differ_in_nothing():
    sizes = [2, 4, 8, 16, 20]
    clients, _ = quadratics(sizes, [np.eye(DIMENSION)] * 5, [np.ones(DIMENSION)] * 5)
    report = simulation.diagnose(
        quadratic(),
        datasets(clients),
        client_optimizer_fn=RATE,
        cohort_size=5,
        rounds=1,
    )
    assert value(report.differences[1], "g2") == pytest.approx(0, abs=1e-4)
    assert report.b2(1).value == pytest.approx(1, 1e-4)
    assert value(report.as_trained, "bias") == pytest.approx(0, abs=1e-4)
    assert value(report.as_trained, "cosine") == pytest.approx(1, 1e-4)
    assert report.finding == "no_drift"
    assert report.sentences[-1].startswith("Drift is not your problem")


@pytest.mark.conformance
# Of small steps a way of K is K times as long as the first, and FedNova's weights are
# right. Of larger ones it is shorter, and they remove most of the bias.
@pytest.mark.parametrize(("rate", "share"), [(0.005, 0.9), (RATE, 0.5)])
def test_unequal_work_alone_is_told_from_drift(rate, share):
    # Equal curvatures: equal numbers of steps would have no bias.
    random = np.random.default_rng(2)
    sizes = np.array([2] * 30 + [60] * 15)
    optima = random.normal(0, 0.3, (45, DIMENSION))
    optima[30:] += [2, -2, 0, 1, 1]
    clients, _ = quadratics(sizes, [np.eye(DIMENSION)] * 45, optima)
    report = simulation.diagnose(
        quadratic(),
        datasets(clients, batch_size=4),
        client_optimizer_fn=rate,
        cohort_size=45,
        max_clients=45,
        rounds=0,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
    )
    trained = report.as_trained
    assert value(trained, "bias_of_unequal_work") > share * value(trained, "bias")
    for found in report.drift.values():
        assert value(found, "bias") == pytest.approx(0, abs=1e-4)
    assert report.finding == "unequal_work"
    assert report.methods[0] == "fed_nova"


@pytest.mark.conformance
def test_noise_of_few_examples_is_no_difference():
    random = np.random.default_rng(5)
    sizes = random.integers(2, 50, 30)
    clients = labelled([random.integers(0, CLASSES, size) for size in sizes], 6)
    found = diagnose_softmax(clients, rounds=0, max_clients=30).differences[0]
    assert found["g2"].low < 0 < found["g2"].high
    assert found["g2_naive"].low > 0
    assert value(found, "noise_share") > 0.5


@pytest.mark.conformance
def test_clients_of_noise_alone_need_other_examples():
    random = np.random.default_rng(7)
    clients = {
        f"c{i}": (
            random.normal(size=(8, FEATURES)).astype(np.float32),
            random.integers(0, CLASSES, 8).astype(np.int32),
        )
        for i in range(30)
    }
    report = diagnose_softmax(clients, rounds=0, max_clients=30)
    assert report.finding == "noise"
    assert "noise of their few examples" in report.sentences[-1]


@pytest.mark.conformance
def test_permuted_labels_are_a_contradiction_that_no_method_resolves():
    random = np.random.default_rng(8)
    clients = labelled([random.integers(0, CLASSES, 60) for _ in range(30)], 9)
    clients = {
        name: (x, random.permutation(CLASSES)[y].astype(np.int32))
        for name, (x, y) in clients.items()
    }
    report = diagnose_softmax(clients, max_clients=30)
    assert report.finding == "contradiction"
    assert report.methods == ()
    assert "no method for a common model helps" in report.sentences[-1]


def test_momentum_multiplies_what_steps_add_up_to():
    optimizer = tff.learning.optimizers.build_sgdm(0.1, 0.9)
    # 0.1, 0.1 (1 + 0.9) more, and 0.1 (1 + 0.9 + 0.81).
    assert _scales(optimizer, np.array([1, 3])) == pytest.approx([0.1, 0.561])


@pytest.mark.parametrize("context", tiers.first(["native"], ["native", "local"]))
def test_examples_of_other_dtypes_are_cast(context):
    if context == "native":
        execution.set_native_execution_context()
    clients = {
        # Copies of one example, in NumPy's own dtypes.
        name: (np.repeat(x, 4, axis=0).astype(np.float64), np.repeat(y, 4))
        for name, (x, y) in labelled([np.array([i]) for i in range(4)], 4).items()
    }
    clients = {name: (x, y.astype(np.int64)) for name, (x, y) in clients.items()}
    report = diagnose_softmax(clients, cohort_size=4, rounds=0)
    # All classes are as likely at the start: the slopes are 0.9 once, 0.1 nine times.
    squares = [np.sum(x[0] ** 2) + 1 for x, _ in clients.values()]
    found = report.differences[0]
    expected = (0.9**2 + 9 * 0.1**2) * np.mean(squares)
    assert value(found, "mean_squared_length") == pytest.approx(expected, 1e-4)


def test_a_value_that_a_cast_changes_is_named_by_its_client():
    clients = labelled([np.arange(4)] * 4, 4)
    clients = {name: (x, y.astype(np.float64)) for name, (x, y) in clients.items()}
    clients["c02"][1][3] = 2.5
    with pytest.raises(ValueError, match=r"client 'c02', example 3: found 2.5"):
        diagnose_softmax(clients, cohort_size=4, rounds=0)


@pytest.mark.conformance
def test_adaptive_optimizers_are_measured_alike_in_the_native_context():
    clients, _ = quadratics([4] * 4, [np.eye(DIMENSION)] * 4, 2 * np.eye(4, DIMENSION))

    def diagnose():
        return simulation.diagnose(
            quadratic(),
            datasets(clients, epochs=3),
            client_optimizer_fn=optimizers.build_adam(0.01),
            cohort_size=2,
            rounds=1,
        )

    found = diagnose()
    execution.set_native_execution_context()
    native = diagnose().to_frame()
    assert list(found.to_frame()["value"]) == pytest.approx(
        list(native["value"]), 1e-3, abs=1e-5, nan_ok=True
    )
    # Six steps, each of at least the rate in each direction at the start.
    assert value(found.as_trained, "drift") > 0.06
    assert found.labels is None
    assert "were not compared" in found.sentences[1]


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (
            0,
            np.nan,
            r"train: 1 of 6 clients, such as 'c03', have .* not finite\. Suspect the "
            "data: client 'c03', example 5, is not finite",
        ),
        (1, 99, "client 'c03', example 5: found the label 99, but"),
    ],
)
def test_a_bad_example_is_named_with_its_client(part, value, message):
    clients = labelled([np.arange(9) % CLASSES] * 6, 1)
    clients["c03"][part][5] = value
    with pytest.raises(ValueError, match=f"^{message}"):
        diagnose_softmax(clients, cohort_size=2)


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (simulation.doubling_cohorts(1, [1]), TypeError, "an integer, found doubling"),
        (0, ValueError, "at least 1, found 0"),
    ],
)
def test_a_cohort_of_no_one_size_is_refused_before_training(size, error, message):
    clients = labelled([np.arange(9) % CLASSES] * 6, 1)

    def model_fn():
        raise AssertionError("The model was built.")

    with pytest.raises(error, match=f"^cohort_size must be {message}"):
        simulation.diagnose(
            model_fn, datasets(clients), client_optimizer_fn=RATE, cohort_size=size
        )
