"""The floors of `experiments`: imports go down, and the lowest knows no TensorFlow."""

import ast
import subprocess
import sys

import pytest

from tests.experiments.programs import ROOT

FLOORS = ("flags", "presets", "analysis", "reports", "training", "commands")
MODULES = sorted((ROOT / "experiments").glob("*/*.py"))


def imported(path):
    """Yields the names of the modules of `experiments` that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("exp"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parts[-2:]}")
def test_a_module_imports_from_its_floor_and_below(path):
    own = FLOORS.index(path.parent.name)
    floors = [name.split(".")[1] for name in imported(path)]
    above = [floor for floor in floors if floor in FLOORS[own + 1 :]]
    assert above == []
    assert "main" not in floors


def test_the_lowest_floor_and_the_commands_import_no_tensorflow():
    modules = [
        f"experiments.{path.parent.name}.{path.stem}"
        for path in MODULES
        if path.parent.name in ("flags", "presets", "commands")
    ]
    program = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
slow = {{"tensorflow", "tensorflow_federated", "pandas", "matplotlib", "numpy",
        "jinja2"}}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
