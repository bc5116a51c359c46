"""How fast drift control can be: rounds by hand, in the fewest TensorFlow operations.

    python benchmarks/fewest_operations.py [--rounds 30] [--epochs 1]

A dense net of 95,000 weights, 100 equal clients in groups of ten, five batches of 20
for each epoch, clients' states in RAM. There are no checks, no metrics, no masked
clients and no weights of clients; η is part of the small factor of a gradient's
product, what stays fixed over the steps is one tensor, and a step sums up all that it
takes at once. Prints medians of processor time, and of its ratios to FedAvg's in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

_GROUPS, _CLIENTS, _BATCHES, _BATCH = 10, 10, 5, 20
_SHAPES = [(784, 100), (100,), (100, 100), (100,), (100, 62), (62,)]
_SIZES = [int(np.prod(shape)) for shape in _SHAPES]
_CLASSES = _SHAPES[-1][0]
_ETA, _ALPHA, _BETA, _RHO = 0.1, 0.1, 0.1, 0.9
_WARM_UP_ROUNDS = 3

# The weights or gradients of one model, or of a group of clients, stacked.
Weights = list[tf.Tensor]
Step = Callable[[Weights, tf.Tensor, tf.Tensor], Weights]


def _gradients(w: Weights, x: tf.Tensor, y: tf.Tensor, factor: float) -> Weights:
    """Returns the gradients of a batch of each client, times a factor."""

    def add(product: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return product + (bias[:, tf.newaxis] if bias.shape.rank == 2 else bias)

    def back(delta: tf.Tensor, matrix: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
        product = tf.matmul(delta, matrix, transpose_b=True)
        return product * tf.cast(after > 0, tf.float32)

    first = tf.nn.relu(add(x @ w[0], w[1]))
    second = tf.nn.relu(add(first @ w[2], w[3]))
    wrong = tf.nn.softmax(add(second @ w[4], w[5])) - tf.one_hot(y, _CLASSES)
    deltas = [wrong * (factor / _BATCH)]
    deltas.insert(0, back(deltas[0], w[4], second))
    deltas.insert(0, back(deltas[0], w[2], first))
    gradients = []
    for before, delta in zip((x, first, second), deltas, strict=True):
        gradients.append(tf.matmul(before, delta, transpose_a=True))
        gradients.append(tf.reduce_sum(delta, axis=1))
    return gradients


def _stacked(weights: Sequence[tf.Tensor]) -> Weights:
    return [tf.tile(w[tf.newaxis], [_CLIENTS] + [1] * w.shape.rank) for w in weights]


def _to_vectors(weights: Weights) -> tf.Tensor:
    return tf.concat([tf.reshape(w, [_CLIENTS, -1]) for w in weights], axis=1)


def _from_vectors(vectors: tf.Tensor) -> Weights:
    parts = tf.split(vectors, _SIZES, axis=1)
    return [
        tf.reshape(p, [_CLIENTS, *shape])
        for p, shape in zip(parts, _SHAPES, strict=True)
    ]


def _mean(stack: tf.Tensor) -> tf.Tensor:
    """Returns a group's share of the mean over all clients, by one product."""
    weights = tf.fill([1, _CLIENTS], 1 / (_GROUPS * _CLIENTS))
    return weights @ tf.reshape(stack, [_CLIENTS, -1])


def _moves(x: Weights, y: Weights) -> Weights:
    return [start - end for start, end in zip(x, y, strict=True)]


def _train(start: Weights, xs: tf.Tensor, ys: tf.Tensor, step: Step) -> Weights:
    _, *end = tf.while_loop(
        lambda k, *_: k < tf.shape(xs)[0],
        lambda k, *w: (k + 1, *step(list(w), xs[k], ys[k])),
        (tf.constant(0), *start),
        parallel_iterations=1,
    )
    return end


def _steps(share_of_y: float, beta: float, fixed: Weights) -> Step:
    """Returns the step y <- s y - η β g(y) + what stays fixed."""

    def step(w: Weights, x: tf.Tensor, y: tf.Tensor) -> Weights:
        kept = w if share_of_y == 1 else [share_of_y * each for each in w]
        parts = zip(kept, _gradients(w, x, y, -_ETA * beta), fixed, strict=True)
        return [tf.add_n(part) for part in parts]

    return step


def _fed_avg(x: Weights, xs: tf.Tensor, ys: tf.Tensor) -> Any:
    def step(w: Weights, features: tf.Tensor, labels: tf.Tensor) -> Weights:
        return [
            a + b
            for a, b in zip(w, _gradients(w, features, labels, -_ETA), strict=True)
        ]

    y = _train(_stacked(x), xs, ys, step)
    return [_mean(move) for move in _moves(x, y)]


def _scaffold(x: Weights, xs: tf.Tensor, ys: tf.Tensor, *state: Any) -> Any:
    c, c_i = state
    fixed = _from_vectors(_ETA * (c_i - c))
    moves = _moves(x, _train(_stacked(x), xs, ys, _steps(1.0, 1.0, fixed)))
    change = _to_vectors(moves) * _per_step(xs) - c
    return [_mean(move) for move in moves], _mean(change), c_i + change


def _scaffold_momentum(x: Weights, xs: tf.Tensor, ys: tf.Tensor, *state: Any) -> Any:
    cm, c_i = state
    # c and m are of all clients: what is made of them is taken for granted.
    fixed = _from_vectors((_ETA * _BETA) * c_i - cm)
    moves = _moves(x, _train(_stacked(x), xs, ys, _steps(1.0, _BETA, fixed)))
    change = _to_vectors(moves) * (_per_step(xs) / _BETA) - cm
    return [_mean(move) for move in moves], _mean(change), c_i + change


