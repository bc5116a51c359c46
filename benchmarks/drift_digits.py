"""Why FedDC and Mime are far behind on digits: their rounds in NumPy, part by part.

    PYTHONPATH=. python benchmarks/drift_digits.py [--output=FILE.csv]

The task is that of `tff-drift preset drift_methods --parts=digits`: 50 clients by
Dirichlet 0.03, two epochs in batches of ten, 60 rounds, and the same net, at the rates
that its search chose. Cohorts and batches are drawn here. The methods are those of
`tests/paper/reference_since.py`, written from the papers and independent of the
library, with a part of them left out or done otherwise; in the rows with `library` this
library trains on the same batches.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import numpy as np
import pandas as pd
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tests.paper import reference, reference_since
from tff_drift import algorithms, execution

CLIENTS, FEW, ROUNDS, EPOCHS, BATCH, SEEDS = 50, 5, 60, 2, 10, (1, 2, 3)
RATE, ALPHA, MOMENTUM = 0.3, 0.1, 0.9
SHAPES = ((64, 50), (50,), (50, 10), (10,))
Cohort = dict[int, Any]


def parts(vector: np.ndarray) -> list[np.ndarray]:
    """Returns the net's weights, as a vector, layer by layer."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES])[:-1]
    return [
        part.reshape(s) for part, s in zip(np.split(vector, ends), SHAPES, strict=True)
    ]


def gradient(w: np.ndarray, batch: Any) -> np.ndarray:
    """Returns the gradient of the mean cross-entropy of a batch."""
    features, labels = batch
    kernel, bias, last_kernel, last_bias = parts(w)
    before = features @ kernel + bias
    hidden = np.maximum(before, 0)
    logits = hidden @ last_kernel + last_bias
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = exponents / exponents.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back = (error @ last_kernel.T) * (before > 0)
    of_parts = (features.T @ back, back.sum(0), hidden.T @ error, error.sum(0))
    return np.concatenate([np.ravel(part) for part in of_parts])


def accuracy(w: np.ndarray, examples: Any) -> float:
    """Returns the share of examples that are told rightly."""
    kernel, bias, last_kernel, last_bias = parts(w)
    hidden = np.maximum(examples[0] @ kernel + bias, 0)
    logits = hidden @ last_kernel + last_bias
    return float(np.mean(logits.argmax(axis=1) == examples[1]))


class FedAvg:
    """FedAvg, whose reference binds the gradient of quadratics."""

    def __init__(self, dimension: int) -> None:
        self.x = np.zeros(dimension)
        self._sgd = reference.Sgd(RATE, gradient=gradient)

    def round(self, cohort: Cohort) -> None:
        """Trains on a cohort."""
        self.x = np.mean([self._sgd.run(self.x, b) for b in cohort.values()], axis=0)


class FedDcWithout(reference_since.FedDc):
    """FedDC without the term of δ_i - δ; the server may take the mean of all h_i."""

    def __init__(self, dimension: int, of_all: bool) -> None:
        super().__init__(dimension, RATE, ALPHA)
        self._of_all = of_all

    def round(self, cohort: Cohort) -> None:
        """Trains on a cohort."""
        super().round(cohort)
        self.delta, self.delta_i = np.zeros_like(self.x), {}
        if self._of_all:
            of_cohort = np.mean([self.h_i[client] for client in cohort], axis=0)
            self.x = self.x - of_cohort + sum(self.h_i.values()) / CLIENTS


class FedDcOfTheAuthors:
    """The authors' code: SCAFFOLD's variates, and the mean of all clients' h_i."""

    def __init__(self, dimension: int) -> None:
        self.x, self.c = np.zeros(dimension), np.zeros(dimension)
        self.h_i = {client: np.zeros(dimension) for client in range(CLIENTS)}
        self.c_i = dict(self.h_i)

    def round(self, cohort: Cohort) -> None:
        """Trains on a cohort."""
        models, change = [], np.zeros_like(self.x)
        for client, batches in cohort.items():
            y, slope = self.x, self.c - self.c_i[client]
            for batch in batches:
                pull = ALPHA * (self.h_i[client] + y - self.x)
                y = y - RATE * (gradient(y, batch) + pull + slope)
            new = (self.x - y) / (RATE * len(batches)) - slope
            change += new - self.c_i[client]
            self.c_i[client] = new
            self.h_i[client] = self.h_i[client] + y - self.x
            models.append(y)
        self.c = self.c + change / CLIENTS
        self.x = np.mean(models, axis=0) + sum(self.h_i.values()) / CLIENTS


class OnePlace:
    """As many steps as clients take, of momentum and c, without local gradients."""

    def __init__(self, dimension: int, rate: float) -> None:
        self.x, self.s, self.rate = np.zeros(dimension), np.zeros(dimension), rate

    def round(self, cohort: Cohort) -> None:
        """Trains on a cohort."""
        clients = list(cohort.values())
        c = np.mean([reference.full_gradient(self.x, b) for b in clients], axis=0)
        steps = np.mean([len(batches) for batches in clients])
        self.s = MOMENTUM * self.s + c
        self.x = self.x - self.rate * steps * self.s


