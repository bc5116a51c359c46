"""Properties that every method shares, and each server step against NumPy."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models
from tff_drift import algorithms

CLIENTS = models.client_arrays([10, 7, 3], seed=3)
DATA = models.datasets(CLIENTS)
RATE = 0.3  # Of the clients.

BUILDERS = {
    "fed_avg": lambda **o: algorithms.build_fed_avg(
        models.softmax_regression, RATE, **o
    ),
    "fed_avgm": lambda **o: algorithms.build_fed_avgm(
        models.softmax_regression, RATE, 0.5, **o
    ),
    "fed_adagrad": lambda **o: algorithms.build_fed_adagrad(
        models.softmax_regression, RATE, 0.1, **o
    ),
    "fed_adam": lambda **o: algorithms.build_fed_adam(
        models.softmax_regression, RATE, 0.1, **o
    ),
    "fed_yogi": lambda **o: algorithms.build_fed_yogi(
        models.softmax_regression, RATE, 0.1, **o
    ),
    "fed_lars": lambda **o: algorithms.build_fed_lars(
        models.softmax_regression, RATE, 0.1, **o
    ),
    "fed_lamb": lambda **o: algorithms.build_fed_lamb(
        models.softmax_regression, RATE, 0.1, **o
    ),
    "normalized_fed_avg": lambda **o: algorithms.build_normalized_fed_avg(
        models.softmax_regression, RATE, 0.1, **o
    ),
    "fed_prox": lambda **o: algorithms.build_fed_prox(
        models.softmax_regression, RATE, mu=0.1, **o
    ),
    "fed_sgd": lambda **o: algorithms.build_fed_sgd(
        models.softmax_regression, 0.5, **o
    ),
}


# Methods that need more than a model and rates; tests/paper/ tells their properties.
OF_OTHER_SHAPE = {"fed_meta", "fed_meta_uga", "fed_share", "uga"}
# Their properties are those of `test_stateful_processes.py`.
WITH_CLIENT_MEMORY = {"scaffold", "scaffold_m", "fed_dyn", "adabest"}


def test_the_table_names_every_builder():
    public = {name for name in algorithms.__all__ if name.startswith("build_")}
    named = {
        f"build_{name}" for name in {*BUILDERS, *WITH_CLIENT_MEMORY, *OF_OTHER_SHAPE}
    }
    assert public == named


@pytest.mark.parametrize("name", BUILDERS)
def test_is_a_learning_process_that_learns_and_shows_its_rates(name):
    process = BUILDERS[name]()
    assert isinstance(process, tff.learning.templates.LearningProcess)
    state, metrics = models.train(process, DATA, rounds=10)
    losses = [m["client_work"]["train"]["loss"] for m in metrics]
    assert losses[-1] < losses[0]
    assert metrics[0]["client_work"]["train"]["num_examples"] == 20
    assert metrics[0]["client_work"]["rejected_clients"] == 0
    hparams = process.get_hparams(state)
    assert "learning_rate" in hparams["finalizer"]
    assert ("learning_rate" in hparams["client_work"]) == (name != "fed_sgd")
    hparams["finalizer"]["learning_rate"] = 0.0
    frozen = process.set_hparams(state, hparams)
    after, _ = models.train(process, DATA, state=frozen)
    models.assert_bit_equal(
        models.trainable(process, after), models.trainable(process, frozen)
    )


# The server steps, element by element, as the papers print them.


def momentum(x, d, m, v):
    m = 0.9 * m + d
    return x - 0.5 * m, m, v


def adagrad(x, d, m, v):
    v = v + d**2
    return x - 0.1 * d / (np.sqrt(v) + 1e-3), m, v


def adam(x, d, m, v):
    m = 0.9 * m + 0.1 * d
    v = 0.99 * v + 0.01 * d**2
    return x - 0.1 * m / (np.sqrt(v) + 1e-3), m, v


def yogi(x, d, m, v):
    m = 0.9 * m + 0.1 * d
    v = v - 0.01 * d**2 * np.sign(v - d**2)
    return x - 0.1 * m / (np.sqrt(v) + 1e-3), m, v


@pytest.mark.parametrize(
    ("name", "server_step"),
    [
        ("fed_avgm", momentum),
        ("fed_adagrad", adagrad),
        ("fed_adam", adam),
        ("fed_yogi", yogi),
    ],
)
def test_three_rounds_equal_numpy(name, server_step):
    process = BUILDERS[name]()
    state = process.initialize()
    x = [np.asarray(t, np.float64) for t in models.trainable(process, state)]
    slots = [(np.zeros_like(t), np.zeros_like(t)) for t in x]
    for _ in range(3):
        delta = models.pseudo_gradient(x, CLIENTS, RATE)
        stepped = [server_step(t, d, *s) for t, d, s in zip(x, delta, slots)]
        x = [new for new, _, _ in stepped]
        slots = [(m, v) for _, m, v in stepped]
    state, _ = models.train(process, DATA, rounds=3, state=state)
    for actual, expected in zip(models.trainable(process, state), x):
        np.testing.assert_allclose(actual, expected, atol=3e-5)


def test_fed_avgm_without_momentum_is_fed_avg_bit_for_bit():
    fed_avgm = algorithms.build_fed_avgm(
        models.softmax_regression, RATE, 0.7, momentum=0.0
    )
    fed_avg = algorithms.build_fed_avg(
        models.softmax_regression, RATE, tff.learning.optimizers.build_sgdm(0.7)
    )
    models.assert_bit_equal(
        models.trainable(fed_avgm, models.train(fed_avgm, DATA, 3)[0]),
        models.trainable(fed_avg, models.train(fed_avg, DATA, 3)[0]),
    )


def test_normalized_fed_avg_moves_by_exactly_the_server_rate():
    process = BUILDERS["normalized_fed_avg"]()
    state = process.initialize()
    for _ in range(3):
        before = models.trainable(process, state)
        state, _ = models.train(process, DATA, state=state)
        moved = [n - b for n, b in zip(models.trainable(process, state), before)]
        length = np.sqrt(sum(np.sum(np.square(t, dtype=np.float64)) for t in moved))
        np.testing.assert_allclose(length, 0.1, rtol=1e-5)


def test_normalized_fed_avg_does_not_move_on_a_zero_update():
    process = BUILDERS["normalized_fed_avg"]()
    # Without examples there is no local step, so every pseudo-gradient is zero.
    empty = models.datasets(models.client_arrays([0, 0]))
    initial = process.initialize()
    state, _ = models.train(process, empty, state=initial)
    models.assert_bit_equal(
        models.trainable(process, state), models.trainable(process, initial)
    )


def test_fed_sgd_is_gradient_descent_on_all_data():
    process = BUILDERS["fed_sgd"]()
    state = process.initialize()
    x = [np.asarray(t, np.float64) for t in models.trainable(process, state)]
    features, labels = (np.concatenate(part) for part in zip(*CLIENTS))
    for _ in range(3):
        gradient = models.softmax_gradient(x, features, labels)
        x = [t - 0.5 * g for t, g in zip(x, gradient)]
    state, _ = models.train(process, DATA, rounds=3, state=state)
    for actual, expected in zip(models.trainable(process, state), x):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_fed_sgd_is_fed_avg_with_one_full_batch_step():
    full_batches = models.datasets(CLIENTS, batch_size=100)
    fed_sgd = BUILDERS["fed_sgd"]()
    fed_avg = algorithms.build_fed_avg(
        models.softmax_regression, 1.0, tff.learning.optimizers.build_sgdm(0.5)
    )
    for actual, expected in zip(
        models.trainable(fed_sgd, models.train(fed_sgd, DATA, 2)[0]),
        models.trainable(fed_avg, models.train(fed_avg, full_batches, 2)[0]),
    ):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
    "name", sorted(set(BUILDERS) - {"fed_avg", "fed_avgm", "fed_prox", "fed_sgd"})
)
@pytest.mark.parametrize("rate", [-1.0, 0.0, float("inf"), float("nan")])
def test_bad_server_rates_are_named(name, rate):
    builder = getattr(algorithms, f"build_{name}")
    with pytest.raises(ValueError, match="server_learning_rate"):
        builder(models.softmax_regression, 0.1, rate)


@pytest.mark.parametrize(
    ("builder", "arguments", "name"),
    [
        (algorithms.build_fed_avgm, {"momentum": 1.0}, "momentum"),
        (algorithms.build_fed_avgm, {"server_learning_rate": -1.0}, "server_learning"),
        (algorithms.build_fed_adam, {"beta_1": 1.5}, "beta_1"),
        (algorithms.build_fed_adam, {"beta_2": -0.1}, "beta_2"),
        (algorithms.build_fed_yogi, {"tau": 0.0}, "tau"),
        (algorithms.build_fed_adagrad, {"initial_accumulator": -1.0}, "initial_acc"),
        (algorithms.build_fed_lars, {"weight_decay": -1.0}, "weight_decay"),
        (algorithms.build_fed_lamb, {"epsilon": float("nan")}, "epsilon"),
    ],
)
def test_bad_hyperparameters_are_named(builder, arguments, name):
    with pytest.raises(ValueError, match=name):
        builder(
            models.softmax_regression, 0.1, **{"server_learning_rate": 0.1, **arguments}
        )


@pytest.mark.parametrize(
    "option",
    [
        {"client_rate_schedule": lambda t: 1.0},
        {"client_weight_decay": 0.1},
        {"gradient_clipping_norm": 1.0},
    ],
)
def test_fed_sgd_has_no_local_steps_to_choose_options_of(option):
    (name,) = option
    with pytest.raises(ValueError, match=f"{name} is .* FedSGD takes no local steps"):
        algorithms.build_fed_sgd(models.softmax_regression, 0.1, **option)
    algorithms.build_fed_sgd(models.softmax_regression, 0.1, **{name: None})
