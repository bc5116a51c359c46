"""Measurements of some clients at a model: gradients and local training.

A pass is a round without a server: an existing client work runs on every client, and
its update comes back as it is. So clients are vectorized as in training.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import checks, client_works, compat, tensors
from tff_drift.simulation.cohorts import Cohort, clients_alone, run_round
from tff_drift.simulation.data import label_errors, not_finite
from tff_drift.simulation.data.batching import generator
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.examples import Examples, take


class CorrectedSgd(client_works.LocalSgd):
    """Local training that adds to every gradient what the client is given."""

    def correction(self, context: client_works.LocalContext) -> tf.Tensor:
        """Returns what was given in place of a state."""
        return context.client_state


def _client_data(examples: Any, correction: Any) -> Any:
    return collections.OrderedDict(examples=examples, correction=correction)


class Pass:
    """A work on each client, in the form of a process, which contexts run."""

    def __init__(
        self, spec: client_works.ModelSpec, work: client_works.ClientWork
    ) -> None:
        """Builds the computation.

        Args:
          spec: The model.
          work: What clients do.

        Raises:
          TypeError: If they cannot in the dtypes of the model's weights.
        """
        work.check_model(spec)
        self._vector = tensors.vector_type(spec.weights_type.trainable)
        client_type = compat.to_type(_client_data(spec.data_type, self._vector))

        def prepare() -> Any:
            run = work.prepare(spec, spec.loop_implementation)

            def measure(weights: Any, client: Any) -> Any:
                context = client_works.LocalContext(
                    tuple(tf.nest.flatten(weights.trainable)),
                    work.initial_hparams(),
                    tf.constant(0),
                    client["correction"],
                )
                outcome = run(weights, client["examples"], context)
                return tensors.to_vector(outcome.update), outcome.rejected

            return measure

        self._process = clients_alone(spec, client_type, prepare)

    def __call__(
        self,
        weights: Any,
        train: ClientDatasets,
        ids: Sequence[str],
        number: int = 0,
        corrections: Sequence[np.ndarray] = (),
        whole: ClientDatasets | None = None,
    ) -> list[np.ndarray]:
        """Returns the update of each client, a vector.

        Args:
          weights: The model.
          train: The clients' data.
          ids: The clients.
          number: The round, from 0; it changes the order of the examples.
          corrections: What to add to each client's gradients; by default nothing.
          whole: The clients' data if `train` has halves of it, for errors to name.

        Raises:
          ValueError: If an update is not finite, or labels are out of range.
        """
        nothing = np.zeros(self._vector.shape, self._vector.dtype)
        given = corrections or [nothing] * len(ids)

        def next_fn(weights: Any, data: Sequence[Any]) -> Any:
            return self._process.next(weights, list(map(_client_data, data, given)))

        process: Any = types.SimpleNamespace(next=next_fn)
        # Of halves those of the whole clients, as `halved` calls them.
        names = ids if whole is None else [part.partition(" ")[2] for part in ids]
        whole = whole or train
        with label_errors.naming_bad_labels(whole, list(dict.fromkeys(names))):
            found = run_round(process, weights, Cohort(number, ids, train))
        pairs = zip(names, found, strict=True)
        if broken := list(dict.fromkeys(name for name, (_, bad) in pairs if bad)):
            remedy = "Take a smaller client_optimizer_fn, or correct their examples"
            raise ValueError(
                f"train: {len(broken)} of {len(set(names))} clients, such as "
                f"{checks.shown(broken[0])}, have updates that are not finite. "
                f"{not_finite.remedy(whole, broken, remedy)}."
            )
        return [np.asarray(update, np.float32) for update, _ in found]


def halved(
    train: ClientDatasets, ids: Sequence[str], seed: int, wanted: Any
) -> ClientDatasets:
    """Returns random halves of clients' examples as clients, the first halves first.

    Args:
      train: The clients.
      ids: Those to halve, which have two examples or more.
      seed: The seed of the draw.
      wanted: The type of a batch that the model takes.
    """
    parts = {f"{half} {name}": (name, half) for half in (0, 1) for name in ids}

    def load(part: str) -> Examples:
        name, half = parts[part]
        order = generator(seed, 0, name).permutation(train.num_examples(name))
        # Unlike `examples`, batches are checked, by the name of the whole client.
        (examples,) = train.evaluation_batches(name, len(order))
        return take(examples, order[half::2])

    size = train.batching.batch_size
    halves = ClientDatasets(list(parts), load, batch_size=size, shuffle=False)
    return halves.fitting("train", wanted)
