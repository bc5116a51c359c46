"""A small training program that kills itself again and again, and goes on.

It runs apart from pytest, without TensorFlow: a process that is forked, as here
for each attempt, must have no threads.
"""

import importlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time
import traceback
import types

import numpy as np

REPOSITORY = pathlib.Path(__file__).parents[2]
CLIENTS = 12
COHORT = 4
ROUNDS = 5
ROUNDS_PER_CHECKPOINT = 2
TRACED_FILES = ("on_disk.py", "state_index.py", "slot_file.py", "killed_store.py")
INITIAL_STATE = {"variate": np.zeros(40), "rounds": np.int32(0)}


def import_without_tensorflow():
    """Imports the stores, but not the packages beside them."""
    package = types.ModuleType("tff_drift")
    package.__path__ = [str(REPOSITORY / "tff_drift")]
    sys.modules["tff_drift"] = package
    return importlib.import_module("tff_drift.client_states")


class Dictionary:
    """What a store should do for a program that is never killed."""

    def __init__(self):
        self.states = {}

    def gather(self, client_ids):
        return [self.states.get(client_id, INITIAL_STATE) for client_id in client_ids]

    def scatter(self, client_ids, states):
        self.states.update(zip(client_ids, states, strict=True))

    def client_ids(self):
        return sorted(self.states)


def train_round(round_number, server, states):
    """Trains one round; the result depends on all that went before."""
    rng = np.random.default_rng(round_number)
    cohort = [f"client {i}" for i in rng.choice(CLIENTS, COHORT, replace=False)]
    new_states = [
        {
            "variate": old["variate"] / 2 + server + rng.normal(size=40),
            "rounds": np.int32(old["rounds"] + 1),
        }
        for old in states.gather(cohort)
    ]
    states.scatter(cohort, new_states)
    return server + sum(state["variate"].mean() for state in new_states)


def result(server, states):
    """Returns all that a program knows at its end, in JSON values."""
    ids = states.client_ids()
    of_clients = [
        [state["variate"].tobytes().hex(), int(state["rounds"])]
        for state in states.gather(ids)
    ]
    return [float(server).hex(), ids, of_clients]


def reference():
    states, server = Dictionary(), np.float64(1)
    for round_number in range(ROUNDS):
        server = train_round(round_number, server, states)
    return result(server, states)


def write_durably(path, content):
    temporary = path.with_suffix(".tmp")
    with open(temporary, "w") as file:
        file.write(json.dumps(content))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def train(client_states, folder):
    """Trains from where an earlier program was killed; writes the result."""
    with client_states.DiskClientStates(
        folder / "states", INITIAL_STATE, run_id="run"
    ) as states:
        checkpoint = folder / "checkpoint.json"
        if checkpoint.exists():
            completed, server = json.loads(checkpoint.read_text())
            server = np.float64(server)
            states.restore(completed)
        else:
            completed, server = 0, np.float64(1)
            states.commit(0)
            write_durably(checkpoint, [0, server])
        while completed < ROUNDS:
            server = train_round(completed, server, states)
            completed += 1
            if completed % ROUNDS_PER_CHECKPOINT == 0 or completed == ROUNDS:
                states.commit(completed)
                write_durably(checkpoint, [completed, server])
                states.prune(completed)
        write_durably(folder / "result.json", result(server, states))


def trace_lines(on_line):
    """Calls a function before each line of the store's files and of this file."""

    def trace(frame, event, _):
        if pathlib.Path(frame.f_code.co_filename).name not in TRACED_FILES:
            return None
        if event == "line":
            on_line(frame)
        return trace

    sys.settrace(trace)


def kill_at_line(number):
    """Kills this process before the line of that number that it comes to."""
    left = [number]

    def on_line(_):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    trace_lines(on_line)


def times_of_lines(client_states, folder):
    """Returns for each line of the files when an uninterrupted program comes to it.

    The times are the numbers of the lines that it has come to by then.
    """
    lines = []
    trace_lines(lambda f: lines.append((f.f_code.co_filename, f.f_lineno)))
    train(client_states, folder)
    sys.settrace(None)
    times = {}
    for number, line in enumerate(lines, start=1):
        times.setdefault(line, []).append(number)
    return list(times.values())


def attempt(client_states, folder, prepare, seconds=None):
    """Trains in a process of its own; returns whether it came to the end."""
    process = os.fork()
    if process == 0:
        # Whatever happens, the copy of the parent must not go on.
        try:
            prepare()
            train(client_states, folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status) != 0:
        raise RuntimeError("The program failed; its traceback is above.")
    return True


def before_each_line(client_states, folder, rng):
    """Kills before every line, at one of the times that the program comes to it."""
    whole = folder / "whole"
    whole.mkdir()
    for run, times in enumerate(times_of_lines(client_states, whole)):
        run_folder = folder / str(run)
        run_folder.mkdir()
        number = rng.choice(times)
        killed = not attempt(
            client_states, run_folder, lambda n=number: kill_at_line(n)
        )
        attempt(client_states, run_folder, lambda: None)
        yield int(killed), run_folder


def at_random_times(client_states, folder, rng):
    """Kills after random times, in the middle of system calls too."""
    whole = folder / "whole"
    whole.mkdir()
    start = time.perf_counter()
    attempt(client_states, whole, lambda: None)
    longest = time.perf_counter() - start
    total = 0
    for run in range(200):
        # On a busy machine the programs may end before most of their times come.
        if run >= 20 and total > 10:
            return
        run_folder = folder / str(run)
        run_folder.mkdir()
        kills = 0
        while not attempt(
            client_states, run_folder, lambda: None, rng.uniform(0, longest)
        ):
            kills += 1
        total += kills
        yield kills, run_folder


def main(folder, how, seed):
    client_states = import_without_tensorflow()
    expected = reference()
    runs = {"before_each_line": before_each_line, "at_random_times": at_random_times}
    report = {"kills": 0, "different": []}
    for kills, run_folder in runs[how](
        client_states, pathlib.Path(folder), random.Random(seed)
    ):
        report["kills"] += kills
        if json.loads((run_folder / "result.json").read_text()) != expected:
            report["different"].append(run_folder.name)
        shutil.rmtree(run_folder)
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
