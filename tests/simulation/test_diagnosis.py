"""A diagnosis of drift against closed forms, and on clients of each kind."""

import pathlib
import re

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import execution, optimizers, simulation
from tff_drift.simulation.diagnosis import statistics
from tff_drift.simulation.diagnosis.diagnose import _scales

DIMENSION, RATE, COHORT = 5, 0.1, 4
CLASSES, FEATURES = 10, 8
START = np.array([1.0, -1.0, 0.5, 2.0, 0.0], np.float32)


@pytest.fixture(autouse=True)
def local_context():
    execution.set_local_execution_context()


def quadratic():
    """Half the squared distance of R w and R b: an example is R and R b."""

    @tf.function
    def predict(weights, x, training):
        (w,), _ = weights
        return tf.linalg.matvec(x, w)

    @tf.function
    def loss(output, label, sample_weight=None):
        return tf.reduce_mean(tf.reduce_sum(tf.square(output - label), -1)) / 2

    return tff.learning.models.FunctionalModel(
        initial_weights=((START,), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec=(
            tf.TensorSpec([None, DIMENSION, DIMENSION], tf.float32),
            tf.TensorSpec([None, DIMENSION], tf.float32),
        ),
    )


def quadratics(sizes, curvatures, optima):
    """Clients with copies of one example each, and their A_i."""
    clients, hessians = {}, []
    for place, (size, curvature, optimum) in enumerate(
        zip(sizes, curvatures, optima, strict=True)
    ):
        root = np.sqrt(curvature)
        example = np.tile(root, (size, 1, 1)), np.tile(root @ optimum, (size, 1))
        clients[f"c{place}"] = tuple(each.astype(np.float32) for each in example)
        hessians.append(root @ root)
    return clients, np.array(hessians)


def datasets(clients, **options):
    options = {"batch_size": 2, **options}
    return simulation.ClientDatasets.from_arrays(clients, **options)


@pytest.fixture(scope="module")
def unequal():
    """A diagnosis of quadratics that differ in A_i, b_i and K_i, and what they are."""
    random = np.random.default_rng(0)
    # 4, 8 or 12 steps, and together as many examples as twelve batches have at most.
    sizes = np.array([2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 40])
    optima = random.normal(1, 1, (12, DIMENSION))
    curvatures = [np.diag(random.uniform(0.2, 5, DIMENSION)) for _ in sizes]
    clients, hessians = quadratics(sizes, curvatures, optima)
    execution.set_local_execution_context()
    report = simulation.diagnose(
        quadratic(),
        datasets(clients, batch_size=16, epochs=4),
        client_optimizer_fn=RATE,
        cohort_size=COHORT,
        rounds=0,
    )
    return report, hessians, optima, sizes / sizes.sum(), 4 * -(-sizes // 16)


def updates(hessians, optima, steps):
    """Δ_i = (I - (I - η A_i)^K_i) (x - b_i)."""
    return np.array(
        [
            (START - b)
            - np.linalg.matrix_power(np.eye(DIMENSION) - RATE * A, k) @ (START - b)
            for A, b, k in zip(hessians, optima, steps, strict=True)
        ]
    )


def central(hessians, optima, shares, steps):
    """The update of gradient descent on f = Σ p_i f_i."""
    hessian = np.einsum("n,nij->ij", shares, hessians)
    optimum = np.linalg.solve(
        hessian, np.einsum("n,nij,nj->i", shares, hessians, optima)
    )
    return updates([hessian], [optimum], [steps])[0]


def off(mean, direction):
    """The squared tangent of the angle between two vectors."""
    along = (mean @ direction) ** 2 / (direction @ direction)
    return mean @ mean / along - 1


def value(estimates, name):
    return estimates[name].value


def test_dissimilarity_is_that_of_the_quadratics(unequal):
    report, hessians, optima, shares, _ = unequal
    gradients = np.einsum("nij,nj->ni", hessians, START - optima)
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
    report, hessians, optima, shares, steps = unequal
    # Below the mean by examples, 7.36.
    assert list(report.drift) == [1, 2, 5]
    assert value(report.drift[1], "bias") == pytest.approx(0, abs=1e-5)
    assert value(report.drift[1], "shrinkage") == pytest.approx(0, abs=1e-4)
    for number, found in [*report.drift.items(), (steps, report.as_trained)]:
        steps_of_all = np.broadcast_to(number, len(optima))
        each = updates(hessians, optima, steps_of_all)
        mean = shares @ each
        there = central(hessians, optima, shares, round(shares @ steps_of_all))
        wanted = off(mean, there)
        assert value(found, "bias") == pytest.approx(wanted, 0.02, abs=1e-5)
        shrinkage = mean @ there / (there @ there) - 1
        assert value(found, "shrinkage") == pytest.approx(shrinkage, 1e-3, 1e-4)
        lengths = np.linalg.norm(each, axis=1)
        assert value(found, "drift") == pytest.approx(shares @ lengths, 1e-4)
    assert wanted > 0.001


def test_what_fed_nova_removes_is_the_bias_of_unequal_work(unequal):
    report, hessians, optima, shares, steps = unequal
    there = central(hessians, optima, shares, round(shares @ steps))
    each = updates(hessians, optima, steps)
    normalized = shares @ (each / steps[:, np.newaxis])
    wanted = off(shares @ each, there) - off(normalized, there)
    found = report.as_trained["bias_of_unequal_work"]
    assert found.value == pytest.approx(wanted, 0.02)


def test_noise_of_the_cohort_is_that_of_drawing_clients(unequal):
    report, hessians, optima, shares, steps = unequal
    there = central(hessians, optima, shares, round(shares @ steps))
    each = updates(hessians, optima, steps)
    mean = shares @ each
    count = len(optima)
    spread = count * np.sum(shares**2 * np.sum((each - mean) ** 2, 1))
    along = (mean @ there) ** 2 / (there @ there)
    wanted = spread * (count - COHORT) / (count - 1) / COHORT / along
    assert value(report.as_trained, "cohort_noise") == pytest.approx(wanted, 1e-3)
    assert value(report.as_trained, "minibatch_noise") == pytest.approx(0, abs=1e-6)
    assert value(report.as_trained, "noise_scale") == pytest.approx(
        spread / (mean @ mean), 1e-3
    )


@pytest.fixture(scope="module")
def noisy():
    """A diagnosis of 300 clients with A = I and noisy examples."""
    random = np.random.default_rng(1)
    optima = random.normal(1, 0.5, (300, DIMENSION))
    labels = optima[:, np.newaxis] + random.normal(0, 1.7, (300, 100, DIMENSION))
    one = np.tile(np.eye(DIMENSION, dtype=np.float32), (100, 1, 1))
    clients = {f"c{i:03}": (one, y.astype(np.float32)) for i, y in enumerate(labels)}
    execution.set_local_execution_context()
    report = simulation.diagnose(
        quadratic(),
        datasets(clients, batch_size=20),
        client_optimizer_fn=0.2,
        cohort_size=30,
        rounds=0,
        max_clients=300,
    )
    return report, optima, labels


def test_halves_take_the_noise_of_examples_out(noisy):
    report, optima, _ = noisy
    gradients = START - optima
    mean = gradients.mean(0)
    true = np.mean(np.sum(gradients**2, 1)) - mean @ mean
    noise = DIMENSION * 1.7**2 / 100
    found = report.differences[0]
    assert value(found, "g2") == pytest.approx(true, 0.05)
    assert value(found, "g2_naive") == pytest.approx(true + noise, 0.05)
    assert value(found, "noise_share") == pytest.approx(noise / (true + noise), 0.2)
    assert found["g2"].low < true < found["g2"].high


def test_noise_of_minibatches_is_that_of_their_orders(noisy):
    report, _, labels = noisy
    # Of five batches of 20 without replacement, by η (1 - η)^(5 - k).
    parts = 0.2 * 0.8 ** np.arange(5)
    variance = labels.var(1, ddof=1).sum(1).mean()
    of_orders = variance * (np.sum(parts**2) / 20 - np.sum(parts) ** 2 / 100)
    means = START - labels.mean(1)
    along = np.sum((parts.sum() * means.mean(0)) ** 2)
    assert value(report.as_trained, "minibatch_noise") == pytest.approx(
        of_orders / 30 / along, 0.1
    )


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
    assert value(report.drift[2], "shrinkage") == pytest.approx(0, abs=1e-3)
    assert report.finding == "no_drift"
    assert report.methods == ()
    assert report.sentences[-1].startswith("Drift is not your problem")


def test_unequal_work_alone_is_told_from_drift():
    # Equal curvatures: equal numbers of steps would have no bias.
    random = np.random.default_rng(2)
    sizes = np.array([2] * 30 + [60] * 15)
    optima = random.normal(0, 0.3, (45, DIMENSION))
    optima[30:] += [2, -2, 0, 1, 1]
    clients, _ = quadratics(sizes, [np.eye(DIMENSION)] * 45, optima)
    report = simulation.diagnose(
        quadratic(),
        datasets(clients, batch_size=4),
        client_optimizer_fn=RATE,
        cohort_size=45,
        max_clients=45,
        rounds=0,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
    )
    trained = report.as_trained
    assert value(trained, "bias_of_unequal_work") > 0.9 * value(trained, "bias")
    for found in report.drift.values():
        assert value(found, "bias") == pytest.approx(0, abs=1e-4)
    assert report.finding == "unequal_work"
    assert report.methods[0] == "fed_nova"


def softmax():
    dense = tf.keras.layers.Dense(CLASSES, kernel_initializer="zeros")
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([tf.keras.layers.Input([FEATURES]), dense]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(
            tf.TensorSpec([None, FEATURES], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ),
    )


CENTRES = np.random.default_rng(3).normal(0, 1.5, (CLASSES, FEATURES))


def labelled(labels_of_clients, seed):
    """Examples around the centres of their classes."""
    random = np.random.default_rng(seed)
    return {
        f"c{i:02}": (
            (CENTRES[labels] + random.normal(size=(len(labels), FEATURES))).astype(
                np.float32
            ),
            labels.astype(np.int32),
        )
        for i, labels in enumerate(labels_of_clients)
    }


def diagnose_softmax(clients, **options):
    return simulation.diagnose(
        softmax,
        datasets(clients, batch_size=10, epochs=2),
        **{"client_optimizer_fn": RATE, "cohort_size": 6, **options},
    )


@pytest.fixture(scope="module")
def one_class():
    execution.set_local_execution_context()
    clients = labelled([np.full(20, i % CLASSES) for i in range(30)], 4)
    return diagnose_softmax(clients, race=lambda methods: methods)


def test_clients_with_one_class_each_differ(one_class):
    distances, by_chance = one_class.labels
    assert distances == pytest.approx(0.9)
    # Twenty labels of ten classes: the mean of |k / 20 - 0.1|, five times.
    k = np.arange(21)
    ways = np.cumprod([1, *((21 - i) / i for i in range(1, 21))])
    chances = ways * 0.1**k * 0.9 ** (20 - k)
    assert by_chance == pytest.approx(5 * chances @ np.abs(k / 20 - 0.1), 0.1)
    assert one_class.b2(2).low > 2
    assert one_class.finding in ("cohort", "drift", "unclear")
    assert "labels are 0.90 from everyone's" in one_class.sentences[1]


def test_methods_that_follow_are_raced_with_fed_avg(one_class):
    assert one_class.race == ["fed_avg", *one_class.methods]
    assert "scaffold" in one_class.methods  # Six of 30 return often.


def test_a_report_tells_in_a_terminal_a_notebook_a_table_and_a_figure(one_class):
    text = repr(one_class)
    assert text.startswith("Drift of 30 measured clients of 30, 6 per round")
    assert re.findall(r"^(\d)\. [A-Z]", text, re.MULTILINE) == list("12345")
    html = one_class._repr_html_()
    assert html.count("<li>") == 5
    assert html.count("<img alt=") == 4
    assert "max-width:100%" in html
    table = one_class.to_frame()
    assert list(table) == ["part", "at", "name", "value", "low", "high"]
    (row,) = table.query("part == 'differences' and name == 'g2' and at == 2").to_dict(
        "records"
    )
    assert row["value"] == one_class.differences[2]["g2"].value
    assert (table["low"] <= table["value"]).all()
    figure = one_class.plot(matplotlib.figure.Figure())
    assert len(figure.axes) == 4
    assert figure.axes[1].lines[0].get_label() == "measured"
    with pytest.raises(TypeError, match="figure must be a matplotlib"):
        one_class.plot("figure.png")


def test_gains_are_shares_of_the_error(one_class):
    shares = [
        one_class.as_trained[f"{name}_share"].value
        for name in ("bias", "cohort_noise", "minibatch_noise")
    ]
    assert sum(shares) == pytest.approx(1)
    assert one_class.gains["control variates"] == pytest.approx(shares[0] + shares[1])
    assert one_class.gains["all clients in every round"] == pytest.approx(
        shares[1] + shares[2]
    )


@pytest.mark.conformance
def test_noise_of_few_examples_is_no_difference():
    random = np.random.default_rng(5)
    sizes = random.integers(2, 50, 30)
    clients = labelled([random.integers(0, CLASSES, size) for size in sizes], 6)
    found = diagnose_softmax(clients, rounds=0).differences[0]
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
    report = diagnose_softmax(clients, rounds=0)
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
    report = diagnose_softmax(clients)
    assert report.finding == "contradiction"
    assert report.methods == ()
    assert "no method for a common model helps" in report.sentences[-1]


def test_targets_are_compared_in_tenths_and_other_labels_are_not():
    clients, _ = quadratics([4] * 3, [np.eye(DIMENSION)] * 3, np.eye(3, DIMENSION))
    report = simulation.diagnose(
        quadratic(),
        datasets(clients),
        client_optimizer_fn=optimizers.build_adam(0.01),
        cohort_size=2,
        rounds=0,
    )
    assert report.labels is None
    assert "were not compared" in report.sentences[1]
    # Steps of Adam are no multiples of gradients, which FedNova's weights suppose.
    assert value(report.as_trained, "bias_of_unequal_work") == 0
    assert len(report.plot(matplotlib.figure.Figure()).axes) == 4


def test_momentum_multiplies_what_steps_add_up_to():
    optimizer = tff.learning.optimizers.build_sgdm(0.1, 0.9)
    # 0.1, 0.1 (1 + 0.9) more, and 0.1 (1 + 0.9 + 0.81).
    assert _scales(optimizer, np.array([1, 3])) == pytest.approx([0.1, 0.561])


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(10)
    held, estimates = [], []
    for _ in range(300):
        centres = 1 + 2 * random.normal(size=(30, 5))
        first, second = centres + 3 * random.normal(size=(2, 30, 5))
        mean = (first + second) / 2
        statistic = statistics.dissimilarity(
            statistics.Means(3000), mean @ mean.T, np.sum(first * second, 1)
        )
        found = statistics.jackknife(statistic, np.ones(30))["g2"]
        held.append(found.low < 20 < found.high)
        estimates.append(found.value)
    # Five coordinates of variance 4.
    assert np.mean(estimates) == pytest.approx(20, 0.05)
    assert 0.9 < np.mean(held) < 0.99


QUADRATICS, _ = quadratics([4] * 4, [np.eye(DIMENSION)] * 4, np.eye(4, DIMENSION))


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (
            TypeError,
            "train must be a tff_drift.simulation.ClientDatasets",
            {"train": 1},
        ),
        (
            TypeError,
            "client_optimizer_fn must be a learning rate",
            {"client_optimizer_fn": "sgd"},
        ),
        (ValueError, "cohort_size is 5, but there are only 4", {"cohort_size": 5}),
        (ValueError, "rounds must be at least 0", {"rounds": -1}),
        (ValueError, "max_clients must be at least 3", {"max_clients": 2}),
        (TypeError, "race must be a function of the names", {"race": "scaffold"}),
        (
            TypeError,
            "no argument 'clients_per_round'. Did you mean cohort_size",
            {"clients_per_round": 2},
        ),
        (
            ValueError,
            "train has 2 clients",
            {"train": datasets(dict(list(QUADRATICS.items())[:2])), "cohort_size": 1},
        ),
        (
            ValueError,
            "none of 4 clients has two examples",
            {
                "train": datasets(
                    {k: (x[:1], y[:1]) for k, (x, y) in QUADRATICS.items()}
                )
            },
        ),
        (
            ValueError,
            "not finite. Take a smaller client_optimizer_fn",
            {"client_optimizer_fn": 1e30, "rounds": 0},
        ),
    ],
)
def test_what_is_wrong_is_named_before_training(error, message, changed):
    arguments = {
        "train": datasets(QUADRATICS, epochs=5),
        "client_optimizer_fn": RATE,
        "cohort_size": 2,
        **changed,
    }
    with pytest.raises(error, match=message):
        simulation.diagnose(quadratic(), **arguments)


@pytest.mark.documents
def test_the_document_diagnoses_a_table(tmp_path, monkeypatch, capsys):
    document = pathlib.Path(__file__).parents[2] / "docs" / "diagnosis.md"
    (block,) = re.findall(r"```python\n(.*?)```", document.read_text("utf-8"), re.S)
    random = np.random.default_rng(11)
    owners = np.repeat([f"owner_{i}" for i in range(8)], 12)
    # Half of the owners have label 1 alone.
    labels = np.where(np.arange(96) < 48, 1, random.integers(0, 2, 96))
    columns = random.normal(labels[:, np.newaxis], 1, (96, 3))
    table = pd.DataFrame(columns, columns=["a", "b", "c"])
    monkeypatch.chdir(tmp_path)
    table.assign(owner=owners, label=labels).to_csv("my.csv", index=False)
    exec(block, {})
    assert "Drift of 8 measured clients of 8, 5 per round" in capsys.readouterr().out
    assert (tmp_path / "diagnosis.png").is_file()
