"""Training, files, resuming and the command line where Linux' own calls are missing."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# Of these folders the first test of each file, as in a smoke test.
FOLDERS = ["client_states", "simulation", "tasks"]
FILES = ["experiments/test_main.py", "experiments/test_outputs.py"]


def _python(*words, **environment):
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "TFF_DRIFT_ELSEWHERE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.whole_programs
def test_the_tests_pass_without_what_linux_alone_has():
    paths = [f"tests/{each}" for each in [*FOLDERS, *FILES]]
    outcome = _python(
        *("-m", "pytest", "-q", "--smoke", "-p", "no:xdist", "-p", "no:cacheprovider"),
        *paths,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:]
    passed = int(outcome.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 40


def test_what_linux_alone_has_is_gone():
    program = (
        "from tests import elsewhere; elsewhere.take_linux_away();"
        "import ctypes, os, platform;"
        "from tff_drift import system;"
        "print(hasattr(os, 'sched_getaffinity'), os.path.exists('/proc'),"
        " hasattr(ctypes.CDLL(None), 'prctl'), hasattr(ctypes.CDLL(None), 'getpid'),"
        " system.machine(), system.processors() > 0)"
    )
    outcome = _python("-c", program)
    assert outcome.stdout.split() == [*["False"] * 3, "True", "Darwin", "arm64", "True"]
