"""Naming of the example that a model has no output or no embedding for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tree

from tff_drift import checks
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.examples import Examples, first_row

# What TensorFlow's cross-entropy and its gather say, on CPUs, through any context.
_LABEL = re.compile(
    r"label value of (-?\d+) which is outside the valid range of \[(\d+), (\d+)\)"
)
_INDEX = re.compile(r"indices\S* = (-?\d+) is not in \[0, (\d+)\)")


@contextlib.contextmanager
def naming_bad_labels(
    datasets: ClientDatasets, cohort: Sequence[str]
) -> Iterator[None]:
    """Turns TensorFlow's complaint of a label or an id into one that names the example.

    Args:
      datasets: The clients' data.
      cohort: The clients whose computation runs within.

    Yields:
      Nothing.

    Raises:
      ValueError: Instead of the complaint, if the label or the id is found.
    """
    try:
        yield
    except Exception as error:
        explained = _explained(str(error), datasets, cohort)
        if explained is None:
            raise
        raise ValueError(explained) from error


def _explained(
    complaint: str, datasets: ClientDatasets, cohort: Sequence[str]
) -> str | None:
    """Returns what is wrong with which example, if a complaint is of one."""
    if found := _LABEL.search(complaint):
        place = _find(datasets, cohort, "y", int(found[1]))
        return place and (
            f"{place}: found the label {found[1]}, but the model has outputs for the "
            f"labels {found[2]} to {int(found[3]) - 1}. Correct the label, or build "
            "the model with an output for each."
        )
    if found := _INDEX.search(complaint):
        number, last = int(found[1]), int(found[2]) - 1
        place = _find(datasets, cohort, "x", number)
        first = datasets.examples(cohort[0]) if cohort else ()
        # Where something says which arrays are the labels.
        if _part(first, "y") is not first and (
            in_labels := _find(datasets, cohort, "y", number)
        ):
            also = f"x has {number} in {place}, and " if place else ""
            return (
                f"found the index {number}, but a table of the model or of its loss "
                f"has the rows 0 to {last}: {also}y has {number} in {in_labels}. "
                "Correct the examples, or build the table with a row for each."
            )
        return place and (
            f"{place}: found {number}, but the model has an embedding for 0 to {last}. "
            "Correct the example, or build the model with an embedding for each."
        )
    return None


def _part(examples: Examples, name: str) -> Examples:
    """Returns the inputs `x` or the labels `y`, all arrays if nothing says which."""
    if isinstance(examples, Mapping):
        return examples.get(name, examples)
    if isinstance(examples, tuple) and len(examples) in (2, 3):
        return getattr(examples, name, examples["xy".index(name)])
    return examples


def _find(
    datasets: ClientDatasets, cohort: Sequence[str], part: str, number: int
) -> str | None:
    """Returns the client and the example that have a number in a part, if one has.

    Integers are looked at first. Of floats the model takes the whole part.
    """
    for kinds in ("iu", "f"):
        for client_id in cohort:
            for leaf in tree.flatten(_part(datasets.examples(client_id), part)):
                if leaf.dtype.kind not in kinds:
                    continue
                with np.errstate(invalid="ignore"):
                    whole = leaf.astype(np.int64) if kinds == "f" else leaf
                example = first_row(whole == number)
                if example is not None:
                    return f"client {checks.shown(client_id)}, example {example}"
    return None
