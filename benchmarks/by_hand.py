"""Rounds of FedAvg by hand, for four works alone: what TensorFlow's operations allow.

The models are written on stacks of clients, and a short batch is padded with examples
of weight zero, which only who wrote the loss knows how to do: no step is taken alone,
none is masked. There are no metrics, no checks and no clients that are rejected.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import populations
import tensorflow as tf
from competitors import Seconds
from populations import CLASSES, FEW_CLASSES, PIXELS, RATE, Arrays, Work

from tff_drift import system

# The weights of one model, or of a group of clients, stacked.
Weights = Sequence[tf.Tensor]


class Model(NamedTuple):
    """A model on stacks.

    Attributes:
      shapes: Of its weights.
      losses: Returns the loss of every example, `[clients, batch]`, of weights,
        features and labels.
      clients: How many are trained together.
    """

    shapes: Sequence[tuple[int, ...]]
    losses: Callable[[Weights, tf.Tensor, tf.Tensor], tf.Tensor]
    clients: int = 10


def _layer(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, kernel) + bias[:, tf.newaxis]


def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def _dense(
    units: Sequence[int],
    activation: Callable[[tf.Tensor], tf.Tensor],
    losses: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    clients: int = 10,
) -> Model:
    def of_batch(weights: Weights, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        for k in range(0, len(weights) - 2, 2):
            x = activation(_layer(x, weights[k], weights[k + 1]))
        return losses(_layer(x, *weights[-2:]), y)

    layers = itertools.pairwise(units)
    shapes = [shape for pair in layers for shape in (pair, pair[1:])]
    return Model(shapes, of_batch, clients)


def _convolution(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns patches times filters, `[clients, batch, height, width, filters]`."""
    size, filters = kernel.shape[1], kernel.shape[-1]
    height = x.shape[2] - size + 1
    shifts = [(i, j) for i in range(size) for j in range(size)]
    patches = [x[:, :, i : i + height, j : j + height] for i, j in shifts]
    product = _layer(
        tf.reshape(tf.concat(patches, -1), [_length(x), -1, size**2 * x.shape[-1]]),
        tf.reshape(kernel, [_length(x), -1, filters]),
        bias,
    )
    return tf.reshape(product, [_length(x), -1, height, height, filters])


def _length(stack: tf.Tensor) -> tf.Tensor:
    return tf.shape(stack)[0]


def _small_convolutions(weights: Weights, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    hidden = tf.nn.relu(_convolution(x, *weights[:2]))
    pooled = tf.nn.max_pool2d(tf.reshape(hidden, [-1, 6, 6, 6]), 2, 2, "VALID")
    hidden = tf.reshape(pooled, [_length(x), -1, 3, 3, 6])
    hidden = tf.nn.relu(_convolution(hidden, *weights[2:4]))
    hidden = tf.nn.relu(_layer(tf.reshape(hidden, [_length(x), -1, 64]), *weights[4:6]))
    return _cross_entropy(_layer(hidden, *weights[6:]), y)


def _squared_error(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.square(tf.sigmoid(logits) - targets), axis=-1)


_AUTOENCODER = [PIXELS, 1000, 500, 250, 30, 250, 500, 1000, PIXELS]
_CONVOLUTIONS = [(3, 3, 1, 6), (6,), (2, 2, 6, 16), (16,), (64, 120), (120,)]
MODELS = {
    "logistic": _dense([PIXELS, CLASSES], tf.nn.relu, _cross_entropy),
    "dense": _dense([PIXELS, 100, 100, CLASSES], tf.nn.relu, _cross_entropy),
    "autoencoder": _dense(_AUTOENCODER, tf.sigmoid, _squared_error, 4),
    "conv_small": Model(
        [*_CONVOLUTIONS, (120, FEW_CLASSES), (FEW_CLASSES,)], _small_convolutions, 15
    ),
}


class ByHand:
    """Rounds of a work whose model is one of `MODELS`."""

    def __init__(self, work: Work, clients: Sequence[Arrays]) -> None:
        self._work, self._clients, self._round = work, clients, 0
        self._model = MODELS[work.model]
        random = np.random.default_rng(0)
        self._weights: Weights = [
            tf.constant(random.normal(size=s) / np.sqrt(np.prod(s[:-1])), tf.float32)
            for s in self._model.shapes
        ]
        self._threads = concurrent.futures.ThreadPoolExecutor(system.processors())
        self._train = tf.function(self._moves, reduce_retracing=True)

    def _moves(
        self, start: Weights, x: tf.Tensor, y: tf.Tensor, rates: tf.Tensor, n: tf.Tensor
    ) -> list[tf.Tensor]:
        """Returns the sum of a group's changes, weighted by examples."""
        stack = [
            tf.tile(w[tf.newaxis], [_length(n), *[1] * w.shape.rank]) for w in start
        ]

        def step(k: tf.Tensor, *weights: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(weights)
                loss = tf.reduce_sum(rates[k] * self._model.losses(weights, x[k], y[k]))
            moves = tape.gradient(loss, weights)
            return k + 1, *(w - move for w, move in zip(weights, moves, strict=True))

        _, *end = tf.while_loop(
            lambda k, *_: k < tf.shape(x)[0],
            step,
            (tf.constant(0), *stack),
            parallel_iterations=1,
        )
        return [
            n[tf.newaxis] @ tf.reshape(after - before, [_length(n), -1])
            for before, after in zip(stack, end, strict=True)
        ]

    def _batches(self, client: int, random: np.random.Generator) -> list[Arrays]:
        """Returns full batches with η / n for each example, and 0 for padding."""
        x, y = self._clients[client]
        size, batches = self._work.batch_size, []
        for _ in range(self._work.epochs):
            order = random.permutation(len(x))
            for k in range(0, len(x), size):
                rows = order[k : k + size]
                rates = np.zeros(size, np.float32)
                rates[: len(rows)] = RATE / len(rows)
                rows = np.resize(rows, size)
                batches.append((x[rows], y[rows], rates))
        return batches

    def _group(self, members: Sequence[list[Arrays]], n: Sequence[int]) -> Any:
        steps = max(map(len, members))
        stacks = []
        for component in range(3):
            first = members[0][0][component]
            shape = [steps, len(members), *first.shape]
            if first.ndim == 4 and self._work.model != "conv_small":
                shape[3:] = [PIXELS]
            stack = np.zeros(shape, first.dtype)
            for place, batches in enumerate(members):
                for step, batch in enumerate(batches):
                    stack[step, place] = batch[component].reshape(shape[2:])
            stacks.append(tf.constant(stack))
        return self._train(self._weights, *stacks, tf.constant(n, tf.float32))

    def __call__(self) -> Seconds:
        """Runs a round."""
        start = time.perf_counter()
        cohort = populations.cohort(self._work, self._round)
        cohort = sorted(cohort, key=lambda client: len(self._clients[client][0]))
        size, random = self._model.clients, np.random.default_rng((3, self._round))

        def train(clients: Sequence[int]) -> Any:
            members = [self._batches(client, random) for client in clients]
            return self._group(members, [len(self._clients[k][0]) for k in clients])

        groups = [cohort[k : k + size] for k in range(0, len(cohort), size)]
        sums = list(self._threads.map(train, groups))
        total = sum(len(self._clients[client][0]) for client in cohort)
        self._weights = [
            w + tf.reshape(tf.add_n(parts) / total, tf.shape(w))
            for w, *parts in zip(self._weights, *sums, strict=True)
        ]
        self._weights[0].numpy()
        self._round += 1
        return Seconds(time.perf_counter() - start)

    def close(self) -> None:
        """Ends its threads."""
        self._threads.shutdown()
