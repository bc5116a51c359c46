import inspect

import pytest

import tasks
from experiments import algorithms, catalogue, defaults
from tff_drift import algorithms as library


def test_the_catalogue_says_what_the_packages_say():
    catalogue.check_current()
    assert tuple(catalogue.tasks()) == tasks.names()
    assert tuple(catalogue.algorithms()) == tuple(algorithms.ALGORITHMS)


def test_an_outdated_catalogue_is_an_error(monkeypatch):
    changed = {"tasks": [], "algorithms": []}
    monkeypatch.setattr(catalogue, "describe_packages", lambda: changed)
    with pytest.raises(RuntimeError, match=r"experiments\.catalogue"):
        catalogue.check_current()


def test_every_builder_of_the_library_is_registered():
    builders = {name for name in library.__all__ if name.startswith("build_")}
    methods = algorithms.ALGORITHMS.values()
    assert builders == {entry.method.builder.__name__ for entry in methods}


def test_names_follow_the_builders():
    for name, entry in algorithms.ALGORITHMS.items():
        method = entry.method
        assert method.builder.__name__ == f"build_{name}"
        assert method.url.startswith("https://arxiv.org/abs/")
        # The address that the method's own documentation gives first.
        assert method.url in inspect.getdoc(method.builder)


def test_hyperparameters_are_those_of_the_signatures():
    of_fed_adam = algorithms.ALGORITHMS["fed_adam"].hyperparameters
    assert of_fed_adam == {
        "beta_1": 0.9,
        "beta_2": 0.99,
        "tau": 1e-3,
        "initial_accumulator": 0.0,
        "client_weight_decay": 0.0,
        "gradient_clipping_norm": None,
    }
    assert algorithms.ALGORITHMS["fed_sgd"].hyperparameters == {}
    assert algorithms.ALGORITHMS["fed_adagrad"].hyperparameters["beta_1"] == 0.0


def test_rates_of_a_builder():
    methods = library.methods()
    no_client_rate = [name for name, m in methods.items() if not m.has_client_rate]
    no_server_rate = [name for name, m in methods.items() if not m.has_server_rate]
    assert no_client_rate == ["fed_sgd"]
    assert no_server_rate == ["adabest", "fed_dyn", "scaffold_m"]


def test_every_task_has_defaults():
    for name in tasks.names():
        assert name in defaults.TASKS
        settings = defaults.of_task(name)
        assert min(settings.rounds, settings.clients_per_round) >= 1
        for algorithm, entry in algorithms.ALGORITHMS.items():
            rates = defaults.rates(name, algorithm)
            assert rates.client > 0
            assert rates.server > 0
            assert set(rates.hyperparameters) <= set(entry.hyperparameters)
