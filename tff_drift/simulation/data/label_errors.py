"""Naming of the example whose label a model has no output for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tree

from tff_drift.simulation.data.client_datasets import ClientDatasets

# What TensorFlow's cross-entropy says, on CPUs, through any execution context.
_COMPLAINT = re.compile(
    r"label value of (-?\d+) which is outside the valid range of \[(\d+), (\d+)\)"
)


@contextlib.contextmanager
def naming_bad_labels(
    datasets: ClientDatasets, cohort: Sequence[str]
) -> Iterator[None]:
    """Turns TensorFlow's complaint of a label into an error that names the example.

    Args:
      datasets: The clients' data.
      cohort: The clients whose computation runs within.

    Yields:
      Nothing.

    Raises:
      ValueError: Instead of the complaint, if the label is found.
    """
    try:
        yield
    except Exception as error:
        found = _COMPLAINT.search(str(error))
        place = found and _find(datasets, cohort, int(found[1]))
        if not (found and place):
            raise
        raise ValueError(
            f"{place}: found the label {found[1]}, but the model has outputs for the "
            f"labels {found[2]} to {int(found[3]) - 1}. Correct the label, or build "
            "the model with an output for each."
        ) from error


def _find(datasets: ClientDatasets, cohort: Sequence[str], label: int) -> str | None:
    """Returns the client and the example that have a label, if one has."""
    for client_id in cohort:
        for leaf in tree.flatten(datasets.examples(client_id)):
            if leaf.dtype.kind not in "iu" or leaf.ndim > 2:
                continue
            rows = (leaf == label).reshape(len(leaf), -1).any(axis=1)
            if rows.any():
                return f"client {client_id!r}, example {int(np.argmax(rows))}"
    return None
