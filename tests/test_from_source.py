"""What is read of the library's source, against what is imported."""

import dataclasses
import inspect
import re
import sys
import types

import pytest
import tensorflow_federated as tff

from tests import methods, stateful
from tff_drift import aggregators, algorithms, from_source, module_source
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


SPEC = """
import math
from typing import Final

import numpy as np

from tff_drift import checks, method_specs
from tff_drift.algorithms import scaffold as other
from tff_drift.algorithms.fed_avg import METHOD as _unused
from tff_drift.method_specs import Cost, Method, Option, register

_BASE = "https://example.org"
_URL: Final = f"{_BASE}/mine"
_TRAFFIC = (2, 1)
_RATES = [float(each) for each in _TRAFFIC]
_RHO = _RATES[0] / 4


def build_mine(model_fn, client_optimizer_fn, /, *, rho=_RHO, top=-math.inf, **more):
    \"\"\"Builds it.\"\"\"


METHOD = register(
    method_specs.Method(
        name="mine",
        builder=build_mine,
        paper="I (2026), " + "Mine",
        url=_URL,
        traffic=_TRAFFIC,
        weighting=method_specs.UNIFORM,
        client_cost=Cost(sums=-_TRAFFIC[0] + 3),
        options=tuple(Option(name, "number", _BASE) for name in ("rho",)),
    )
)
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """Writes the module of a method into a folder of the library's package."""
    package = types.ModuleType("made_up")
    package.__file__ = str(tmp_path / "__init__.py")
    monkeypatch.setitem(sys.modules, "made_up", package)

    def write(text):
        path = tmp_path / f"mine_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        return list(from_source._rows(f"made_up.{path.stem}")), path

    return write


def test_constants_of_a_spec_are_followed(own_module):
    [row], _ = own_module(SPEC)
    assert (row.name, row.paper) == ("mine", "I (2026), Mine")
    assert row.url == "https://example.org/mine"
    assert row.traffic == (2, 1)
    assert row.weighting == "uniform"
    assert row.client_cost == algorithms.Cost(sums=1)
    assert row.options[0].default == 0.5
    assert row.parameters["top"].default == -float("inf")


@pytest.mark.parametrize(
    ("old", "new", "line", "told"),
    [
        ("url=_URL", "url=_NONE", 28, "NameError: name '_NONE' is not defined"),
        ("url=_URL", "url=np.pi", 28, "NameError: numpy is not imported for this"),
        ("traffic=_TRAFFIC", "traffic=1 / 0", 29, "ZeroDivisionError: division by"),
        ('name="mine"', 'name="my method"', 24, "ValueError: name must be an ident"),
        ("import math", "import math\nx = (", 3, "SyntaxError: '(' was never closed"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_place(
    own_module, old, new, line, told
):
    with pytest.raises(module_source.UnreadableError) as caught:
        own_module(SPEC.replace(old, new))
    text = str(caught.value)
    assert re.search(rf"/mine_\d+\.py:{line}: {re.escape(told)}", text), text
    assert "\n" not in text
