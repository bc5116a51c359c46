"""A small federated training that faults are done to.

    python -m tests.reliability.program FOLDER METHOD ram|disk

Linear regression with three weights, on six clients, in rounds of milliseconds: what is
tried is the training loop, the files and the store, and those are the real ones. With
`--native` the rounds run in TFF's worker.
"""

import argparse
import collections
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, client_states, execution, simulation
from tff_drift.simulation import callbacks

ROUNDS = 24
NUM_CLIENTS = 6
COHORT = 3
ROUNDS_PER_CHECKPOINT = 2
WEIGHTS = 3
CLIENT_STATES = "client_states"

WITH_CLIENT_STATES = {
    "scaffold": lambda model: algorithms.build_scaffold(model, 0.1, NUM_CLIENTS),
    "scaffold_m": lambda model: algorithms.build_scaffold_m(model, 0.1, NUM_CLIENTS),
    "fed_dyn": lambda model: algorithms.build_fed_dyn(model, 0.1, NUM_CLIENTS, mu=0.1),
    "adabest": lambda model: algorithms.build_adabest(model, 0.1),
}
WITHOUT = {
    "fed_avg": lambda model: algorithms.build_fed_avg(model, 0.1),
    "fed_avgm": lambda model: algorithms.build_fed_avgm(model, 0.1),
    "fed_adam": lambda model: algorithms.build_fed_adam(model, 0.1, 0.05),
}
METHODS = {**WITH_CLIENT_STATES, **WITHOUT}


def linear_regression():
    @tf.function
    def predict(weights, features, training=True):
        del training
        return tf.linalg.matvec(features, weights[0][0])

    @tf.function
    def loss(output, label, sample_weight=None):
        del sample_weight
        return tf.reduce_mean((output - label) ** 2) / 2

    @tf.function
    def no_examples():
        return collections.OrderedDict(num_examples=tf.zeros([], tf.int64))

    @tf.function
    def count(state, labels, batch_output, sample_weight=None):
        del batch_output, sample_weight
        seen = tf.shape(labels, tf.int64)[0]
        return collections.OrderedDict(num_examples=state["num_examples"] + seen)

    @tf.function
    def counted(state):
        return state

    return tff.learning.models.FunctionalModel(
        initial_weights=((np.ones(WEIGHTS, np.float32),), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        metrics_fns=(no_examples, count, counted),
        input_spec=(
            tf.TensorSpec([None, WEIGHTS], tf.float32),
            tf.TensorSpec([None], tf.float32),
        ),
    )


def client_datasets():
    """Six clients of three to eight examples, in shuffled batches of two."""
    random = np.random.default_rng(3)
    clients = {
        f"client_{index}": (
            random.normal(size=(3 + index, WEIGHTS)).astype(np.float32),
            random.normal(size=3 + index).astype(np.float32),
        )
        for index in range(NUM_CLIENTS)
    }
    return simulation.ClientDatasets.from_arrays(clients, batch_size=2, seed=5)


def build(method):
    return METHODS[method](linear_regression())


class CallAfterRows(callbacks.Callback):
    """Calls a function after every row that is kept."""

    def __init__(self, function):
        self._function = function

    def after_row(self, row):
        self._function(row)


def train(process, store, folder, after_row=lambda row: None, rounds=ROUNDS):
    """Trains, or goes on, as a user's program would, and minds signals."""
    folder = pathlib.Path(folder)
    states = None
    if store == "disk":
        states = client_states.DiskClientStates(
            folder / CLIENT_STATES, process.initial_client_state
        )
    try:
        return simulation.run_training(
            process,
            client_datasets(),
            rounds=rounds,
            cohort_size=COHORT,
            seed=4,
            client_states=states,
            callbacks=[
                callbacks.Progress(False),
                callbacks.SoftInterrupt(),
                CallAfterRows(after_row),
            ],
            output_dir=simulation.OutputDir(folder, ROUNDS_PER_CHECKPOINT),
        )
    finally:
        if states is not None:
            states.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("store", choices=["ram", "disk"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--native", action="store_true")
    arguments = parser.parse_args()
    if arguments.native:
        execution.set_native_execution_context()
    else:
        execution.set_local_execution_context()

    def tell(row):
        print("round", row["round"], flush=True)

    train(
        build(arguments.method),
        arguments.store,
        arguments.folder,
        tell,
        arguments.rounds,
    )
    print("finished", flush=True)


if __name__ == "__main__":
    sys.exit(main())
