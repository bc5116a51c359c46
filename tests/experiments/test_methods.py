"""What is read of the methods without TensorFlow, against the methods themselves."""

import inspect

import tasks
from experiments.flags import declarations, methods, published_rates
from tff_drift import aggregators, algorithms


def test_what_is_read_is_what_the_rows_say():
    rows = algorithms.methods()
    assert methods.methods() == {
        name: methods.of_row(row) for name, row in rows.items()
    }


def test_a_default_read_is_that_of_the_function():
    read = methods.signature(
        "tff_drift.aggregators.adaptive_clipping", "adaptive_clipping_factory"
    )
    function = inspect.signature(aggregators.adaptive_clipping_factory)
    assert read == {name: each.default for name, each in function.parameters.items()}


def test_every_builder_of_the_library_has_a_row():
    builders = {name for name in algorithms.__all__ if name.startswith("build_")}
    rows = algorithms.methods().values()
    assert builders == {row.builder.__name__ for row in rows}


def test_names_follow_the_builders():
    for name, row in algorithms.methods().items():
        assert row.builder.__name__ == f"build_{name}"
        assert row.url.startswith("https://arxiv.org/abs/")
        # The address that the method's own documentation gives first.
        assert row.url in inspect.getdoc(row.builder)


def test_defaults_are_those_of_the_signatures():
    known = methods.methods()
    of_fed_adam = known["fed_adam"].options
    assert {name: option.default for name, option in of_fed_adam.items()} == {
        "beta_1": 0.9,
        "beta_2": 0.99,
        "tau": 1e-3,
        "initial_accumulator": 0.0,
    }
    assert known["fed_avg"].options == {}
    assert known["fed_adagrad"].options["beta_1"].default == 0.0


def test_an_option_of_several_methods_means_the_same_in_all():
    flags = declarations.flags_of("train")
    for method in methods.methods().values():
        for name, option in method.options.items():
            flag = flags[name]
            assert (option.kind, option.help) == (flag.kind, flag.help)
            assert (option.choices, option.may_be_none) == (
                flag.choices,
                flag.may_be_none,
            )


def test_rates_of_a_method():
    known = methods.methods()
    no_client_rate = [name for name, each in known.items() if not each.has_client_rate]
    no_server_rate = [name for name, each in known.items() if not each.has_server_rate]
    assert no_client_rate == ["fed_sgd"]
    assert no_server_rate == ["adabest", "fed_dyn", "scaffold_m"]


def test_every_task_has_defaults():
    for name in tasks.names():
        assert name in published_rates.TASKS
        settings = published_rates.of_task(name)
        assert min(settings.rounds, settings.clients_per_round) >= 1
        for algorithm, method in methods.methods().items():
            rates = published_rates.rates(name, algorithm)
            assert rates.client > 0
            assert rates.server > 0
            assert set(rates.hyperparameters) <= set(method.options)
