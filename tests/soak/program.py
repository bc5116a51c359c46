"""A small federated training that faults are done to.

    python -m tests.soak.program FOLDER METHOD ram|disk|evaluation|mlflow

Linear regression with three weights, on six clients, in rounds of milliseconds: what is
tried is the training loop, the files and the store, and those are the real ones. With
`--native` the rounds run in TFF's worker, with `--ray` on two actors of a cluster.
"""

import argparse
import collections
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
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
EXPORT = "model.keras"
# What a run keeps: client states in RAM or on disk; with those in RAM, its evaluations
# and its exported model; or its rows in MLflow.
STORES = ("ram", "disk", "evaluation", "mlflow")

WITH_CLIENT_STATES = {
    "scaffold": lambda model: algorithms.build_scaffold(model, 0.1, NUM_CLIENTS),
    "scaffold_m": lambda model: algorithms.build_scaffold_m(model, 0.1, NUM_CLIENTS),
    "scaffold_momentum": lambda model: algorithms.build_scaffold_momentum(
        model, 0.1, NUM_CLIENTS
    ),
    "fed_dyn": lambda model: algorithms.build_fed_dyn(model, 0.1, NUM_CLIENTS, mu=0.1),
    "adabest": lambda model: algorithms.build_adabest(model, 0.1),
    "fed_dc": lambda model: algorithms.build_fed_dc(model, 0.1),
    "scaffnew": lambda model: algorithms.build_scaffnew(model, 0.1, NUM_CLIENTS),
}
WITHOUT = {
    "fed_avg": lambda model: algorithms.build_fed_avg(model, 0.1),
    "fed_avgm": lambda model: algorithms.build_fed_avgm(model, 0.1),
    "fed_adam": lambda model: algorithms.build_fed_adam(model, 0.1, 0.05),
    "fed_nova": lambda model: algorithms.build_fed_nova(model, 0.1),
    "fed_exp": lambda model: algorithms.build_fed_exp(model, 0.1),
    "fed_cm": lambda model: algorithms.build_fed_cm(model, 0.1),
    "mime": lambda model: algorithms.build_mime(model, _momentum()),
    "mime_lite": lambda model: algorithms.build_mime_lite(model, _momentum()),
}
METHODS = {**WITH_CLIENT_STATES, **WITHOUT}
# Whose rounds have all clients.
OF_ALL_CLIENTS = frozenset({"scaffnew"})


def _momentum():
    return tff.learning.optimizers.build_sgdm(0.1, 0.9)


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


def _evaluate(weights):
    """The mean squared error on all clients, in NumPy: of the bits of the weights."""
    train = client_datasets()
    errors = [
        np.asarray(batch[0]) @ np.asarray(weights.trainable[0]) - np.asarray(batch[1])
        for client_id in train.client_ids
        for batch in train.training_batches(client_id, 0)
    ]
    return {"loss": float(np.mean(np.concatenate(errors) ** 2))}


def _export(weights, folder):
    """Saves the model as docs/getting_started.md does."""
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(1, use_bias=False, input_shape=(WEIGHTS,))]
    )
    model.set_weights([np.reshape(weights.trainable[0], [WEIGHTS, 1])])
    model.save(folder / EXPORT)


def tracked(folder):
    """The store of MLflow of a run: not in its folder, which is for the run alone."""
    return folder.with_name(f"{folder.name}.mlflow.db")


def _more_callbacks(store, folder):
    if store == "evaluation":
        return [
            callbacks.PeriodicEvaluation(_evaluate, rounds_per_evaluation=2),
            callbacks.FinalEvaluation(_evaluate),
        ]
    if store == "mlflow":
        return [callbacks.MLflowTracker(tracking_uri=f"sqlite:///{tracked(folder)}")]
    return []


def train(method, process, store, folder, after_row=lambda row: None, rounds=ROUNDS):
    """Trains, or goes on, as a user's program would, and minds signals."""
    folder = pathlib.Path(folder)
    states = None
    if store == "disk":
        states = client_states.DiskClientStates(
            folder / CLIENT_STATES, process.initial_client_state
        )
    try:
        result = simulation.run_training(
            process,
            client_datasets(),
            rounds=rounds,
            cohort_size=NUM_CLIENTS if method in OF_ALL_CLIENTS else COHORT,
            seed=4,
            client_states=states,
            callbacks=[
                callbacks.Progress(False),
                callbacks.SoftInterrupt(),
                *_more_callbacks(store, folder),
                CallAfterRows(after_row),
            ],
            output_dir=simulation.OutputDir(folder, ROUNDS_PER_CHECKPOINT),
        )
        if store == "evaluation":
            _export(result.model_weights, folder)
        return result
    finally:
        if states is not None:
            states.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("store", choices=STORES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--ray", metavar="ADDRESS")
    arguments = parser.parse_args()
    if arguments.native:
        execution.set_native_execution_context()
    elif arguments.ray:
        execution.set_ray_execution_context(
            address=arguments.ray, num_actors=2, processors=1
        )
    else:
        execution.set_local_execution_context()

    def tell(row):
        print("round", row["round"], flush=True)

    train(
        arguments.method,
        build(arguments.method),
        arguments.store,
        arguments.folder,
        tell,
        arguments.rounds,
    )
    print("finished", flush=True)


if __name__ == "__main__":
    sys.exit(main())