class Library:
    """A process of this library on the same batches."""

    def __init__(self, dimension: int, build: Callable[[], Any]) -> None:
        del dimension
        self._process = build()
        self._state = self._process.initialize()
        self._client_states: dict[int, Any] = {}
        self.x = self._weights()

    def _weights(self) -> np.ndarray:
        weights = self._process.get_model_weights(self._state).trainable
        return np.concatenate([np.ravel(tensor) for tensor in weights])

    def round(self, cohort: Cohort) -> None:
        """Trains on a cohort."""
        data: list[Any] = [
            [(x.astype(np.float32), y) for x, y in b] for b in cohort.values()
        ]
        initial = getattr(self._process, "initial_client_state", None)
        if initial is not None:
            states = [self._client_states.get(client, initial) for client in cohort]
            data = [
                {"examples": examples, "state": state, "index": client}
                for client, state, examples in zip(cohort, states, data, strict=True)
            ]
        output = self._process.next(self._state, data)
        self._state = output.state
        if initial is not None:
            kept = output.metrics[algorithms.CLIENT_STATES]
            for row, client in enumerate(kept["index"]):
                self._client_states[int(client)] = tf.nest.map_structure(
                    lambda array, row=row: array[row], kept["state"]
                )
        self.x = self._weights()


def _mime(rate: float, is_lite: bool = False) -> Callable[[int], Any]:
    base = reference_since.Momentum(rate, MOMENTUM)
    return lambda dimension: reference_since.Mime(dimension, base, is_lite)


def settings(model_fn: Any) -> dict[str, tuple[int, Callable[[int], Any]]]:
    """Returns, by a row's name, the clients in a round and what trains."""

    def library_fed_dc() -> Any:
        return algorithms.build_fed_dc(model_fn, RATE, alpha=ALPHA)

    def library_mime() -> Any:
        base = tff.learning.optimizers.build_sgdm(0.1, MOMENTUM)
        return algorithms.build_mime(model_fn, base)

    def fed_dc(dimension: int) -> Any:
        return reference_since.FedDc(dimension, RATE, ALPHA)

    return {
        "fed_avg": (FEW, FedAvg),
        "fed_avg_all_clients": (CLIENTS, FedAvg),
        "fed_dc": (FEW, fed_dc),
        "fed_dc_library": (FEW, lambda d: Library(d, library_fed_dc)),
        "fed_dc_all_clients": (CLIENTS, fed_dc),
        "fed_dc_no_correction": (FEW, lambda d: FedDcWithout(d, False)),
        "fed_dc_no_correction_mean_of_all": (FEW, lambda d: FedDcWithout(d, True)),
        "fed_dc_authors_code": (FEW, FedDcOfTheAuthors),
        "mime_0.1": (FEW, _mime(0.1)),
        "mime_0.1_library": (FEW, lambda d: Library(d, library_mime)),
        "mime_0.03": (FEW, _mime(0.03)),
        "mime_0.1_half_of_clients": (CLIENTS // 2, _mime(0.1)),
        "one_place_0.1": (FEW, lambda d: OnePlace(d, 0.1)),
        "one_place_0.03": (FEW, lambda d: OnePlace(d, 0.03)),
        "mime_lite_0.01": (FEW, _mime(0.01, is_lite=True)),
        "mime_lite_0.03": (FEW, _mime(0.03, is_lite=True)),
    }


def _batches(examples: Any, random: np.random.Generator) -> list[Any]:
    features, labels = examples
    made = []
    for _ in range(EPOCHS):
        order = random.permutation(len(labels))
        for start in range(0, len(labels), BATCH):
            rows = order[start : start + BATCH]
            made.append((features[rows], labels[rows]))
    return made


def _examples(clients: Any, client_id: str) -> Any:
    batches = clients.training_batches(client_id, 1)
    pairs = [tf.nest.flatten(batch) for batch in batches]
    features, labels = (np.concatenate(each) for each in zip(*pairs, strict=True))
    return features.astype(np.float64), labels


def train(method: Any, cohort_size: int, seed: int, task: Any) -> tuple[float, float]:
    """Returns the accuracy on test examples and the norm of the last model."""
    random = np.random.default_rng(seed)
    clients = [_examples(task.train, client) for client in task.train.client_ids]
    tests = [_examples(task.test, client) for client in task.test.client_ids]
    test = tuple(np.concatenate(each) for each in zip(*tests, strict=True))
    for _ in range(ROUNDS):
        drawn = random.choice(CLIENTS, cohort_size, replace=False)
        method.round({int(i): _batches(clients[i], random) for i in drawn})
    return accuracy(method.x, test), float(np.linalg.norm(method.x))


def main() -> None:
    """Trains in all settings and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output")
    output = parser.parse_args().output
    reference.batch_gradient = gradient
    execution.set_local_execution_context()
    measured: dict[str, list[tuple[float, float]]] = {}
    for seed in SEEDS:
        task = tasks.load("digits", seed=seed, num_clients=CLIENTS, alpha=0.03)
        first = Library(0, lambda task=task: algorithms.build_fed_avg(task.model_fn, 1))
        for name, (cohort_size, build) in settings(task.model_fn).items():
            method = build(first.x.size)
            method.x = first.x.astype(np.float64)
            measured.setdefault(name, []).append(train(method, cohort_size, seed, task))
    rows = []
    for name, results in measured.items():
        accuracies, norms = np.transpose(results)
        sd = np.std(accuracies, ddof=1)
        rows.append((name, np.mean(accuracies), sd, np.mean(norms)))
    columns = ["setting", "accuracy", "accuracy_sd", "model_norm"]
    table = pd.DataFrame(rows, columns=columns)
    print(table.to_string(index=False))
    if output:
        table.to_csv(output, index=False)


if __name__ == "__main__":
    main()
