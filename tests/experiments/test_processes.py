"""From flags to learning processes: each flag must have its effect."""

import dataclasses
import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from experiments.flags import published_rates
from experiments.flags.errors import UserError
from experiments.training import processes
from tests import tiers
from tests.experiments.programs import resolve
from tff_drift import algorithms, optimizers
from tff_drift.algorithms import meta_step


@pytest.fixture(scope="module")
def task():
    return tasks.load("quadratic", num_clients=3, dimension=2)


QUADRATIC = ("--task=quadratic", "--num_clients=3", "--dimension=2")


@pytest.fixture
def build(task):
    def build(*words):
        return processes.build_process(resolve(*QUADRATIC, *words), task)

    return build


@pytest.fixture
def captured(monkeypatch):
    """Collects what builders are given, and builds nothing."""
    calls, methods = [], dict(algorithms.methods())
    for name, method in methods.items():
        # Keeps the signature, from which the arguments are chosen.
        @functools.wraps(method.builder)
        def builder(model_fn, **arguments):
            calls.append(arguments)

        methods[name] = dataclasses.replace(method, builder=builder)
    monkeypatch.setattr(algorithms, "methods", lambda: methods)
    return calls


@pytest.mark.parametrize("algorithm", list(algorithms.methods()))
def test_every_builder_gets_what_it_takes(build, captured, task, algorithm):
    build(f"--algorithm={algorithm}", "--adaptive_clipping")
    (arguments,) = captured
    method = algorithms.methods()[algorithm]
    inspect.signature(method.builder).bind(task.model_fn, **arguments)
    rates = published_rates.rates("quadratic", algorithm)
    for option in method.options:
        default = rates.hyperparameters.get(option.flag, option.default)
        assert arguments[option.name] == default
    given = {
        arguments.get("client_learning_rate"),
        arguments.get("client_optimizer_fn"),
        arguments.get("server_learning_rate"),
    }
    assert method.has_client_rate == (rates.client in given)
    assert isinstance(
        arguments["model_aggregator"], tff.aggregators.WeightedAggregationFactory
    )
    assert arguments["client_weighting"].name.lower() == method.weighting


@pytest.mark.parametrize(
    "method", ["scaffold", "scaffold_m", "scaffold_momentum", "fed_dyn"]
)
def test_weighted_methods_with_variates_know_all_examples(method, build, captured):
    build(f"--algorithm={method}")
    build(f"--algorithm={method}", "--weighting=num_examples")
    assert [call["num_clients"] for call in captured] == [3, 3]
    # Three clients with two examples each, in ten epochs.
    assert [call.get("total_examples") for call in captured] == [None, 60]


def test_unbalanced_clients_of_fed_dyn_know_their_mean(build, captured):
    build("--algorithm=fed_dyn")
    build("--algorithm=fed_dyn", "--mu_by_examples")
    # Two examples each, in ten epochs.
    assert [call["mean_examples"] for call in captured] == [None, 20]


def test_clients_may_have_another_optimizer(build, captured):
    build("--client_optimizer=momentum", "--client_momentum=0.5")
    build("--algorithm=adabest", "--client_optimizer=adam")
    found = [call["client_optimizer_fn"] for call in captured]
    states = [each.initialize(tf.TensorSpec([], tf.float32)) for each in found]
    assert states[0]["momentum"] == 0.5
    assert "beta_1" in states[1]


def test_an_optimizer_where_plain_sgd_is_meant_is_refused(build):
    with pytest.raises(ValueError, match="must be a number, the rate of plain SGD"):
        build("--algorithm=scaffold", "--client_optimizer=adam")


def test_the_server_draws_its_data_from_the_clients(build, captured):
    build("--algorithm=fed_meta_uga", "--meta_fraction=0.5")
    (arguments,) = captured
    # The quadratic's clients have ten epochs, and two examples each.
    assert arguments["local_epochs"] == 10
    data = list(arguments["meta_data"].as_numpy_iterator())
    assert sum(len(targets) for _, targets in data) == 3


@pytest.mark.parametrize(
    ("words", "rate", "multipliers"),
    tiers.first(
        [1],
        [
            ("", 0.1, [1, 1, 1, 1]),
            (
                "--client_learning_rate=0.3 --client_rate_schedule=per_round_factor "
                "--client_rate_decay=0.5",
                0.3,
                [1, 0.5, 0.25, 0.125],
            ),
            (
                "--meta_learning_rate=0.7 --meta_rate_decay=0.1",
                0.7,
                [1, 0.1, 0.01, 1e-3],
            ),
        ],
    ),
)
def test_the_rate_of_the_meta_step(build, monkeypatch, words, rate, multipliers):
    calls = []
    added = meta_step.MetaStep

    def recorded(*arguments):
        calls.append(arguments)
        return added(*arguments)

    monkeypatch.setattr(meta_step, "MetaStep", recorded)
    build("--algorithm=fed_meta", *words.split())
    ((_, _, found, _, _, schedule),) = calls
    schedule = schedule or optimizers.constant()
    assert found == rate
    assert _multipliers(schedule) == multipliers


