"""Programs that go on for long, or hold much: `make soak`."""

import asyncio
import collections
import gc
import os
import pathlib
import platform
import re
import shutil
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.soak import program, results
from tff_drift import client_states, compat, execution, simulation
from tff_drift.simulation import callbacks

pytestmark = pytest.mark.soak


@pytest.fixture(autouse=True)
def local_context():
    context = execution.create_local_execution_context()
    with compat.get_context_stack().install(context):
        yield context


def _ram():
    """The program's own RAM in MB: not pages of files, which the system may drop."""
    status = pathlib.Path("/proc/self/status").read_text()
    kilobytes = re.findall(r"(?:RssAnon|VmSwap):\s+(\d+)", status)
    return sum(map(int, kilobytes)) / 1024


def _blocks_lost_per_tensor():
    """How many of Python's blocks TensorFlow forgets with each eager tensor.

    One of 16 bytes on Python 3.11: a tensor's type has a dictionary of its own besides
    Python's, which gives each object room for attributes and is never told of its end.
    None on Python 3.13, where that room is a part of the object.
    """
    value, tensors = tf.zeros([3]), 1000
    before = sys.getallocatedblocks()
    for _ in range(tensors):
        tf.identity(value)
    return round((sys.getallocatedblocks() - before) / tensors)


class _Use(NamedTuple):
    """What a program has used up to some moment, times in seconds, RAM in MB."""

    wall: float
    cpu: float
    blocks: int
    ram: float
    threads: int
    files: int


class Measure(callbacks.Callback):
    """Notes the time, RAM, threads and open files at some rounds."""

    def __init__(self, at):
        self._at = at
        self.found = {}

    def after_row(self, row):
        if row["round"] in self._at:
            gc.collect()
            self.found[row["round"]] = _Use(
                time.perf_counter(),
                time.process_time(),
                sys.getallocatedblocks(),
                _ram(),
                len(os.listdir("/proc/self/task")),
                len(os.listdir("/proc/self/fd")),
            )


@pytest.mark.parametrize("method", ["fed_avg", "scaffold"])
def test_five_thousand_rounds(method, tmp_path):
    train = program.client_datasets()
    # Between rounds the allocator keeps some MB more or less: many measurements.
    at = range(500, 5001, 100)
    measure = Measure(at)

    def sampling(round_number):
        random = np.random.default_rng(round_number)
        size = int(random.integers(1, program.NUM_CLIENTS + 1))
        return list(random.choice(train.client_ids, size, replace=False))

    simulation.run_training(
        program.build(method),
        train,
        rounds=5000,
        sampling=sampling,
        callbacks=[callbacks.Progress(False), measure],
        output_dir=simulation.OutputDir(tmp_path / "run", 100),
    )
    found = [measure.found[number] for number in at]
    start, end = found[0], found[-1]
    growth = np.polyfit(at, [use.ram for use in found], 1)[0] * 1000
    blocks = (end.blocks - start.blocks) / (at[-1] - at[0])
    lost = _blocks_lost_per_tensor()
    # The machine may have other work: the processor's time counts.
    per_thousand = [
        np.median(np.diff([use.cpu for use in part]))
        for part in (found[:11], found[-11:])
    ]
    speed = per_thousand[0] / per_thousand[1]
    results.note(
        f"5,000 rounds of {method} with cohorts of 1 to 6, Python "
        + ".".join(platform.python_version_tuple()[:2]),
        f"RAM {start.ram:.0f} MB after 500, {end.ram:.0f} after 5,000, a trend of "
        f"{growth:.2f} per 1,000; {blocks:.0f} of Python's blocks per round, {lost} "
        f"per tensor lost by TensorFlow; threads {start.threads} and {end.threads}, "
        f"open files {start.files} and {end.files}; rounds per second of processor "
        f"time at the end {speed:.2f} of the start",
    )
    # A row is two blocks; what is more are tensors that TensorFlow made for itself.
    assert blocks < 3 or lost
    assert growth <= 1
    assert end.threads <= start.threads
    assert end.files <= start.files
    assert speed >= 0.95


def test_120_cohort_sizes():
    process = program.build("fed_avg")
    train = program.client_datasets()
    data = [
        train.training_batches(train.client_ids[index % program.NUM_CLIENTS], 0)
        for index in range(120)
    ]
    state, ram = process.initialize(), []
    for size in range(1, 121):
        state = process.next(state, data[:size]).state
        ram.append(_ram())
    results.note(
        "cohorts of 1 to 120 clients in one program",
        f"RAM {ram[19]:.0f}, {ram[59]:.0f} and {ram[119]:.0f} MB after 20, 60, 120",
    )
    assert ram[119] - ram[59] < 100
    assert np.all(np.isfinite(state.global_model_weights.trainable[0]))


def test_300_processes():
    train = program.client_datasets()
    data = [train.training_batches(name, 0) for name in train.client_ids]
    ram, threads, models = [], [], set()
    for _ in range(300):
        process = program.build("fed_avg")
        state = process.next(process.initialize(), data).state
        models.add(state.global_model_weights.trainable[0].tobytes())
        gc.collect()
        ram.append(_ram())
        threads.append(len(os.listdir("/proc/self/task")))
    results.note(
        "300 processes built and run in one program",
        f"equal bits; RAM {ram[49]:.0f} and {ram[299]:.0f} MB, threads {threads[49]} "
        f"and {threads[299]} after 50 and 300",
    )
    assert len(models) == 1
    assert threads[299] <= threads[49]
    assert (ram[299] - ram[49]) / 250 < 1


def test_a_thousand_large_clients_on_disk():
    initial = collections.OrderedDict(variate=np.zeros(1_200_000, np.float32))
    folder = pathlib.Path(tempfile.mkdtemp())
    names = [f"client_{index}" for index in range(1000)]
    before = _ram()
    try:
        with client_states.DiskClientStates(folder / "states", initial) as states:
            for version, first in enumerate(range(0, 1000, 50), start=1):
                cohort = names[first : first + 50]
                new = [
                    {"variate": np.full(1_200_000, int(name[7:]), np.float32)}
                    for name in cohort
                ]
                states.scatter(cohort, new)
                states.commit(version)
                states.prune(version)
            peak = _ram()
            for name in names[::7]:
                [state] = states.gather([name])
                assert np.all(state["variate"] == int(name[7:]))
            assert len(states) == 1000
    finally:
        shutil.rmtree(folder)
    results.note(
        "1,000 clients of 1.2 million weights on disk",
        f"all as written; at most {peak - before:.0f} MB of RAM for cohorts of 50",
    )
    # A cohort's states are 240 MB, made here and packed once more by the store.
    assert peak - before < 700


def test_cancelled_calls_leave_the_context_usable():
    context = execution.create_async_local_execution_context()
    process = program.build("fed_avg")
    train = program.client_datasets()
    data = [train.training_batches(name, 0) for name in train.client_ids]

    async def use():
        state = await process.initialize()
        expected = await process.next(state, data)
        for seconds in np.linspace(0, 0.02, 20):
            with pytest.raises((asyncio.TimeoutError, asyncio.CancelledError)):
                await asyncio.wait_for(process.next(state, data), float(seconds) / 10)
        found = await process.next(state, data)
        return expected.state, found.state

    with compat.get_context_stack().install(context):
        expected, found = asyncio.run(use())
    [one], [other] = (each.global_model_weights.trainable for each in (expected, found))
    assert one.tobytes() == other.tobytes()
    results.note(
        "20 calls of an asynchronous context cancelled", "the next has the same bits"
    )
