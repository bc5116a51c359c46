"""The time of a round of a model of Keras 3, and of the same model of Keras 2.

    python benchmarks/keras3.py [--rounds 21] [--models dense,batch_norm,convolution]

On Python 3.12 or 3.13, under the local context, on random images of EMNIST's shape. The
two take turns, round by round, on the same clients and from the same weights; who goes
first changes from round to round. The ratios of their medians are what counts; that of
the processor's time hears less of other programs.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import keras
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, execution, models, system

_CLIENTS, _EXAMPLES, _BATCH, _CLASSES, _RATE = 20, 60, 20, 62, 0.05
_WARM_UP_ROUNDS = 3


def _dense(k: Any) -> list[Any]:
    layers = k.layers
    hidden = [layers.Dense(100, "relu"), layers.Dense(100, "relu")]
    return [layers.Flatten(), *hidden, layers.Dense(_CLASSES)]


def _batch_norm(k: Any) -> list[Any]:
    layers = k.layers
    hidden = [layers.Dense(100), layers.BatchNormalization(), layers.ReLU()]
    return [layers.Flatten(), *hidden, *_dense(k)[2:]]


def _convolution(k: Any) -> list[Any]:
    layers = k.layers
    hidden = [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D()]
    return [*hidden, layers.Conv2D(32, 3, activation="relu"), *_dense(k)]


_MODELS = {"dense": _dense, "batch_norm": _batch_norm, "convolution": _convolution}
_BUILDERS: dict[str, Callable[..., Any]] = {
    "FedAvg": lambda model_fn: algorithms.build_fed_avg(model_fn, _RATE),
    "SCAFFOLD": lambda model_fn: algorithms.build_scaffold(model_fn, _RATE, _CLIENTS),
}


def _datasets() -> list[tf.data.Dataset]:
    random = np.random.default_rng(1)
    return [
        tf.data.Dataset.from_tensor_slices(
            (
                random.random([_EXAMPLES, 28, 28, 1], np.float32),
                random.integers(0, _CLASSES, _EXAMPLES, np.int32),
            )
        ).batch(_BATCH)
        for _ in range(_CLIENTS)
    ]


def _keras_model(k: Any, make: Callable[[Any], list[Any]]) -> Any:
    return k.Sequential([k.layers.Input([28, 28, 1]), *make(k)])


def _model_fns(make: Callable[[Any], list[Any]], spec: Any) -> dict[str, Any]:
    keras3 = _keras_model(keras, make)

    def of_keras2() -> Any:
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metrics = [tf.keras.metrics.SparseCategoricalAccuracy("accuracy")]
        return tff.learning.models.from_keras_model(
            _keras_model(tf.keras, make), loss, spec, metrics=metrics
        )

    def of_keras3() -> Any:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        metrics = [keras.metrics.SparseCategoricalAccuracy("accuracy")]
        return models.from_keras3(keras3, loss, spec, metrics)

    return {"Keras 2": of_keras2, "Keras 3": of_keras3}


class _Rounds:
    """Rounds of all clients, one after the other; a call runs and times one."""

    def __init__(self, process: Any, datasets: list[Any], weights: Any = None) -> None:
        self._process, self._datasets = process, datasets
        self._state = process.initialize()
        if weights is not None:
            self._state = process.set_model_weights(self._state, weights)
        self._kept = [getattr(process, "initial_client_state", None)] * len(datasets)

    @property
    def weights(self) -> Any:
        return self._process.get_model_weights(self._state)

    def __call__(self) -> tuple[float, float]:
        data: list[Any] = self._datasets
        if self._kept[0] is not None:
            data = [
                collections.OrderedDict(
                    examples=examples, state=kept, index=np.int32(index)
                )
                for index, (examples, kept) in enumerate(
                    zip(data, self._kept, strict=True)
                )
            ]
        start = time.perf_counter(), time.process_time()
        output = self._process.next(self._state, data)
        end = time.perf_counter(), time.process_time()
        self._state = output.state
        if self._kept[0] is not None:
            collected = output.metrics["client_states"]
            for row, index in enumerate(collected["index"]):
                self._kept[index] = tf.nest.map_structure(
                    lambda stacked, row=row: stacked[row], collected["state"]
                )
        return end[0] - start[0], end[1] - start[1]


def _measure(model: str, method: str, rounds: int) -> None:
    datasets = _datasets()
    model_fns = _model_fns(_MODELS[model], datasets[0].element_spec)
    runs: dict[str, _Rounds] = {}
    for name, model_fn in reversed(model_fns.items()):
        weights = next(iter(runs.values())).weights if runs else None
        runs[name] = _Rounds(_BUILDERS[method](model_fn), datasets, weights)
    taken = collections.defaultdict(list)
    order = list(runs)
    for _ in range(_WARM_UP_ROUNDS + rounds):
        for name in order:
            taken[name].append(runs[name]())
        order.reverse()
    leaves = [tf.nest.flatten(run.weights) for run in runs.values()]
    equal = all(np.array_equal(*pair) for pair in zip(*leaves, strict=True))
    medians = [
        [
            statistics.median(each)
            for each in zip(*taken[name][_WARM_UP_ROUNDS:], strict=True)
        ]
        for name in model_fns
    ]
    (wall2, processor2), (wall3, processor3) = medians
    print(
        f"| {model} | {method} | {wall2:.4f} | {wall3:.4f} | {wall3 / wall2:.2f} "
        f"| {processor2:.4f} | {processor3:.4f} | {processor3 / processor2:.2f} "
        f"| {'yes' if equal else 'no'} |",
        flush=True,
    )


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--models", default=",".join(_MODELS))
    options = parser.parse_args()
    if not keras.__version__.startswith("3."):
        raise SystemExit("Keras 3 comes with Python 3.12 and 3.13.")
    execution.set_local_execution_context()
    print(
        f"{datetime.date.today()}, {system.processors()} processors, load "
        f"{os.getloadavg()[0]:.1f}, TensorFlow {tf.__version__}, Keras "
        f"{keras.__version__}, medians of {options.rounds} rounds in seconds"
    )
    print(
        "| model | method | Keras 2 | Keras 3 | 3 / 2 | Keras 2, processor | Keras 3, "
        "processor | 3 / 2 | equal weights |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|---|")
    for model in options.models.split(","):
        for method in _BUILDERS:
            _measure(model, method, options.rounds)


if __name__ == "__main__":
    main()
