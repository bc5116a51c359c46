"""What a program does before its first number, in processor time.

    python benchmarks/first_seconds.py [--fedjax=PYTHON] [--repetitions=3]

Each subject runs in processes of its own, one after another and in turns: the imports,
the first build of a learning process for a net of three dense layers, a second build of
the same, the first round of five clients, and then build and first round of another
method. The subjects are builders of this library and TFF's own under the local context,
and FedJAX, if `--fedjax` names the Python of an environment that has it; FedJAX builds
nothing beforehand, and compiles in its first round.

The medians are printed as a table, in seconds of processor time, which other work on
the machine hardly changes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CLIENTS, COHORT, EXAMPLES, FEATURES, CLASSES, BATCH = 20, 5, 30, 20, 10, 10
UNITS, RATE = 50, 0.1
COLUMNS = (
    "import",
    "first build",
    "second build",
    "first round",
    "another method",
    "its first round",
)
SUBJECTS = ("build_fed_avg", "build_scaffold", "TFF's builder", "FedJAX")


def _examples() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    return {
        f"client {number}": (
            random.random([EXAMPLES, FEATURES], np.float32),
            random.integers(CLASSES, size=EXAMPLES, dtype=np.int32),
        )
        for number in range(CLIENTS)
    }


class _Clock:
    """Notes the processor time since the last note, under the name of a column."""

    def __init__(self) -> None:
        # Python's own start is no part of it.
        self._last = time.process_time()
        self.seconds: dict[str, float] = {}

    def note(self, column: str) -> None:
        now = time.process_time()
        self.seconds[column] = now - self._last
        self._last = now


def _measure_tff(subject: str) -> dict[str, float]:
    """Measures a builder of this library, or TFF's own."""
    clock = _Clock()
    # Before TensorFlow, as in the README: then no garbage is collected meanwhile.
    from tff_drift import algorithms, execution, simulation  # isort: skip
    import tensorflow as tf
    import tensorflow_federated as tff

    execution.set_local_execution_context()
    clock.note("import")
    train = simulation.ClientDatasets.from_arrays(_examples(), batch_size=BATCH)

    def model_fn() -> tff.learning.models.VariableModel:
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Dense(UNITS, activation="relu", input_shape=[FEATURES]),
                layers.Dense(UNITS, activation="relu"),
                layers.Dense(CLASSES),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return tff.learning.models.from_keras_model(model, loss, train.element_spec)

    theirs = tff.learning.algorithms
    sgd = tff.learning.optimizers.build_sgdm
    build: dict[str, Callable[[], Any]] = {
        "build_fed_avg": lambda: algorithms.build_fed_avg(model_fn, RATE),
        "build_scaffold": lambda: algorithms.build_scaffold(model_fn, RATE, CLIENTS),
        "TFF's builder": lambda: theirs.build_weighted_fed_avg(model_fn, sgd(RATE)),
    }
    another = {
        "build_fed_avg": lambda: algorithms.build_fed_prox(model_fn, RATE, mu=0.1),
        "build_scaffold": lambda: algorithms.build_fed_dyn(
            model_fn, RATE, CLIENTS, mu=0.1
        ),
        "TFF's builder": lambda: theirs.build_weighted_fed_prox(
            model_fn, 0.1, sgd(RATE)
        ),
    }

    def first_round(process: Any) -> None:
        simulation.run_training(process, train, rounds=1, cohort_size=COHORT, seed=0)

    build[subject]()
    clock.note("first build")
    process = build[subject]()
    clock.note("second build")
    first_round(process)
    clock.note("first round")
    process = another[subject]()
    clock.note("another method")
    first_round(process)
    clock.note("its first round")
    return clock.seconds


def _measure_fedjax() -> dict[str, float]:
    """Measures FedJAX's federated averaging, and its FedAdam as another method."""
    clock = _Clock()
    import jax

    # FedJAX 0.0.17 calls names that JAX has dropped.
    jax.tree_map, jax.tree_leaves = jax.tree_util.tree_map, jax.tree_util.tree_leaves
    jax.numpy.NINF = -jax.numpy.inf
    import fedjax
    import haiku

    clock.note("import")

    def forward(batch: Any) -> Any:
        net = haiku.nets.MLP([UNITS, UNITS, CLASSES])
        return net(batch["x"])

    transformed = haiku.transform(forward)
    shapes = {"x": np.zeros([1, FEATURES], np.float32), "y": np.zeros([1], np.int32)}
    model = fedjax.create_model_from_haiku(
        transformed,
        shapes,
        lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(
            batch["y"], logits
        ),
    )
    clients = [
        (name.encode(), fedjax.ClientDataset({"x": x, "y": y}), jax.random.PRNGKey(i))
        for i, (name, (x, y)) in enumerate(_examples().items())
    ]

    def build(server: Any) -> Any:
        return fedjax.algorithms.fed_avg.federated_averaging(
            fedjax.model_grad(model),
            fedjax.optimizers.sgd(RATE),
            server,
            fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1, seed=0),
        )

    def first_round(algorithm: Any) -> None:
        state = algorithm.init(model.init(jax.random.PRNGKey(0)))
        state, _ = algorithm.apply(state, clients[:COHORT])
        jax.block_until_ready(state)

    build(fedjax.optimizers.sgd(1.0))
    clock.note("first build")
    algorithm = build(fedjax.optimizers.sgd(1.0))
    clock.note("second build")
    first_round(algorithm)
    clock.note("first round")
    algorithm = build(fedjax.optimizers.adam(0.01))
    clock.note("another method")
    first_round(algorithm)
    clock.note("its first round")
    return clock.seconds


def _run(python: str, subject: str) -> dict[str, float]:
    """Returns what a program of its own measured."""
    done = subprocess.run(
        [python, __file__, f"--measure={subject}"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    """Measures, and prints the medians.

    Args:
      arguments: Those of the command line, by default the program's.

    Returns:
      The seconds of each column by subject.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--fedjax", help="the Python of an environment with FedJAX")
    parser.add_argument("--measure", help=argparse.SUPPRESS, choices=SUBJECTS)
    options = parser.parse_args(arguments)
    if options.measure:
        fedjax = options.measure == "FedJAX"
        print(
            json.dumps(_measure_fedjax() if fedjax else _measure_tff(options.measure))
        )
        return {}
    pythons = {subject: sys.executable for subject in SUBJECTS if subject != "FedJAX"}
    if options.fedjax:
        pythons["FedJAX"] = options.fedjax
    measured: dict[str, list[dict[str, float]]] = {each: [] for each in pythons}
    for _, (subject, python) in itertools.product(
        range(options.repetitions), pythons.items()
    ):
        measured[subject].append(_run(python, subject))
    medians = {
        subject: {
            column: statistics.median(run[column] for run in runs) for column in COLUMNS
        }
        for subject, runs in measured.items()
    }
    print(f"| processor seconds | {' | '.join(COLUMNS)} |")
    print(f"|---|{'--:|' * len(COLUMNS)}")
    for subject, row in medians.items():
        cells = " | ".join(f"{row[column]:.2f}" for column in COLUMNS)
        print(f"| {subject} | {cells} |")
    return medians


if __name__ == "__main__":
    main()
