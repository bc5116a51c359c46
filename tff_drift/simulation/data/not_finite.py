"""Naming of clients whose examples hold values that are not finite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tree
from absl import logging

from tff_drift import checks
from tff_drift.simulation.data.client_datasets import ClientDatasets

_MOST_NAMED = 3


def suspects(datasets: ClientDatasets, client_ids: Iterable[str]) -> str:
    """Returns where clients' examples are not finite, a clause; empty if nowhere.

    Args:
      datasets: The clients' data.
      client_ids: The clients to look at.
    """
    found: list[str] = []
    for client_id in client_ids:
        example = _first(datasets, client_id)
        if example is None:
            continue
        if len(found) == _MOST_NAMED:
            return "; ".join([*found, "..."])
        found.append(
            f"client {checks.shown(client_id)}, example {example}, is not finite"
        )
    return "; ".join(found)


def is_finite(leaves: Iterable[Any]) -> bool:
    """Returns whether all floats of some arrays are finite.

    Args:
      leaves: The arrays.
    """
    arrays = map(np.asarray, leaves)
    return all(np.isfinite(each).all() for each in arrays if each.dtype.kind in "fc")


def warn_of_sums(datasets: ClientDatasets, broken: Sequence[str], count: int) -> None:
    """Warns of clients on which a finite model's sums are not finite.

    Args:
      datasets: The data of the evaluation.
      broken: Those clients, at least one.
      count: How many clients were evaluated.
    """
    remedy = "Look at the scale of their examples"
    if found := suspects(datasets, broken):
        remedy = f"Suspect the data: {found}"
    logging.warning(
        "The evaluation's sums are not finite for %d of %d clients, such as %s. %s.",
        len(broken),
        count,
        checks.shown(broken[0]),
        remedy,
    )


def _first(datasets: ClientDatasets, client_id: str) -> int | None:
    """Returns a client's first example with a value that is not finite."""
    rows: list[int] = []
    for leaf in tree.flatten(datasets.examples(client_id)):
        if leaf.dtype.kind not in "fc":
            continue
        bad = ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
        if bad.any():
            rows.append(int(np.argmax(bad)))
    return min(rows, default=None)
