"""Ctrl-C in every phase of a program: how soon it ends, and what the run ends with.

    python -m tests.soak.interrupts RESULTS.jsonl

A program of `program.py` gets SIGINT while it builds its process, reads data, trains,
evaluates, writes a checkpoint, exports its model, or tells MLflow. Then it is started
again, and its end is compared bit for bit with that of one that nobody disturbed.
"""

import argparse
import contextlib
import importlib.util
import os
import pathlib
import secrets
import signal
import struct
import tempfile
import time
from unittest import mock

from tests.soak import kills, program, results, zygote
from tff_drift import simulation
from tff_drift.simulation import callbacks
from tff_drift.simulation.records.run_directory import RunDirectory

METHOD = "scaffold"
# Seconds that a phase takes at least, and that the signal comes after its begin.
_PHASE = 0.05
# Of each phase: what a run keeps, and the function in which it is.
PHASES = {
    "reading data": ("ram", (simulation.ClientDatasets, "digest")),
    "training": ("disk", (program.CallAfterRows, "after_row")),
    "evaluating": ("evaluation", (program, "_evaluate")),
    "writing a checkpoint": ("disk", (RunDirectory, "save")),
    "exporting": ("evaluation", (program, "_export")),
    "tracking": ("mlflow", (callbacks.MLflowTracker, "_log")),
}
BUILDING = "building"


def phases():
    """Returns the names of those that can be tried here."""
    has_mlflow = importlib.util.find_spec("mlflow") is not None
    own = [name for name in PHASES if name != "tracking" or has_mlflow]
    return [BUILDING, *own]


def store_of(phase):
    """Returns what a run keeps in which a phase is tried."""
    return "ram" if phase == BUILDING else PHASES[phase][0]


def _interrupt_soon(told, seconds):
    """Has another process send SIGINT to this one, and tells when it came."""
    here = os.getpid()
    if os.fork() == 0:
        time.sleep(seconds)
        os.write(told, struct.pack("d", time.monotonic()))
        os.kill(here, signal.SIGINT)
        os._exit(0)


@contextlib.contextmanager
def _at_first(phase, told, seconds):
    """A context in which the first begin of a phase is followed by SIGINT."""
    if phase == BUILDING:
        _interrupt_soon(told, seconds)
        program.build(METHOD)
        yield
        return
    owner, name = PHASES[phase][1]
    original, seen = getattr(owner, name), []

    def interrupted(*args, **kwargs):
        if not seen:
            seen.append(True)
            _interrupt_soon(told, seconds)
            time.sleep(_PHASE)
        return original(*args, **kwargs)

    with mock.patch.object(owner, name, interrupted):
        yield


def interrupt(campaign, phase, seconds, folder):
    """Interrupts a run in a phase, and starts it again.

    Returns:
      A mapping in JSON values: `ended_by`, the `seconds` from the signal to the end,
      and `differs`, the names of what is not as in an undisturbed run.
    """
    store = store_of(phase)
    campaign.expected(METHOD, store)
    zygote.empty(folder)
    moments, told = os.pipe()
    try:
        attempt = campaign.zygote.train(
            METHOD, store, folder, fault=lambda: _at_first(phase, told, seconds)
        )
        ended = time.monotonic()
    finally:
        os.close(told)
    with open(moments, "rb") as file:
        [sent] = struct.unpack("d", file.read())
    again = campaign.zygote.train(METHOD, store, folder)
    differs = [again.ended_by]
    if again.ended_by == "":
        differs = campaign.differences(METHOD, store, folder)
    return {
        "what": "interrupt",
        "phase": phase,
        "ended_by": attempt.ended_by,
        "seconds": round(ended - sent, 3),
        "differs": differs,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=5, help="of every phase")
    parser.add_argument("--phases", help="some of them, after each other by commas")
    arguments = parser.parse_args()
    # A shell has programs in the background ignore Ctrl-C, and these inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = arguments.phases.split(",") if arguments.phases else phases()
    stores = sorted({(METHOD, store_of(phase)) for phase in chosen})
    with tempfile.TemporaryDirectory(dir=results.FAST_FOLDER) as folder:
        campaign = kills.Campaign(stores, folder)
        for phase in chosen:
            for _ in range(arguments.times):
                seconds = secrets.randbelow(1000) / 1000 * _PHASE
                result = interrupt(
                    campaign, phase, seconds, pathlib.Path(folder, "interrupted")
                )
                results.append(arguments.results, result)


if __name__ == "__main__":
    main()
