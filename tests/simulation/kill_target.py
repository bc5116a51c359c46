"""A program that trains into a folder; `test_kill.py` kills it."""

import argparse
import functools
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from tests import models
from tff_drift import (
    algorithms,
    client_states,
    execution,
    layers,
    simulation,
)
from tff_drift.simulation import callbacks

KILLS = int(os.environ.get("TFF_DRIFT_KILLS", "1"))
# A checkpoint and an evaluation come round in those of each kill.
ROUNDS = 5 + 9 * KILLS
CLIENTS = {
    f"client_{index}": client
    for index, client in enumerate(models.client_arrays([5, 8, 11, 14, 6, 9], seed=2))
}


def model_fn():
    """With dropout, whose masks a resumed run must draw again."""
    return models.from_keras(models.keras_softmax_regression(layers.Dropout(0.3)))


@functools.cache
def build(algorithm):
    if algorithm == "scaffold":
        return algorithms.build_scaffold(model_fn, 0.1, len(CLIENTS))
    return algorithms.build_fed_adam(model_fn, 0.1, 0.05)


def train(output_dir, algorithm):
    """Trains, or goes on, under the execution context that there is."""
    train = simulation.ClientDatasets.from_arrays(CLIENTS, batch_size=4, seed=6)
    process, store = build(algorithm), None
    if algorithm == "scaffold":
        store = client_states.DiskClientStates(
            pathlib.Path(output_dir) / "client_states", process.initial_client_state
        )
    try:
        simulation.run_training(
            process,
            train,
            rounds=ROUNDS,
            cohort_size=3,
            seed=4,
            client_states=store,
            callbacks=[
                callbacks.PeriodicEvaluation(
                    simulation.build_evaluation(model_fn, train),
                    rounds_per_evaluation=4,
                ),
                callbacks.TensorBoard(),
            ],
            output_dir=simulation.OutputDir(
                output_dir,
                rounds_per_checkpoint=3,
                configuration={"algorithm": algorithm},
            ),
        )
    finally:
        if store is not None:
            store.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output_dir")
    parser.add_argument("algorithm", choices=["fed_adam", "scaffold"])
    arguments = parser.parse_args()
    execution.set_native_execution_context()
    train(arguments.output_dir, arguments.algorithm)


if __name__ == "__main__":
    main()
