"""Clients that keep a state: a model with a quadratic loss, and rounds by hand."""

import collections
import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tff_drift import algorithms

DIMENSION = 5
ESTIMATE = "gradient_estimate"
UNIFORM = tff.learning.ClientWeighting.UNIFORM
NUM_EXAMPLES = tff.learning.ClientWeighting.NUM_EXAMPLES


class LinearRegression(tff.learning.models.VariableModel):
    """The loss (x'w - y)^2 / 2, w being two tensors of four entries and of one."""

    def __init__(self):
        self._first = tf.Variable(tf.zeros([2, 2]))
        self._last = tf.Variable(tf.zeros([1]))
        self._loss_sum = tf.Variable(0.0, trainable=False)
        self._num_examples = tf.Variable(0.0, trainable=False)

    @property
    def trainable_variables(self):
        return [self._first, self._last]

    @property
    def non_trainable_variables(self):
        return []

    @property
    def local_variables(self):
        return [self._loss_sum, self._num_examples]

    @property
    def input_spec(self):
        return (
            tf.TensorSpec([None, DIMENSION], tf.float32),
            tf.TensorSpec([None], tf.float32),
        )

    def predict_on_batch(self, features, training=True):
        del training
        w = tf.concat([tf.reshape(self._first, [-1]), self._last], axis=0)
        return tf.linalg.matvec(features, w)

    def forward_pass(self, batch_input, training=True):
        features, targets = batch_input
        predictions = self.predict_on_batch(features, training)
        loss = tf.reduce_mean(tf.square(predictions - targets)) / 2
        num_examples = tf.shape(targets)[0]
        self._loss_sum.assign_add(loss * tf.cast(num_examples, tf.float32))
        self._num_examples.assign_add(tf.cast(num_examples, tf.float32))
        return tff.learning.models.BatchOutput(loss, predictions, num_examples)

    def report_local_unfinalized_metrics(self):
        return collections.OrderedDict(
            loss=[self._loss_sum.read_value(), self._num_examples.read_value()]
        )

    def metric_finalizers(self):
        return collections.OrderedDict(
            loss=lambda sums: tf.math.divide_no_nan(sums[0], sums[1])
        )

    def reset_metrics(self):
        for variable in self.local_variables:
            variable.assign(0.0)


class Client(NamedTuple):
    """The examples of a client, and how it walks through them."""

    features: np.ndarray
    targets: np.ndarray
    batch_size: int
    epochs: int = 1

    def batches(self):
        """One pair of arrays for each local step."""
        starts = range(0, len(self.targets), self.batch_size)
        slices = [slice(start, start + self.batch_size) for start in starts]
        return [(self.features[s], self.targets[s]) for s in slices] * self.epochs

    def dataset(self, dtype=np.float32):
        examples = (self.features.astype(dtype), self.targets.astype(dtype))
        data = tf.data.Dataset.from_tensor_slices(examples)
        return data.batch(self.batch_size).repeat(self.epochs)


def axis_client(curvature, optimum, *, steps=1, axis=0):
    """f(w) = curvature (w[axis] - optimum)^2 / 2, each step on the exact gradient."""
    features = np.zeros([1, DIMENSION])
    features[0, axis] = np.sqrt(curvature)
    return Client(features, features[:, axis] * optimum, 1, steps)


def quadratic_clients(num_clients, *, steps, heterogeneity=1.0, seed=0):
    """Rotated quadratics with curvatures in [0.5, 2], each step on all examples.

    The clients' optima spread around 0 by `heterogeneity` in every coordinate.
    """
    random = np.random.default_rng(seed)
    clients = {}
    for index in range(num_clients):
        curvatures = random.uniform(0.5, 2.0, DIMENSION)
        rotation, _ = np.linalg.qr(random.normal(size=[DIMENSION, DIMENSION]))
        features = np.sqrt(DIMENSION * curvatures)[:, np.newaxis] * rotation.T
        features = features.astype(np.float32).astype(np.float64)
        optimum = heterogeneity * random.normal(size=DIMENSION)
        targets = (features @ optimum).astype(np.float32).astype(np.float64)
        clients[f"client_{index}"] = Client(features, targets, DIMENSION, steps)
    return clients


def ragged_clients(sizes, *, batch_size=3, epochs=2, seed=0):
    """Regressions of some sizes: K_i differ, batches differ, the last is short."""
    random = np.random.default_rng(seed)
    clients = {}
    for index, size in enumerate(sizes):
        features = random.normal(size=[size, DIMENSION]).astype(np.float32)
        targets = random.normal(size=size).astype(np.float32)
        clients[f"client_{index}"] = Client(
            features.astype(np.float64), targets.astype(np.float64), batch_size, epochs
        )
    return clients


