"""A learning process in NumPy, to test the driver without compiling anything."""

import collections
import pathlib
import resource
import types

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import compat
from tff_drift.simulation import ClientDatasets

NUM_FEATURES = 2
NUM_CLIENTS = 6


class _Computation:
    """A Python function with the type signature of a TFF computation."""

    def __init__(self, function, result_type):
        self._function = function
        self.type_signature = types.SimpleNamespace(result=result_type)

    def __call__(self, *arguments):
        return self._function(*arguments)


class AveragingProcess:
    """Moves the weights towards the mean of the cohort's features.

    The initial weights are drawn anew at every call of `initialize`, as an
    unseeded initializer would. Every round's cohort can be seen in `cohorts`.
    """

    def __init__(self, learning_rate=0.5, accuracies=None, num_features=NUM_FEATURES):
        self.learning_rate = learning_rate
        self.num_features = num_features
        self.accuracies = accuracies or {}
        self.rounds_run = []
        self.before_round = lambda round_number: None
        weights_type = compat.to_type(
            tff.learning.models.ModelWeights(
                trainable=[(np.float32, [num_features])],
                non_trainable=[(np.int64, [])],
            )
        )
        self.get_model_weights = _Computation(
            lambda state: state.global_model_weights, weights_type
        )

    def initialize(self):
        weights = np.random.default_rng().normal(size=self.num_features)
        return tff.learning.templates.LearningAlgorithmState(
            global_model_weights=tff.learning.models.ModelWeights(
                [weights.astype(np.float32)], [np.int64(0)]
            ),
            distributor=(),
            client_work=collections.OrderedDict(rate=np.float32(self.learning_rate)),
            aggregator=collections.OrderedDict(
                value_sum_process=(), weight_sum_process=()
            ),
            finalizer=(),
        )

    def get_hparams(self, state):
        return collections.OrderedDict(
            client_work=collections.OrderedDict(rate=state.client_work["rate"]),
            finalizer=collections.OrderedDict(),
        )

    def next(self, state, client_data):
        [weights], [round_number] = state.global_model_weights
        self.before_round(int(round_number))
        self.rounds_run.append(int(round_number) + 1)
        # TFF's processes take lists of batches as well as datasets.
        lists = [
            data if isinstance(data, list) else list(data.as_numpy_iterator())
            for data in client_data
        ]
        batches = [x for batches in lists for x, _ in batches]
        examples = np.concatenate(batches)
        # The order of the batches shows in the result, as in real training.
        for batch in batches:
            step = weights - batch.mean(axis=0)
            weights = weights - state.client_work["rate"] * step
        train = collections.OrderedDict(
            accuracy=np.float32(self.accuracies.get(int(round_number) + 1, 0.5)),
            loss=np.float32(np.mean((examples - weights) ** 2)),
            num_examples=np.int64(len(examples)),
        )
        metrics = collections.OrderedDict(
            distributor=(),
            client_work=collections.OrderedDict(train=train),
            aggregator=collections.OrderedDict(clipping_norm=np.float32(0.1)),
            finalizer=collections.OrderedDict(),
        )
        new_weights = tff.learning.models.ModelWeights(
            [weights], [np.int64(round_number + 1)]
        )
        new_state = tff.learning.templates.LearningAlgorithmState(
            new_weights,
            state.distributor,
            state.client_work,
            state.aggregator,
            state.finalizer,
        )
        return tff.learning.templates.LearningProcessOutput(new_state, metrics)


def client_datasets(num_clients=NUM_CLIENTS, **options):
    """Clients of 3, 4, 5, ... examples."""
    random = np.random.default_rng(3)
    clients = {
        f"client_{index}": (
            random.normal(size=(3 + index, NUM_FEATURES)).astype(np.float32),
            random.integers(0, 2, 3 + index).astype(np.int32),
        )
        for index in range(num_clients)
    }
    return ClientDatasets.from_arrays(clients, **{"batch_size": 2, **options})


def resident_bytes():
    """The memory that this process holds."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def weight_bytes(model_weights):
    """The bits of a model's weights, to compare two runs."""
    return [np.asarray(leaf).tobytes() for leaf in tf.nest.flatten(model_weights)]


def labelled_clients(sizes):
    """Arrays by client: client k has the labels 1000 k, 1000 k + 1, ... ."""
    return {
        f"client_{k}": (
            np.full((size, 3), k, np.float32),
            1000 * k + np.arange(size, dtype=np.int32),
        )
        for k, size in enumerate(sizes)
    }
