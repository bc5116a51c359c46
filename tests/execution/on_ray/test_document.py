"""What docs/remote.md shows works."""

import pathlib
import re

import numpy as np
import tensorflow_federated as tff

import tff_drift
from experiments.flags import table
from tests.execution.on_ray.conftest import OPTIONS
from tff_drift import compat, execution

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "remote.md"


def test_the_example_sets_a_context_that_computes(instance, monkeypatch):
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    create = execution.create_ray_execution_context
    contexts = []

    def small(**options):
        assert options.pop("address") == "auto"  # The instance of the tests.
        return create(**{**OPTIONS, **options})

    monkeypatch.setattr(
        execution.on_ray.creation, "create_ray_execution_context", small
    )
    monkeypatch.setattr(tff.framework, "set_default_context", contexts.append)
    exec(code, {"tff_drift": tff_drift})
    total = compat.federated_computation(
        compat.federated_sum, compat.FederatedType(np.int32, compat.CLIENTS)
    )
    try:
        with tff.framework.get_context_stack().install(contexts[0]):
            assert total([1, 2, 39]) == 42
    finally:
        contexts[0].close()
    assert len(contexts[0].actors) == 2


def test_the_tutorial_runs(instance, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    create = execution.create_ray_execution_context
    monkeypatch.setattr(
        execution, "create_ray_execution_context", lambda **_: create(**OPTIONS)
    )
    script = DOCUMENT.parent / "tutorials" / "several_machines.py"
    exec(script.read_text(), {"__name__": "tutorial"})
    assert "the same bits: True" in capsys.readouterr().out


def test_the_command_lines_have_the_flags_that_are_shown():
    lines = DOCUMENT.read_text().replace("\\\n", " ")
    words = re.findall(r"tff-drift train (.*)", lines)
    assert len(words) >= 3
    flags = [*table.named(), *(flag for each in table.GROUPS.values() for flag in each)]
    known = {flag.name for flag in flags}
    for line in words:
        assert {word.split("=")[0].lstrip("-") for word in line.split()} <= known
