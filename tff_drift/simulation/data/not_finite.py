"""Naming of clients whose examples hold values that are not finite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tree
from absl import logging

from tff_drift import checks
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.examples import first_row

_MOST_NAMED = 3


def remedy(datasets: ClientDatasets, client_ids: Iterable[str], otherwise: str) -> str:
    """Returns what to do about clients of which something is not finite, a clause.

    Args:
      datasets: The clients' data.
      client_ids: The clients.
      otherwise: What to do where their examples are finite. Where they are not, it is
        to look at those, which are named.
    """
    found: list[str] = []
    for client_id in client_ids:
        example = _first(datasets, client_id)
        if example is None:
            continue
        if len(found) == _MOST_NAMED:
            found.append("...")
            break
        found.append(
            f"client {checks.shown(client_id)}, example {example}, is not finite"
        )
    return f"Suspect the data: {'; '.join(found)}" if found else otherwise


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
    logging.warning(
        "The evaluation's sums are not finite for %d of %d clients, such as %s. %s.",
        len(broken),
        count,
        checks.shown(broken[0]),
        remedy(datasets, broken, "Look at the scale of their examples"),
    )


def _first(datasets: ClientDatasets, client_id: str) -> int | None:
    """Returns a client's first example with a value that is not finite."""
    floats = (
        leaf
        for leaf in tree.flatten(datasets.examples(client_id))
        if leaf.dtype.kind in "fc"
    )
    rows = (first_row(~np.isfinite(leaf)) for leaf in floats)
    return min((row for row in rows if row is not None), default=None)
