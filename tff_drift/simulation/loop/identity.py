"""The identity of a run, which a program that resumes it compares with its own."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import tree

from tff_drift import checks
from tff_drift.algorithms.composition.settings import digest_of
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.loop.callbacks.base import Callback


def training_arguments(
    process: Any,
    train: ClientDatasets,
    start: Any,
    callbacks: Sequence[Callback],
) -> dict[str, Any]:
    """Returns what the results of a run depend on, besides numbers of the run.

    Args:
      process: The learning process. Methods of this library say what they are.
      train: The clients.
      start: The state or the weights that the run begins with, or `None`.
      callbacks: What takes part in the run.

    Returns:
      JSON values by name.

    Raises:
      TypeError: If the settings of a callback are not a mapping.
    """
    arguments: dict[str, Any] = {
        "train": batching_of(train),
        "method": getattr(process, "settings", None),
        "callbacks": _callback_settings(callbacks),
    }
    if start is not None:
        arguments["initial_state_sha256"] = digest_of(tree.flatten(start))
    return arguments


def batching_of(train: ClientDatasets) -> dict[str, Any]:
    """Returns how clients' examples become batches, in JSON values by name.

    Args:
      train: The clients.
    """
    return {"max_examples": train.max_examples, **dataclasses.asdict(train.batching)}


def _callback_settings(callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Returns the callbacks' settings by class, numbered where a class comes again."""
    found: dict[str, Any] = {}
    counts: collections.Counter[str] = collections.Counter()
    for callback in callbacks:
        name = type(callback).__name__
        counts[name] += 1
        settings = callback.settings
        checks.check_instance(
            f"settings of {name}", settings, Mapping, "a mapping of JSON values by name"
        )
        if settings:
            number = "" if counts[name] == 1 else f" {counts[name]}"
            found[name + number] = dict(settings)
    return found


def cohort_digest(cohort: Sequence[str]) -> str:
    """Returns a hash of a cohort, in its order.

    Args:
      cohort: The clients' ids.
    """
    return hashlib.sha256("\n".join(map(str, cohort)).encode()).hexdigest()
