"""Trainings that are killed at any moment end like trainings that are not.

One run here; `make soak` kills hundreds of times, over many methods, see `kills.py`.
"""

import secrets
import subprocess
import sys

import pytest

from tests.soak import kills, program, results

pytestmark = pytest.mark.soak


def test_a_run_that_is_killed_again_and_again(tmp_path):
    # A run may come to its end before the moment at which it was to be killed.
    killed = 0
    for attempt in range(10):
        result = _run_with_kills(tmp_path / f"results_{attempt}")
        assert result["failed"] == []
        assert result["differs"] == []
        # The number of rounds, the rows, the server's leaves, a state for each client.
        assert result["values"] > 2 + program.NUM_CLIENTS
        killed += kills.kills_in(result)
        if killed:
            break
    assert killed > 0


def _run_with_kills(path):
    # A method with client states on disk goes through everything that is written.
    seed = secrets.randbits(32)
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
    return result