def dealt_cohorts(client_ids, cohort_size, rounds, seed=0):
    """Cohorts dealt from a shuffled deck: all clients take part equally often."""
    random = np.random.default_rng(seed)
    deck, cohorts = [], []
    for _ in range(rounds):
        if len(deck) < cohort_size:
            deck += [c for c in random.permutation(client_ids) if c not in deck]
        cohorts.append([str(client) for client in deck[:cohort_size]])
        deck = deck[cohort_size:]
    return cohorts


def vector(structure):
    """All entries of a structure of arrays in order, as one float64 vector."""
    leaves = [np.asarray(leaf).ravel() for leaf in tf.nest.flatten(structure)]
    return np.concatenate(leaves).astype(np.float64)


@functools.cache
def initial_state(process):
    return process.initialize()


class Driver:
    """Rounds of a process by hand, with the clients' states in a dictionary.

    Attributes:
      process: The process.
      state: The server state.
      client_states: The state of each client that took part, by its id.
      metrics: The metrics of the last round.
    """

    def __init__(self, process, clients, learning_rate=None, dtype=np.float32):
        self.process, self._clients, self._dtype = process, clients, dtype
        self._is_stateful = isinstance(process, algorithms.StatefulLearningProcess)
        self.state = initial_state(process)
        self.client_states = {}
        self.metrics = None
        if learning_rate is not None:
            self.set_hparam("client_work", "learning_rate", learning_rate)

    @property
    def model(self):
        """The cloud model as a vector."""
        return vector(self.state.global_model_weights.trainable)

    def deployed_model(self):
        return vector(self.process.get_model_weights(self.state).trainable)

    def aggregate_model(self):
        """θ̄, of methods whose cloud model is another."""
        return vector(self.state.finalizer["aggregate_model"])

    def server_estimate(self):
        """h of FedDyn and AdaBest, which AdaBest's server does not keep: θ̄ - θ."""
        if ESTIMATE in self.state.finalizer:
            return vector(self.state.finalizer[ESTIMATE])
        return self.aggregate_model() - self.model

    def server_variate(self):
        """The server's control variate."""
        return vector(self.process.control_variate(self.state))

    def set_hparam(self, part, name, value):
        hparams = self.process.get_hparams(self.state)
        hparams[part][name] = np.float32(value)
        self.state = self.process.set_hparams(self.state, hparams)

    def set_model(self, w):
        w = np.asarray(w, np.float32)
        weights = tff.learning.models.ModelWeights([w[:4].reshape([2, 2]), w[4:]], [])
        self.state = self.process.set_model_weights(self.state, weights)

    def remembered(self, client, name="control_variate"):
        """A vector of a client's state, of the initial one if it never took part."""
        state = self.client_states.get(client)
        if state is None:
            state = self.process.initial_client_state
        return np.asarray(state[name], np.float64)

    def remembered_mean(self, name="control_variate"):
        """The mean over all clients, those that never took part included."""
        return np.mean([self.remembered(c, name) for c in self._clients], axis=0)

    def round(self, cohort, clients=None):
        """Runs a round of the named clients, on other data where `clients` has it."""
        clients = {**self._clients, **(clients or {})}
        data = [clients[client].dataset(self._dtype) for client in cohort]
        if self._is_stateful:
            data = [
                collections.OrderedDict(
                    examples=examples,
                    state=self.client_states.get(
                        client, self.process.initial_client_state
                    ),
                    index=np.int32(index),
                )
                for index, (client, examples) in enumerate(
                    zip(cohort, data, strict=True)
                )
            ]
        output = self.process.next(self.state, data)
        self.state, self.metrics = output.state, output.metrics
        if self._is_stateful:
            collected = output.metrics[algorithms.CLIENT_STATES]
            for row, index in enumerate(collected["index"]):
                self.client_states[cohort[index]] = tf.nest.map_structure(
                    lambda stacked, row=row: stacked[row], collected["state"]
                )
        return output.metrics


def batches(clients, cohort):
    """The cohort's batches by client, as the NumPy references take them."""
    return {client: clients[client].batches() for client in cohort}


# With and without the options of local training, degenerate cases are what they say.
LOCAL_OPTIONS = tiers.first(
    [1], [{}, {"client_weight_decay": 0.25, "gradient_clipping_norm": 0.5}]
)

# Processes that several tests share, each built once: building is what takes time.


@functools.cache
def scaffold(option, rate, num_clients):
    return algorithms.build_scaffold(LinearRegression, rate, num_clients, option=option)


@functools.cache
def scaffold_m(rate, num_clients):
    return algorithms.build_scaffold_m(LinearRegression, rate, num_clients)


@functools.cache
def fed_dyn(rate, num_clients, mu):
    return algorithms.build_fed_dyn(LinearRegression, rate, num_clients, mu=mu)


@functools.cache
def adabest(rate, mu, beta):
    return algorithms.build_adabest(LinearRegression, rate, mu=mu, beta=beta)
