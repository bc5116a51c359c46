"""What each of some clients measures at a model: its gradient, its local training.

A pass is a round without a server: an existing client work runs on every client, and
its update comes back as it is. So clients are vectorized as in training.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import autograph, client_works, compat, tensors
from tff_drift.simulation.cohorts import Cohort, run_round
from tff_drift.simulation.data import label_errors
from tff_drift.simulation.data.batching import generator
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.examples import Examples, take


@dataclasses.dataclass(frozen=True)
class Twice:
    """What each client measured, and two independent halves of it.

    The inner product of the halves is free of their noise, on the average.

    Attributes:
      mean: A row for each client.
      squares: Of each client the inner product of its halves; NaN where it has one.
      noise: Of each client half the squared distance of the two; NaN likewise.
    """

    mean: np.ndarray
    squares: np.ndarray
    noise: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, share: np.ndarray) -> Twice:
        """Combines two measurements.

        Args:
          first: A row for each client.
          second: The other measurement, rows of NaN where there is none.
          share: The share of the first in each client's mean.
        """
        has_both = np.isfinite(second[:, 0])
        rest = np.where(has_both[:, np.newaxis], second, 0)
        mean = share[:, np.newaxis] * first + (1 - share[:, np.newaxis]) * rest
        squares = np.einsum("ij,ij->i", first, rest, dtype=np.float64)
        gaps = first - rest
        noise = np.einsum("ij,ij->i", gaps, gaps, dtype=np.float64) / 2
        return cls(
            mean, np.where(has_both, squares, np.nan), np.where(has_both, noise, np.nan)
        )


class _Pass:
    """A work on each client, in the form of a process, which contexts run."""

    def __init__(
        self, spec: client_works.ModelSpec, work: client_works.ClientWork
    ) -> None:
        @compat.tf_computation(spec.weights_type, spec.data_type)
        def of_client(weights: Any, examples: Any) -> Any:
            run = work.prepare(spec, spec.loop_implementation)

            @tf.function
            @autograph.as_written
            def measure(weights: Any, examples: Any) -> Any:
                trainable = tuple(tf.nest.flatten(weights.trainable))
                context = client_works.LocalContext(
                    trainable, work.initial_hparams(), tf.constant(0)
                )
                outcome = run(weights, examples, context)
                wide = tuple(tf.cast(each, tf.float32) for each in outcome.update)
                return collections.OrderedDict(
                    update=tensors.to_vector(wide),
                    examples=outcome.num_examples,
                    steps=outcome.num_steps,
                    rejected=outcome.rejected,
                )

            return measure(weights, examples)

        @compat.federated_computation(
            compat.FederatedType(spec.weights_type, compat.SERVER),
            compat.FederatedType(spec.data_type, compat.CLIENTS),
        )
        def next_fn(weights: Any, clients: Any) -> Any:
            sent = compat.federated_broadcast(weights)
            return compat.federated_map(of_client, (sent, clients))

        self.next = next_fn

    def __call__(
        self, weights: Any, train: ClientDatasets, ids: Sequence[str], number: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns each client's update, number of examples and number of steps."""
        process: Any = self
        with label_errors.naming_bad_labels(train, ids):
            found = run_round(process, weights, Cohort(number, ids, train))
        broken = [
            name for name, each in zip(ids, found, strict=True) if each["rejected"]
        ]
        if broken:
            raise ValueError(
                f"train: {len(broken)} of {len(ids)} clients, such as {broken[0]!r}, "
                "have updates that are not finite. Take a smaller client_optimizer_fn, "
                "or correct their examples."
            )
        return (
            np.stack([np.asarray(each["update"]) for each in found]),
            np.array([int(each["examples"]) for each in found], np.float64),
            np.array([int(each["steps"]) for each in found]),
        )


