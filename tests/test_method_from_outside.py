"""A method of a user's own file is in the command line and under every property.

The file is `tests/fed_echo.py`: a builder whose clients keep a state, and its row.
"""

import ast
import pathlib
import re
import subprocess

import pytest

from tests import tiers
from tests.forks.programs import PATIENCE, python

pytestmark = pytest.mark.no_smoke

ROOT = pathlib.Path(__file__).parents[1]
PLUGIN = "tests/fed_echo.py"
# What parametrises tests by the registered methods.
EVERY = (
    *("methods.every", "methods.every_variant"),
    *("methods.every_client_program", "methods.every_kind_of_state"),
    *("methods.every_scheduled", "methods.every_resumed"),
)


def run_program(*words):
    process = subprocess.run(
        [*python(), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def properties():
    """The names of all tests that are parametrised by the registered methods."""
    names = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            decorators = map(ast.unparse, getattr(node, "decorator_list", ()))
            if any(each in EVERY for each in decorators):
                names.setdefault(str(path.relative_to(ROOT)), set()).add(node.name)
    return names


def test_the_command_line_knows_it(tmp_path):
    program = """
import sys
from experiments import main
for words in sys.argv[1:]:
    assert main.run(words.split()) == 0, words
"""
    train = (
        f"train --plugin={PLUGIN} --task=quadratic --algorithm=fed_echo --rho=0.25 "
        f"--rounds=2 --client_weight_decay=0.01 --output_dir={tmp_path}"
    )
    output = run_program(
        "-c",
        program,
        f"list fed_echo --plugin={PLUGIN}",
        f"train --plugin={PLUGIN} --help-all",
        train,
    )
    assert "fed_echo" in output
    assert "Nobody et al. (2026), Echoes. https://example.org/fed_echo" in output
    assert "--rho=0.1" in output
    assert re.search(r"--rho .*\s+Share of the last pseudo-gradient", output)
    assert "fed_echo on quadratic, seed 1: 2 rounds" in output
    assert '"rho": 0.25' in (tmp_path / "config.json").read_text()
    summary = (tmp_path / "summary.json").read_text()
    # One sum at each of the ten local steps, and one product.
    assert re.search(r'"client": {\s*"sums": 10.0,\s*"products": 1', summary)


# In the first tier in one mode of the local context.
@pytest.mark.parametrize(
    "cases",
    tiers.first([0], ["fed_echo and not plain and not batched", "fed_echo"]),
)
def test_every_property_holds_of_it(request, cases):
    expected = properties()
    assert sum(map(len, expected.values())) > 15
    as_here = ["--no-grappler"] if request.config.getoption("--no-grappler") else []
    output = run_program(
        *("-m", "pytest", "-p", "tests.fed_echo", "-p", "no:cacheprovider", *as_here),
        *("-q", "-rA", "-m", "not soak", "-k", cases, *expected),
    )
    passed = re.findall(r"^PASSED ([^:]+)::(\w+)\[.*fed_echo.*\]$", output, re.M)
    assert set(passed) == {
        (path, name) for path, names in expected.items() for name in names
    }
