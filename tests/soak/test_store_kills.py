"""A program that is killed ends like one that was not."""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile

import pytest

pytestmark = pytest.mark.soak

# A kill leaves the system's caches alone: waiting for a disk would only take time.
FAST_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
PROGRAM = pathlib.Path(__file__).with_name("killed_store.py")


@pytest.mark.parametrize("how", ["before_each_line", "at_random_times"])
def test_killed_programs_end_like_uninterrupted_ones(how):
    seed = secrets.randbits(32)
    with tempfile.TemporaryDirectory(dir=FAST_FOLDER) as folder:
        process = subprocess.run(
            [sys.executable, PROGRAM, folder, how, str(seed)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert process.returncode == 0, f"seed {seed}: {process.stderr}"
    report = json.loads(process.stdout)
    assert report["different"] == [], f"seed {seed}"
    assert report["kills"] > 10
