"""Trainings that are killed at any moment end like trainings that are not.

One run here; `make soak` kills hundreds of times, over many methods, see `kills.py`.
"""

import secrets
import subprocess
import sys

import pytest

from tests.reliability import kills, program, results

pytestmark = pytest.mark.whole_programs


def test_a_run_that_is_killed_again_and_again(tmp_path):
    # A method with client states on disk goes through everything that is written.
    seed, path = secrets.randbits(32), tmp_path / "results"
    found = subprocess.run(
        [sys.executable, "-m", kills.__name__, path, f"--once=scaffold,disk,{seed}"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    [result] = results.read(path)
    print(result)
    assert kills.kills_in(result) > 0
    assert result["failed"] == []
    assert result["differs"] == []
    # The number of rounds, the rows, the server's leaves, a state for each client.
    assert result["values"] > 2 + program.NUM_CLIENTS
