"""What the command line imports before it knows what it is asked for."""

import subprocess
import sys

from tests.experiments.programs import ROOT

LIGHT = ("flags", "presets", "commands")


def test_flags_presets_and_commands_import_no_tensorflow():
    modules = [
        f"experiments.{package}.{path.stem}"
        for package in LIGHT
        for path in sorted((ROOT / "experiments" / package).glob("*.py"))
    ]
    assert len(modules) > 20
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