def _fed_dc(x: Weights, xs: tf.Tensor, ys: tf.Tensor, *state: Any) -> Any:
    d, h_i, d_i = state
    pull = _ETA * _ALPHA
    of_all = tf.concat([tf.reshape(w, [-1]) for w in x], 0) * pull - _ETA * d
    fixed = _from_vectors(_ETA * d_i - pull * h_i + of_all)
    y = _train(_stacked(x), xs, ys, _steps(1 - pull, 1.0, fixed))
    move = _to_vectors(_moves(x, y))
    h_i, d_i = h_i - move, move * _per_step(xs)
    return _mean(move - h_i), _mean(d_i), h_i, d_i


def _mean_gradient(x: Weights, xs: tf.Tensor, ys: tf.Tensor) -> Any:
    def step(total: Weights, features: tf.Tensor, labels: tf.Tensor) -> Weights:
        gradients = _gradients(x, features, labels, 1 / _BATCHES)
        return [a + b for a, b in zip(total, gradients, strict=True)]

    zeros = [tf.zeros([_CLIENTS, *shape]) for shape in _SHAPES]
    return [_mean(total) for total in _train(zeros, xs, ys, step)]


def _mime_lite(x: Weights, xs: tf.Tensor, ys: tf.Tensor, *momentum: tf.Tensor) -> Any:
    fixed = _stacked([-_ETA * _RHO * each for each in momentum])
    y = _train(_stacked(x), xs, ys, _steps(1.0, 1.0, fixed))
    return [_mean(move) for move in _moves(x, y)], _mean_gradient(x, xs, ys)


def _mime(x: Weights, xs: tf.Tensor, ys: tf.Tensor, *way: tf.Tensor) -> Any:
    fixed = _stacked(way)

    def step(w: Weights, features: tf.Tensor, labels: tf.Tensor) -> Weights:
        there = _gradients(w, features, labels, -_ETA)
        here = _gradients(x, features, labels, _ETA)
        return [tf.add_n(parts) for parts in zip(w, there, here, fixed, strict=True)]

    y = _train(_stacked(x), xs, ys, step)
    return [_mean(move) for move in _moves(x, y)]


def _per_step(xs: tf.Tensor) -> tf.Tensor:
    return 1 / (_ETA * tf.cast(tf.shape(xs)[0], tf.float32))


class _Method:
    """A method's round over all groups.

    Args:
      passes: The functions of a group's passes over its data. The last results of the
        last one are the clients' new states.
      of_all: What each pass takes besides the model and the data, of all clients.
      num_states: How many vectors a client keeps.
    """

    def __init__(
        self,
        passes: Sequence[Callable[..., Any]],
        of_all: Sequence[Weights] = (),
        num_states: int = 0,
    ) -> None:
        self._passes = [tf.function(each) for each in passes]
        self._of_all = [[], *of_all] if len(of_all) < len(passes) else list(of_all)
        zeros = np.zeros(sum(_SIZES), np.float32)
        self._states = [[zeros] * (_GROUPS * _CLIENTS) for _ in range(num_states)]

    def round(self, x: Weights, data: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Trains all groups, and puts away their states."""
        for run, of_all in zip(self._passes, self._of_all, strict=True):
            for group, batches in enumerate(data):
                rows = slice(group * _CLIENTS, (group + 1) * _CLIENTS)
                own = [tf.constant(np.stack(held[rows])) for held in self._states]
                results = run(x, *batches, *of_all, *own)
                for place, held in enumerate(self._states):
                    new = results[place - len(self._states)].numpy()
                    held[rows] = [row.copy() for row in new]


def _methods(x: Weights) -> dict[str, _Method]:
    vector = tf.zeros([sum(_SIZES)])
    return {
        "FedAvg": _Method([_fed_avg]),
        "SCAFFOLD": _Method([_scaffold], [[vector]], 1),
        "SCAFFOLD-M": _Method([_scaffold_momentum], [[vector]], 1),
        "FedDC": _Method([_fed_dc], [[vector]], 2),
        "MimeLite, momentum": _Method([_mime_lite], [x]),
        "Mime, momentum": _Method([_mean_gradient, _mime], [x]),
    }


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    x = [
        tf.constant(random.normal(size=s) / np.sqrt(s[0]), tf.float32) for s in _SHAPES
    ]
    sizes = _BATCHES * options.epochs, _CLIENTS, _BATCH
    data = [
        (
            tf.constant(random.random((*sizes, _SHAPES[0][0])), tf.float32),
            tf.constant(random.integers(0, _CLASSES, sizes), tf.int32),
        )
        for _ in range(_GROUPS)
    ]
    methods = _methods(x)
    taken: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(_WARM_UP_ROUNDS + options.rounds):
        for name, method in methods.items():
            start = time.process_time()
            method.round(x, data)
            taken[name].append(time.process_time() - start)
    print("| method | processor time, ms | over FedAvg's |\n|---|--:|--:|")
    for name, seconds in taken.items():
        seconds = seconds[_WARM_UP_ROUNDS:]
        of_fed_avg = taken["FedAvg"][_WARM_UP_ROUNDS:]
        ratio = statistics.median(
            a / b for a, b in zip(seconds, of_fed_avg, strict=True)
        )
        print(f"| {name} | {1000 * statistics.median(seconds):.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
