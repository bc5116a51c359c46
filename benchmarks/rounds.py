"""Seconds per training round: TFF's native execution, ours, and other frameworks.

    python benchmarks/rounds.py [--rounds 5] [--only cnn_10,logistic_100]
        [--contexts native,local,gpu] [--fedjax PYTHON] [--pfl PYTHON]

Clients hold random examples: 100 with the shapes of EMNIST in batches of 20, or for the
LSTM 20 sequences of 80 characters in batches of 4. All take turns, round by round, so
that they meet the same load of the machine, and the ratios of their medians are what
counts. `gpu` is the local context with all computation on the GPUs of this machine. The
other frameworks run in environments of their own, given by their Python programs; see
`peers.py`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, execution, layers

_EXAMPLES, _BATCH_SIZE, _CLASSES = 100, 20, 62
_SEQUENCES, _LENGTH, _SEQUENCE_BATCH_SIZE, _VOCABULARY = 20, 80, 4, 90
_RATE = 0.1
# UGA diverges at larger ones.
_UGA_RATE = 0.01
_WARM_UP_ROUNDS = 2


def _logistic_regression(dropout: Any) -> tf.keras.Model:
    del dropout  # There is none in a linear model.
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
            tf.keras.layers.Dense(_CLASSES),
        ]
    )


def _cnn(dropout: Any) -> tf.keras.Model:
    """The 1.2 million parameters of Reddi et al. (2021)."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(64, 3, activation="relu"),
            tf.keras.layers.MaxPool2D(2),
            dropout(0.25),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            dropout(0.5),
            tf.keras.layers.Dense(_CLASSES),
        ]
    )


def _lstm(layer: Any) -> tf.keras.Model:
    """Two layers of 256 units on characters."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(_VOCABULARY, 8, input_length=_LENGTH),
            layer(256, return_sequences=True),
            layer(256, return_sequences=True),
            tf.keras.layers.Dense(_VOCABULARY),
        ]
    )


class Work(NamedTuple):
    """What a client trains.

    Attributes:
      peer_name: Its name for `peers.py`.
      build: Builds the model with a layer of Keras or with ours in its place.
      layers: Keras' layer, and ours.
      sequences: Whether clients hold sequences of characters.
    """

    peer_name: str
    build: Callable[[Any], tf.keras.Model]
    layers: tuple[Any, Any]
    sequences: bool = False


_DROPOUTS = (tf.keras.layers.Dropout, layers.Dropout)
_LOGISTIC = Work("logistic", _logistic_regression, _DROPOUTS)
WORKS = {
    "logistic_10": (_LOGISTIC, 10),
    "logistic_100": (_LOGISTIC, 100),
    "cnn_10": (Work("cnn", _cnn, _DROPOUTS), 10),
    "lstm_10": (
        Work("lstm", _lstm, (tf.keras.layers.LSTM, layers.LSTM), sequences=True),
        10,
    ),
    "logistic_1000": (_LOGISTIC, 1000),
}
_DEFAULT_WORKS = "logistic_10,logistic_100,cnn_10,lstm_10"


def _clients(work: Work, cohort: int) -> list[tf.data.Dataset]:
    random = np.random.default_rng(0)

    def client() -> tf.data.Dataset:
        if work.sequences:
            tokens = random.integers(1, 86, (_SEQUENCES, _LENGTH)).astype(np.int32)
            return tf.data.Dataset.from_tensor_slices((tokens, tokens)).batch(
                _SEQUENCE_BATCH_SIZE
            )
        features = random.random((_EXAMPLES, 28, 28, 1), np.float32)
        labels = random.integers(0, _CLASSES, _EXAMPLES).astype(np.int32)
        return tf.data.Dataset.from_tensor_slices((features, labels)).batch(_BATCH_SIZE)

    return [client() for _ in range(cohort)]


def _model_fn(work: Work, spec: Any, *, ours: bool) -> Any:
    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            work.build(work.layers[ours]),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=spec,
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    return model_fn


def _stock_fed_avg(work: Work, spec: Any) -> tff.learning.templates.LearningProcess:
    return tff.learning.algorithms.build_weighted_fed_avg(
        _model_fn(work, spec, ours=False),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(_RATE),
    )


def _our_fed_avg(work: Work, spec: Any) -> tff.learning.templates.LearningProcess:
    return algorithms.build_fed_avg(_model_fn(work, spec, ours=True), _RATE)


def _scaffold(work: Work, spec: Any) -> tff.learning.templates.LearningProcess:
    return algorithms.build_scaffold(_model_fn(work, spec, ours=True), _RATE, 1000)


def _adabest(work: Work, spec: Any) -> tff.learning.templates.LearningProcess:
    return algorithms.build_adabest(_model_fn(work, spec, ours=True), _RATE)


def _fed_dyn(work: Work, spec: Any) -> tff.learning.templates.LearningProcess:
    return algorithms.build_fed_dyn(_model_fn(work, spec, ours=True), _RATE, 1000)


def _uga(work: Work, spec: Any) -> tff.learning.templates.LearningProcess:
    # A client's five batches as five epochs of one: four traced steps.
    return algorithms.build_uga(
        _model_fn(work, spec, ours=True), _UGA_RATE, _UGA_RATE, local_epochs=5
    )


ALGORITHMS = {
    "TFF's FedAvg": _stock_fed_avg,
    "build_fed_avg": _our_fed_avg,
    "build_scaffold": _scaffold,
    "build_fed_dyn": _fed_dyn,
    "build_adabest": _adabest,
    "build_uga": _uga,
}


class _Rounds:
    """Rounds of a process under a context, the clients' memory kept."""

    def __init__(self, process: Any, data: list[tf.data.Dataset], context: Any) -> None:
        self._process, self._data, self._context = process, data, context
        with self._installed():
            self._state = process.initialize()
        self._memories: list[Any] | None = None
        if hasattr(process, "initial_client_state"):
            self._memories = [process.initial_client_state] * len(data)

    def _installed(self) -> Any:
        return tff.framework.get_context_stack().install(self._context)

    def __call__(self) -> float:
        """Runs a round; returns its seconds."""
        data: list[Any] = self._data
        start = time.perf_counter()
        if self._memories is not None:
            data = [
                {"examples": examples, "state": memory, "index": index}
                for index, (examples, memory) in enumerate(zip(data, self._memories))
            ]
        with self._installed():
            output = self._process.next(self._state, data)
        self._state = output.state
        if self._memories is not None:
            states = output.metrics[algorithms.CLIENT_STATES]
            for row, index in enumerate(states["index"]):
                self._memories[index] = tf.nest.map_structure(
                    lambda array, row=row: array[row], states["state"]
                )
        return time.perf_counter() - start


