"""Chooses the server's own or public examples: drawn, filtered, or from a file."""

from __future__ import annotations

import pathlib
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

import tasks
from tff_drift import files, simulation
from tff_drift.simulation.data.examples import Examples, batch_spec, num_rows, take


def choose(
    prefix: str, configuration: Mapping[str, Any], task: tasks.Task, train: Any
) -> Examples:
    """Returns the examples that the flags of one prefix ask for.

    Args:
      prefix: "meta" for the server's data D_meta, "share" for public examples.
      configuration: The run's flags: `<prefix>_fraction`, of all training examples;
        `<prefix>_labels`, the only ones to take; `<prefix>_file`, in place of
        clients' examples; and `meta_overlap`, the share that is of training clients,
        where the others are of clients held out, whom nobody trains on.
      task: The task, whose validation clients are those held out.
      train: The training clients, as the examples are to be: transformed or not.

    Returns:
      A structure of arrays like the clients' examples.

    Raises:
      OSError: If the file cannot be read.
      ValueError: If there are no such examples.
    """
    path = configuration[f"{prefix}_file"]
    if path is not None:
        return _read(path, train, f"--{prefix}_file")
    fraction, labels = (configuration[f"{prefix}_{n}"] for n in ("fraction", "labels"))
    total = sum(map(train.num_examples, train.client_ids))
    count = max(1, round(fraction * total)) if fraction else 0
    overlap = configuration["meta_overlap"] if prefix == "meta" else 1.0
    own = round(count * overlap)
    parts = [_draw(train, own, labels, task.seed, prefix)] if own or not count else []
    if own < count:
        if task.validation is None:
            raise ValueError(
                f"--meta_overlap={overlap} needs clients held out, of whom the others "
                f"are, but task {task.name} has none. Give --validation_fraction."
            )
        others = task.validation.replace(transform=train.transform)
        parts.append(_draw(others, count - own, labels, task.seed, prefix))
    return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *parts)


def _draw(
    clients: simulation.ClientDatasets,
    count: int,
    labels: str | None,
    seed: int,
    prefix: str,
) -> Examples:
    """Returns some examples at random, of some labels if they are named."""
    total = sum(map(clients.num_examples, clients.client_ids))
    if labels is None:
        count = min(count, total)
        return simulation.sample_examples(clients, count / total, seed)
    everything = simulation.sample_examples(clients, 1.0, seed)
    flag = f"--{prefix}_labels"
    try:
        wanted = [int(label) for label in labels.split("+")]
    except ValueError:
        raise ValueError(
            f"{flag} must be numbers such as 0+1+2, found {labels!r}."
        ) from None
    rows = np.flatnonzero(np.isin(_labels(everything, flag), wanted))
    if not len(rows):
        raise ValueError(f"--{prefix}_labels: no client has an example of {labels}.")
    return take(everything, rows[:count])


def _labels(examples: Examples, flag: str) -> np.ndarray:
    """Returns the labels, if examples are features and a label."""
    if isinstance(examples, tuple) and len(examples) == 2:
        labels = np.asarray(examples[1])
        if labels.ndim == 1:
            return labels
    raise ValueError(f"{flag} is for tasks whose examples have a label each.")


def _read(path: str, train: Any, flag: str) -> Examples:
    """Returns the arrays of an NPZ file, by name in the clients' structure."""
    spec = train.element_spec
    try:
        with (
            files.open_regular(pathlib.Path(path)) as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            names = sorted(arrays.files)
            leaves = [arrays[name] for name in names]
    except (EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{flag}: {path!r} is not a whole NPZ file: {error}"
        ) from error
    if len(leaves) != len(tf.nest.flatten(spec)):
        raise ValueError(
            f"{flag}: {path!r} holds {', '.join(names)}, but an example has "
            f"{len(tf.nest.flatten(spec))} parts, in alphabetical order of the names."
        )
    examples = tf.nest.pack_sequence_as(spec, leaves)
    found = batch_spec(examples)
    if found != spec or len(set(map(len, leaves))) > 1 or not num_rows(examples):
        raise ValueError(
            f"{flag}: {path!r} must hold arrays of the clients' type, {spec}, with "
            f"equal numbers of rows, found {found}."
        )
    return examples


def batches(examples: Examples, batch_size: int) -> tf.data.Dataset:
    """Returns examples as a dataset of batches for a server."""
    return tf.data.Dataset.from_tensor_slices(examples).batch(batch_size)
