"""Resident memory over many rounds, with a cohort that doubles on the way.

    python benchmarks/memory.py [--rounds 500] [--context local]

Federated averaging of logistic regression on clients of random sizes whose data are
handed over anew in every round, as a simulation does. The cohort of 10 clients doubles
at two and at four fifths of the rounds.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, execution, simulation

_CLASSES, _FEATURES, _CLIENTS = 62, 784, 200


def _resident_megabytes() -> float:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _train_data() -> simulation.ClientDatasets:
    random = np.random.default_rng(0)
    clients = {}
    for number in range(_CLIENTS):
        size = int(random.integers(10, 120))
        clients[str(number)] = (
            random.random((size, _FEATURES), np.float32),
            random.integers(0, _CLASSES, size).astype(np.int32),
        )
    return simulation.ClientDatasets.from_arrays(clients, batch_size=20)


def main() -> None:
    """Runs the rounds and prints the memory after every fiftieth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--context", choices=["local", "native"], default="local")
    options = parser.parse_args()
    if options.context == "local":
        execution.set_local_execution_context()
    else:
        execution.set_native_execution_context()
    train = _train_data()

    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            tf.keras.Sequential(
                [
                    tf.keras.layers.Input([_FEATURES]),
                    tf.keras.layers.Dense(_CLASSES),
                ]
            ),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=train.element_spec,
        )

    process = algorithms.build_fed_avg(model_fn, 0.1)
    state = process.initialize()
    random = np.random.default_rng(1)
    for round_number in range(options.rounds):
        done = round_number / options.rounds
        size = 10 * 2 ** ((done >= 0.4) + (done >= 0.8))
        cohort = random.choice(train.client_ids, size, replace=False)
        data = [train.training_data(str(k), round_number) for k in cohort]
        state = process.next(state, data).state
        if (round_number + 1) % 50 == 0:
            print(
                f"round {round_number + 1}, {size} clients: "
                f"{_resident_megabytes():.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