class _Peer:
    """Rounds of another framework, in a program of its own."""

    def __init__(self, python: str, framework: str, work: Work, cohort: int) -> None:
        script = pathlib.Path(__file__).with_name("peers.py")
        self._program = subprocess.Popen(
            [python, str(script), framework, work.peer_name, str(cohort)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )

    def __call__(self) -> float:
        """Runs a round; returns its seconds."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write("round\n")
        self._program.stdin.flush()
        return float(self._program.stdout.readline())

    def close(self) -> None:
        """Ends the program."""
        self._program.communicate()


def _medians(
    competitors: dict[str, Callable[[], float]], rounds: int
) -> dict[str, float]:
    """Lets the competitors run rounds in turn; returns the medians of seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(_WARM_UP_ROUNDS + rounds):
        for name, run in competitors.items():
            seconds[name].append(run())
    return {
        name: statistics.median(values[_WARM_UP_ROUNDS:])
        for name, values in seconds.items()
    }


def _measure(name: str, options: argparse.Namespace, contexts: dict[str, Any]) -> None:
    """Measures a work and prints its rows."""
    work, cohort = WORKS[name]
    data = _clients(work, cohort)
    competitors: dict[str, Any] = {
        f"{title}, {context_name}": _Rounds(
            build(work, data[0].element_spec), data, context
        )
        for title, build in ALGORITHMS.items()
        if title in options.algorithms.split(",")
        for context_name, context in contexts.items()
    }
    peers = {
        framework: _Peer(getattr(options, framework), framework, work, cohort)
        for framework in ("fedjax", "pfl")
        if getattr(options, framework)
    }
    medians = _medians({**competitors, **peers}, options.rounds)
    for peer in peers.values():
        peer.close()
    ours = medians.get("build_fed_avg, local")
    for title, seconds in medians.items():
        ratio = "" if ours is None else f"{ours / seconds:.2f}"
        print(f"| {name} | {title} | {seconds:.4f} | {ratio} |", flush=True)


def _create_gpu_context() -> Any:
    """The local context with everything but the datasets on GPUs."""
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    if not gpus:
        raise SystemExit("TensorFlow sees no GPU here: leave 'gpu' out of --contexts.")
    return execution.create_local_execution_context(
        server_device=gpus[0], client_devices=gpus
    )


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=_DEFAULT_WORKS)
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--contexts", default="native,local")
    parser.add_argument("--fedjax", help="a Python program that has FedJAX")
    parser.add_argument("--pfl", help="a Python program that has pfl")
    options = parser.parse_args()
    create = {
        "native": execution.create_native_execution_context,
        "local": execution.create_local_execution_context,
        "gpu": _create_gpu_context,
    }
    contexts = {name: create[name]() for name in options.contexts.split(",")}
    print(
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}, "
        f"TensorFlow {tf.__version__}, medians of {options.rounds} rounds in seconds"
    )
    print("| work | what | seconds | build_fed_avg, local / this |")
    print("|---|---|---|---|")
    for name in options.only.split(","):
        _measure(name, options, contexts)


if __name__ == "__main__":
    main()