class Passes:
    """Measures clients at a model.

    Attributes:
      ids: The clients that are measured.
    """

    def __init__(
        self,
        spec: client_works.ModelSpec,
        optimizer: Any,
        train: ClientDatasets,
        ids: Sequence[str],
        seed: int,
    ) -> None:
        """Builds the passes.

        Args:
          spec: The model.
          optimizer: The optimizer of the local steps.
          train: The clients' examples.
          ids: The clients to measure.
          seed: The seed of the halves.
        """
        self.ids = list(ids)
        self._train = train
        self._halves, self._places = _halved(train, self.ids, seed)
        self._gradient = _Pass(spec, client_works.FullGradient())
        self._training = _Pass(spec, client_works.LocalSgd(optimizer))

    def gradients(self, weights: Any) -> Twice:
        """Returns the gradients of the clients' losses, on halves of their examples.

        Args:
          weights: The model.
        """
        found, counts, _ = self._gradient(
            weights, self._halves, self._halves.client_ids
        )
        first, second = (
            found[: len(self.ids)],
            np.full_like(found[: len(self.ids)], np.nan),
        )
        second[self._places] = found[len(self.ids) :]
        others = np.zeros(len(self.ids))
        others[self._places] = counts[len(self.ids) :]
        ours = counts[: len(self.ids)]
        return Twice.of(first, second, (ours / (ours + others)).astype(np.float32))

    def updates(
        self, weights: Any, local_steps: int | None, number: int
    ) -> tuple[Twice, np.ndarray, np.ndarray]:
        """Returns the clients' updates, in two orders of their batches.

        Args:
          weights: The model.
          local_steps: The steps of every client; None for those that it takes.
          number: The round whose shuffles are the first order.

        Returns:
          The updates, the examples that each client trained on, and its steps.
        """
        train = self._train
        if local_steps is not None:
            train = train.replace(local_steps=local_steps, epochs=1)
        first, examples, steps = self._training(weights, train, self.ids, number)
        second, _, _ = self._training(weights, train, self.ids, number + 1)
        half = np.full(len(self.ids), 0.5, np.float32)
        return Twice.of(first, second, half), examples, steps

    def central(
        self, weights: Any, shares: np.ndarray, local_steps: int, number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the updates of local training on everyone's examples, drawn twice.

        A batch has as many examples as those of all clients together, and of each its
        share: what local steps would do if clients were alike.

        Args:
          weights: The model.
          shares: The clients' weights in the mean, which sum to 1.
          local_steps: The number of steps.
          number: The round; it changes the draws.
        """
        train = self._train
        total = sum(map(train.num_examples, self.ids))
        size = min(total, len(self.ids) * train.batching.batch_size)

        def load(draw: str) -> Examples:
            random = generator(train.batching.seed, number, draw)
            rows = _stratified(random, self.ids, shares, size, local_steps, train)
            return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *rows)

        names = ["first", "second"]
        everyone = ClientDatasets(names, load, batch_size=size, shuffle=False)
        everyone = everyone.fitting("train", train.element_spec)
        found, _, _ = self._training(weights, everyone, names)
        return found[0], found[1]


def _stratified(
    random: np.random.Generator,
    ids: Sequence[str],
    shares: np.ndarray,
    size: int,
    steps: int,
    train: ClientDatasets,
) -> list[Examples]:
    """Returns the batches of some steps, with each client's share in every one."""
    orders = [random.permutation(train.num_examples(each)) for each in ids]
    taken = np.zeros(len(ids), int)
    ends = np.cumsum(shares) * size
    batches = []
    for _ in range(steps):
        # A draw at equal distances has each share rounded up or down.
        marks = np.searchsorted(ends, random.random() + np.arange(size))
        counts = np.bincount(np.minimum(marks, len(ids) - 1), minlength=len(ids))
        for place, count in enumerate(counts):
            rows = (taken[place] + np.arange(count)) % len(orders[place])
            batches.append(take(train.examples(ids[place]), orders[place][rows]))
            taken[place] += count
    return batches


def _halved(
    train: ClientDatasets, ids: Sequence[str], seed: int
) -> tuple[ClientDatasets, np.ndarray]:
    """Returns random halves of clients' examples as clients, and who has a second.

    Args:
      train: The clients.
      ids: Those to halve.
      seed: The seed of the draw.
    """
    both = [place for place, name in enumerate(ids) if train.num_examples(name) > 1]
    parts = {f"{place} 0": (name, 0) for place, name in enumerate(ids)}
    parts.update({f"{place} 1": (ids[place], 1) for place in both})

    def load(part: str) -> Examples:
        name, half = parts[part]
        examples = train.examples(name)
        order = generator(seed, 0, name).permutation(train.num_examples(name))
        return take(examples, order[half::2])

    halves = ClientDatasets(
        list(parts), load, batch_size=train.batching.batch_size, shuffle=False
    )
    return halves.fitting("train", train.element_spec), np.array(both, int)