def test_any_method_passes_over_the_servers_data_in_minibatches(build, monkeypatch):
    calls = []
    monkeypatch.setattr(
        algorithms, "add_meta_step", lambda *_, **options: calls.append(options)
    )
    build("--algorithm=adabest", "--meta_step=0.1")
    minibatches = ("--meta_step_epochs=5", "--meta_step_batch_size=64")
    build("--algorithm=adabest", "--meta_step=0.1", *minibatches)
    assert calls == [
        {"meta_epochs": 1, "meta_batch_size": None},
        {"meta_epochs": 5, "meta_batch_size": 64},
    ]
    with pytest.raises(UserError, match="--meta_step_epochs has no meaning without"):
        resolve("--algorithm=fed_meta", "--meta_step_epochs=5")


def test_public_examples_are_part_of_the_data(task):
    def examples(*words):
        data = processes.training_data(resolve(*QUADRATIC, *words), task)
        return [data.num_examples(name) for name in task.train.client_ids]

    half = ("--algorithm=fed_share", "--share_fraction=0.5")
    assert examples(*half, "--noshare_split") == [5, 5, 5]
    assert examples(*half) == [3, 3, 3]
    assert processes.training_data(resolve(*QUADRATIC), task) is task.train


def test_methods_with_client_state_run(build):
    process = build("--algorithm=adabest", "--beta=0.5")
    assert process.get_model_weights(process.initialize()).trainable[0].shape == (2, 1)


@pytest.mark.parametrize(
    ("words", "multipliers"),
    [
        ("", None),
        (
            "--client_rate_schedule=exponential --client_rate_decay=0.25 "
            "--client_rate_decay_rounds=2",
            [1, 1, 0.25, 0.25],
        ),
        (
            "--client_rate_schedule=exponential --client_rate_decay=0.25 "
            "--client_rate_decay_rounds=2 --noclient_rate_staircase",
            [1, 0.5, 0.25, 0.125],
        ),
        (
            "--client_rate_schedule=per_round_factor --client_rate_decay=0.5",
            [1, 0.5, 0.25, 0.125],
        ),
        ("--client_rate_schedule=inverse_sqrt", [1, 2**-0.5, 3**-0.5, 0.5]),
    ],
)
def test_client_schedules(build, captured, words, multipliers):
    build("--algorithm=fed_adam", *words.split())
    assert _multipliers(captured[0]["client_rate_schedule"]) == multipliers


@pytest.mark.parametrize(
    ("words", "multipliers"),
    [
        ("", None),
        ("--server_warm_up_rounds=2", [0, 0.5, 1, 1]),
        ("--server_rate_scaling=sqrt", [2, 2, 2, 2]),
        ("--server_rate_scaling=linear", [4, 4, 4, 4]),
        ("--server_rate_scaling=linear --server_warm_up_rounds=3", [1, 2, 3, 4]),
        (
            "--server_rate_scaling=sqrt --server_warm_up_rounds=2 "
            "--server_warm_up_from=zero",
            [0, 1, 2, 2],
        ),
        # Of 8 clients the server waits for 8 - 3.
        (
            "--server_rate_scaling=linear --straggler_clock --straggler_left_out=0.4",
            [2.5, 2.5, 2.5, 2.5],
        ),
    ],
)
def test_server_schedules(captured, words, multipliers):
    of_task = ("--task=quadratic", "--num_clients=8", "--dimension=2")
    if "scaling" in words:
        words += " --clients_per_round=8 --reference_clients_per_round=2"
    settings = resolve(*of_task, "--algorithm=fed_adam", *words.split())
    processes.build_process(
        settings, tasks.load("quadratic", num_clients=8, dimension=2)
    )
    assert _multipliers(captured[0]["server_rate_schedule"]) == multipliers


def _multipliers(schedule):
    if schedule is None:
        return None
    return pytest.approx([float(schedule(round_number)) for round_number in range(4)])


def test_measurements_see_updates_before_clipping(build, task):
    words = ["--cohort_measurements", "--adaptive_clipping"]
    process = build(*words, "--clipping_initial_norm=0.001")
    data = [task.train.training_data(name, 0) for name in task.train.client_ids]
    measured = process.next(process.initialize(), data).metrics["aggregator"]
    assert measured["clipping_norm"] == pytest.approx(0.001)
    assert measured["clipped_count"] == 3
    assert measured["mean_client_norm"] > 0.1
    assert measured["pseudo_gradient_norm"] <= 0.00101


def test_fed_exp_extrapolates_from_what_is_clipped(build, task):
    process = build(
        "--algorithm=fed_exp", "--adaptive_clipping", "--clipping_initial_norm=0.01",
        "--clipping_learning_rate=0.5", "--clipping_quantile=0.5",
        "--fed_exp_epsilon=1e-12",
    )  # fmt: skip
    data = [task.train.training_data(name, 0) for name in task.train.client_ids]
    state = process.initialize()
    # All are clipped in both rounds: ρ <- ρ exp(0.5 · 0.5).
    for norm in (0.01, 0.01 * np.exp(0.25)):
        state, metrics = process.next(state, data)
        of_model, of_message = metrics["aggregator"].values()
        assert of_model["clipped_count"] == of_message["clipped_count"] == 3
        assert of_model["clipping_norm"] == pytest.approx(norm)
        assert of_message["clipping_norm"] == pytest.approx(norm**2)
        squared = metrics["finalizer"]["pseudo_gradient_norm"] ** 2
        rate = max(1.0, norm**2 / (2 * squared))
        assert metrics["finalizer"]["extrapolation"] == pytest.approx(rate, rel=1e-4)
