"""Ctrl-C ends a program soon, whatever it does, and the run goes on.

A phase here; `make soak` interrupts every one several times, see `interrupts.py`.
"""

import os
import subprocess
import sys

import pytest

from tests.soak import interrupts, results

pytestmark = pytest.mark.soak
_EVERY = bool(os.environ.get("TFF_DRIFT_SOAK"))
# Ten times what it takes: the machine may have other work.
_SECONDS = 20.0


def test_ctrl_c_in_every_phase(tmp_path):
    path = tmp_path / "results.jsonl"
    words = [sys.executable, "-m", interrupts.__name__, path]
    chosen = interrupts.phases() if _EVERY else ["exporting"]
    words += [f"--phases={','.join(chosen)}", f"--times={3 if _EVERY else 1}"]
    found = subprocess.run(
        words, stderr=subprocess.PIPE, text=True, timeout=1200, check=False
    )
    assert found.returncode == 0, found.stderr
    tried = results.read(path)
    assert {each["phase"] for each in tried} == set(chosen)
    assert [each for each in tried if each["ended_by"] != "KeyboardInterrupt"] == []
    assert [each for each in tried if each["differs"]] == []
    slowest = max(each["seconds"] for each in tried)
    assert slowest < _SECONDS
