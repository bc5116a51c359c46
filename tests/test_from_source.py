"""What is read of the library's source, against what is imported."""

import dataclasses
import inspect

import pytest
import tensorflow_federated as tff

from tests import methods, stateful
from tff_drift import aggregators, algorithms, from_source
from tff_drift.optimizers import schedules


def parameters(function):
    """The parameters of a function; no annotations are read."""
    return without_annotations(inspect.signature(function).parameters.values())


def without_annotations(found):
    return [each.replace(annotation=inspect.Parameter.empty) for each in found]


def test_the_methods_that_are_read_are_those_of_the_library():
    imported = {
        name: row
        for name, row in algorithms.methods().items()
        if row.builder.__module__.startswith("tff_drift.")
    }
    assert list(from_source.read()) == list(imported)
    for name, row in from_source.read().items():
        builder = imported[name].builder
        assert dataclasses.replace(row, builder=builder) == imported[name]
        assert without_annotations(row.parameters.values()) == without_annotations(
            imported[name].parameters.values()
        )
        assert inspect.getdoc(row.builder) == inspect.getdoc(builder)
        assert row.builder.__name__ == builder.__name__ == f"build_{name}"
        assert row.builder.__module__ == builder.__module__


def test_what_is_imported_is_not_read():
    known = from_source.methods()
    assert {name: known[name] for name in algorithms.methods()} == algorithms.methods()


def test_what_the_rows_say_of_rates_and_defaults():
    known = from_source.read()
    no_client_rate = [name for name, each in known.items() if not each.has_client_rate]
    no_server_rate = [name for name, each in known.items() if not each.has_server_rate]
    assert no_client_rate == ["fed_sgd"]
    assert no_server_rate == [
        "adabest",
        "central",
        "fed_dc",
        "fed_dyn",
        "fed_exp",
        "scaffnew",
        "scaffold_m",
    ]

    def defaults(name):
        return {option.name: option.default for option in known[name].options}

    assert defaults("fed_avg") == {}
    assert defaults("fed_adagrad")["beta_1"] == 0.0
    assert defaults("fed_adam") == {
        "beta_1": 0.9,
        "beta_2": 0.99,
        "tau": 1e-3,
        "initial_accumulator": 0.0,
        "bias_correction": False,
    }


def test_a_method_that_is_read_can_be_built():
    process = methods.build(from_source.read()["fed_prox"], mu=0.5)
    assert isinstance(process, tff.learning.templates.LearningProcess)
    with pytest.raises(ValueError, match="mu must be"):
        from_source.read()["fed_prox"].build(
            stateful.LinearRegression, client_learning_rate=0.1, mu=-1.0
        )


@pytest.mark.parametrize(
    "function", [aggregators.adaptive_clipping_factory, schedules.exponential]
)
def test_the_defaults_of_a_function(function):
    read = from_source.defaults(function.__module__, function.__name__)
    assert read == {
        each.name: each.default
        for each in parameters(function)
        if each.default is not inspect.Parameter.empty
    }
