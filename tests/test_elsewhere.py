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


@pytest.mark.conformance
@pytest.mark.no_smoke
def test_the_tests_pass_without_what_linux_alone_has():
    paths = [f"tests/{each}" for each in [*FOLDERS, *FILES]]
    outcome = _python(
        *("-m", "pytest", "-q", "--smoke", "-p", "no:xdist", "-p", "no:cacheprovider"),
        *paths,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:]
    passed = int(outcome.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 40


LOOK = """
import ctypes, os, platform, sys
from tff_drift import system
print(
    hasattr(os, "sched_getaffinity"), os.path.exists("/proc"),
    hasattr(ctypes.CDLL(None), "prctl"), hasattr(ctypes.CDLL(None), "getpid"),
    sys.platform, platform.mac_ver()[0], system.machine(), system.processors() > 0,
    sep=",",
)
try:
    ctypes.CDLL("libc.so.6")
except OSError as error:
    print(type(error).__name__)
"""
SEEN = ["False,False,False,True,darwin,14.6,Darwin arm64,True", "OSError"]


def test_what_linux_alone_has_is_gone_for_a_process_and_its_children():
    program = (
        "import subprocess, sys; from tests import elsewhere;"
        "elsewhere.take_linux_away(); exec(sys.argv[1]); sys.stdout.flush();"
        "subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    )
    outcome = _python("-c", program, LOOK)
    assert outcome.stdout.splitlines() == SEEN * 2, outcome.stderr


@pytest.mark.conformance
def test_processes_are_spawned_and_the_worker_is_empty():
    program = (
        "from tests import elsewhere; elsewhere.take_linux_away();"
        "import multiprocessing, subprocess, tensorflow_federated as tff;"
        "from tff_drift import _tff_exit;"
        "print(multiprocessing.get_start_method(), _tff_exit.has_worker());"
        "subprocess.run([_tff_exit.worker_path()])"
    )
    outcome = _python("-c", program)
    assert outcome.stdout.split() == ["spawn", "False"]
    assert "PermissionError" in outcome.stderr
