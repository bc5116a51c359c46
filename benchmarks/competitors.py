"""What takes turns in `benchmarks/rounds.py`: each runs a round and returns its time.

A cohort's batches get to TFF in one of four forms:

    datasets  the same `tf.data.Dataset`s in every round, of equal clients
    driver    `simulation.run_training` over `ClientDatasets`
    lists     a script that shuffles arrays with NumPy and gives `next` lists of batches
    script    a script as of TFF's tutorials: `ClientData.preprocess` with a function
              that shuffles, batches and maps; the making of the datasets and `next`
"""

from __future__ import annotations

import collections
import os
import pathlib
import subprocess
import threading
import time
from typing import Any, NamedTuple

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import numpy as np
import populations
import tensorflow as tf
import tensorflow_federated as tff
from populations import Arrays, Work

from tff_drift import algorithms, simulation
from tff_drift.simulation import callbacks


class Seconds(NamedTuple):
    """The seconds of a round.

    Attributes:
      all: All of them.
      next_alone: Those in `process.next`, if there is more.
    """

    all: float
    next_alone: float | None = None


def _install(context: Any) -> Any:
    return tff.framework.get_context_stack().install(context)


class Datasets:
    """Rounds of equal clients, whose datasets are there before; states are kept."""

    def __init__(self, process: Any, work: Work, clients: Any, context: Any) -> None:
        self._process, self._context = process, context
        self._data = [
            tf.data.Dataset.from_tensor_slices(arrays).batch(work.batch_size)
            for arrays in clients
        ]
        with _install(context):
            self._state = process.initialize()
        self._client_states: list[Any] | None = None
        if hasattr(process, "initial_client_state"):
            self._client_states = [process.initial_client_state] * len(clients)

    def __call__(self) -> Seconds:
        """Runs a round."""
        data: list[Any] = self._data
        start = time.perf_counter()
        if self._client_states is not None:
            data = [
                {"examples": examples, "state": state, "index": index}
                for index, (examples, state) in enumerate(
                    zip(data, self._client_states, strict=True)
                )
            ]
        with _install(self._context):
            output = self._process.next(self._state, data)
        self._state = output.state
        if self._client_states is not None:
            collected = output.metrics[algorithms.CLIENT_STATES]
            for row, index in enumerate(collected["index"]):
                self._client_states[index] = tf.nest.map_structure(
                    lambda array, row=row: array[row], collected["state"]
                )
        return Seconds(time.perf_counter() - start)

    def close(self) -> None:
        """Does nothing."""


class Lists:
    """A script that gives `next` lists of arrays."""

    def __init__(self, process: Any, work: Work, clients: Any, context: Any) -> None:
        self._process, self._work = process, work
        self._clients, self._context = clients, context
        self._round = 0
        with _install(context):
            self._state = process.initialize()

    def __call__(self) -> Seconds:
        """Runs a round."""
        start = time.perf_counter()
        cohort = populations.cohort(self._work, self._round)
        random = np.random.default_rng((3, self._round))
        data = [self._batches(self._clients[number], random) for number in cohort]
        made = time.perf_counter()
        with _install(self._context):
            self._state = self._process.next(self._state, data).state
        self._round += 1
        end = time.perf_counter()
        return Seconds(end - start, end - made)

    def _batches(self, arrays: Arrays, random: np.random.Generator) -> list[Arrays]:
        size, batches = self._work.batch_size, []
        for _ in range(self._work.epochs):
            order = random.permutation(len(arrays[0]))
            x, y = (array[order] for array in arrays)
            starts = range(0, len(x), size)
            batches += [(x[k : k + size], y[k : k + size]) for k in starts]
        return batches

    def close(self) -> None:
        """Does nothing."""


class Script:
    """A script as of TFF's tutorials, over a `ClientData`."""

    def __init__(self, process: Any, work: Work, clients: Any, context: Any) -> None:
        self._process, self._work, self._context = process, work, context
        self._round = 0
        data = tff.simulation.datasets.TestClientData(
            {
                str(number): collections.OrderedDict(x=x, y=y)
                for number, (x, y) in enumerate(clients)
            }
        )

        def preprocess(dataset: tf.data.Dataset) -> tf.data.Dataset:
            return (
                dataset.shuffle(400)
                .repeat(work.epochs)
                .batch(work.batch_size)
                .map(lambda batch: (batch["x"], batch["y"]))
            )

        self._data = data.preprocess(preprocess)
        with _install(context):
            self._state = process.initialize()

    def __call__(self) -> Seconds:
        """Runs a round."""
        start = time.perf_counter()
        cohort = populations.cohort(self._work, self._round)
        data = [
            self._data.create_tf_dataset_for_client(str(number)) for number in cohort
        ]
        made = time.perf_counter()
        with _install(self._context):
            self._state = self._process.next(self._state, data).state
        self._round += 1
        end = time.perf_counter()
        return Seconds(end - start, end - made)

    def close(self) -> None:
        """Does nothing."""


class _StopAfterRounds(callbacks.Callback):
    """Holds a run after each round until the next is asked for."""

    def __init__(self) -> None:
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.ended = False
        self._run: callbacks.TrainingRun | None = None

    def before_training(self, run: callbacks.TrainingRun) -> None:
        self._run = run
        self.go.acquire()

    def after_row(self, row: Any) -> None:
        del row
        assert self._run is not None
        self.done.release()
        self.go.acquire()
        if self.ended:
            self._run.stop("the measurement is over")


class Driver:
    """Rounds of `simulation.run_training`."""

    def __init__(self, process: Any, work: Work, clients: Any, context: Any) -> None:
        self._stops = _StopAfterRounds()
        self._error: Exception | None = None
        train = simulation.ClientDatasets.from_arrays(
            {str(number): arrays for number, arrays in enumerate(clients)},
            batch_size=work.batch_size,
            epochs=work.epochs,
        )

        def loop() -> None:
            try:
                with _install(context):
                    simulation.run_training(
                        process,
                        train,
                        rounds=10**6,
                        sampling=lambda number: [
                            str(client) for client in populations.cohort(work, number)
                        ],
                        callbacks=[self._stops],
                    )
            except Exception as error:
                # Who waits for a round is to hear of it.
                self._error = error
                self._stops.done.release()

        self._thread = threading.Thread(target=loop, daemon=True)
        self._thread.start()

    def __call__(self) -> Seconds:
        """Runs a round."""
        start = time.perf_counter()
        self._stops.go.release()
        self._stops.done.acquire()
        if self._error is not None:
            raise self._error
        return Seconds(time.perf_counter() - start)

    def close(self) -> None:
        """Ends the run, with one round more."""
        self._stops.ended = True
        self._stops.go.release()
        self._thread.join()


class Peer:
    """Rounds of another framework, in a program of its own."""

    def __init__(self, python: str, framework: str, work_name: str) -> None:
        script = pathlib.Path(__file__).with_name("peers.py")
        self._program = subprocess.Popen(
            [python, str(script), framework, work_name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )

    def __call__(self) -> Seconds:
        """Runs a round."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write("round\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._program.args} ended: run it to see why.")
        return Seconds(float(answer))

    def close(self) -> None:
        """Ends the program."""
        self._program.communicate()


FORMS = {"datasets": Datasets, "driver": Driver, "lists": Lists, "script": Script}
