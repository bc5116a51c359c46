"""The arguments of the constructors of `ClientDatasets`."""

from __future__ import annotations

from typing import TypedDict

from tff_drift import signatures
from tff_drift.simulation.data.examples import Transform

# What users of other libraries call some of the arguments.
suggest_names = signatures.suggesting_names(
    drop_remainder='last_batch="drop"',
    max_elements="max_examples",
    num_epochs="epochs",
    num_steps="local_steps",
    preprocess_fn="preprocess",
)


class DatasetOptions(TypedDict, total=False):
    """The options of clients' examples and of their batches, see `ClientDatasets`."""

    batch_size: int
    epochs: int
    max_examples: int | None
    shuffle: bool
    seed: int
    last_batch: str
    local_steps: int | None
    transform: Transform | None


class CachedDatasetOptions(DatasetOptions, total=False):
    """`DatasetOptions`, and how much of the examples stays in RAM."""

    cache_bytes: int
