"""Results of long tests, one JSON value per line, which are added to as they come."""

import json
import os
import pathlib
import platform
from importlib import metadata

# A kill leaves the system's caches alone: waiting for a disk would only take time.
FAST_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def parse(line):
    return json.loads(line)


def append(path, result):
    with open(path, "a") as file:
        file.write(json.dumps(result) + "\n")


def add(result):
    """Adds a result of a test of the soak, where TFF_DRIFT_SOAK names a file."""
    path = pathlib.Path(os.environ.get("TFF_DRIFT_SOAK", ""))
    if path.suffix == ".jsonl":
        append(path, result)


def note(trial, outcome):
    """Tells of a test of the soak in words."""
    print(f"{trial}: {outcome}")
    add({"what": "soak", "trial": trial, "outcome": outcome})


def read(path):
    if not path.exists():
        return []
    # The last line may have been cut by a kill of the program that wrote it.
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def environment():
    return {
        "what": "environment",
        "python": platform.python_version(),
        "tensorflow": metadata.version("tensorflow"),
        "machine": platform.machine(),
    }
