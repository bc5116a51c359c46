"""Seconds per training round, under TFF's native execution context and ours.

    python benchmarks/rounds.py [--rounds 5] [--only cnn_10,logistic_100]

Clients hold 100 random examples with the shapes of EMNIST, in batches of 20. The
two contexts take turns within one process, so that both meet the same load of the
machine, and the ratio of their medians is what counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, client_works, execution

_EXAMPLES, _BATCH_SIZE, _CLASSES = 100, 20, 62
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


WORKS = {
    "logistic_10": (_logistic_regression, 10),
    "logistic_100": (_logistic_regression, 100),
    "cnn_10": (_cnn, 10),
}


def _clients(cohort: int) -> list[tf.data.Dataset]:
    random = np.random.default_rng(0)
    return [
        tf.data.Dataset.from_tensor_slices(
            (
                random.random((_EXAMPLES, 28, 28, 1), np.float32),
                random.integers(0, _CLASSES, _EXAMPLES).astype(np.int32),
            )
        ).batch(_BATCH_SIZE)
        for _ in range(cohort)
    ]


def _model_fn(build: Callable[[Any], tf.keras.Model], dropout: Any, spec: Any) -> Any:
    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            build(dropout),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=spec,
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    return model_fn


def _stock_fed_avg(build: Any, spec: Any) -> tff.learning.templates.LearningProcess:
    return tff.learning.algorithms.build_weighted_fed_avg(
        _model_fn(build, tf.keras.layers.Dropout, spec),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    )


def _our_fed_avg(build: Any, spec: Any) -> tff.learning.templates.LearningProcess:
    return algorithms.build_fed_avg(_model_fn(build, client_works.Dropout, spec), 0.1)


ALGORITHMS = {"TFF's FedAvg": _stock_fed_avg, "build_fed_avg": _our_fed_avg}


def _measure(
    process: tff.learning.templates.LearningProcess,
    data: list[tf.data.Dataset],
    contexts: dict[str, Any],
    rounds: int,
) -> dict[str, float]:
    """Returns the median seconds of a round under each context."""
    stack = tff.framework.get_context_stack()
    states = {}
    for name, context in contexts.items():
        with stack.install(context):
            states[name] = process.initialize()
    seconds: dict[str, list[float]] = {name: [] for name in contexts}
    for _ in range(_WARM_UP_ROUNDS + rounds):
        for name, context in contexts.items():
            with stack.install(context):
                start = time.perf_counter()
                states[name] = process.next(states[name], data).state
                seconds[name].append(time.perf_counter() - start)
    return {
        name: statistics.median(values[_WARM_UP_ROUNDS:])
        for name, values in seconds.items()
    }


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(WORKS))
    options = parser.parse_args()
    processors = len(os.sched_getaffinity(0))
    contexts = {
        "native": execution.create_native_execution_context(),
        "local": execution.create_local_execution_context(),
    }
    print(
        f"{platform.processor() or platform.machine()}, {processors} processors, load "
        f"{os.getloadavg()[0]:.1f}, TensorFlow {tf.__version__}, medians of "
        f"{options.rounds} rounds in seconds"
    )
    print("| work | algorithm | native | local | local / native |")
    print("|---|---|---|---|---|")
    for name in options.only.split(","):
        build, cohort = WORKS[name]
        data = _clients(cohort)
        for title, build_process in ALGORITHMS.items():
            process = build_process(build, data[0].element_spec)
            seconds = _measure(process, data, contexts, options.rounds)
            native, local = seconds["native"], seconds["local"]
            print(
                f"| {name} | {title} | {native:.3f} | {local:.3f} "
                f"| {local / native:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
