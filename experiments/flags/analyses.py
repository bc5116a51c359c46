"""What `tff-drift analyze` is asked for."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import declarations, errors
from experiments.flags.flag import LIST, Depends, Flag

# The names of `experiments.analysis.AXES` and `BANDS`, which a test holds equal.
AXES = ("round", "examples", "bytes", "seconds", "simulated_seconds")
_BANDS = ("range", "sd")
_WHAT, _FIGURES = "What to report", "Figures and files"
_OWN = (
    Flag(
        "columns",
        "text",
        "Columns of metrics.csv, separated by commas; the first one is the metric of "
        "thresholds, box plots and bars.",
        Depends("the task's headline metric, and the loss"),
        many=True,
        group=_WHAT,
    ),
    Flag(
        "thresholds",
        "number",
        "Values of the metric to reach, separated by commas: from below, losses and "
        "the like from above.",
        Depends("none"),
        many=True,
        group=_WHAT,
    ),
    Flag(
        "last",
        "count",
        "Take the mean over this many last rounds.",
        1,
        group=_WHAT,
    ),
    Flag(
        "by",
        "text",
        "Settings that tell lines and rows apart, separated by commas; runs that are "
        "alike in them are averaged as seeds.",
        Depends("algorithm, and what varies within one but the seed"),
        many=True,
        group=_WHAT,
    ),
    Flag(
        "axes",
        "choice",
        "What to draw curves against and to count to thresholds, separated by commas.",
        ("round", "examples", "bytes"),
        choices=AXES,
        many=True,
        group=_FIGURES,
    ),
    Flag(
        "against",
        "text",
        "A setting to draw the last rounds and the thresholds against, such as "
        "clients_per_round.",
        group=_FIGURES,
    ),
    Flag(
        "bands",
        "choice",
        "What bands show: smallest to largest seed, or a standard deviation.",
        "range",
        choices=_BANDS,
        group=_FIGURES,
    ),
    Flag(
        "output_dir",
        "text",
        "Folder for tables and figures.",
        "results/analyze",
        group=_FIGURES,
    ),
)


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What to tell of runs.

    Attributes:
      folders: The folders with the runs.
      columns: The columns, none for those of the task.
      thresholds: Values of the first column to reach.
      last: How many rounds at the end to take the mean of.
      by: The settings that tell runs apart, `None` for what varies.
      axes: What to count, and to draw curves against.
      against: A setting to draw figures against, or `None`.
      bands: What bands show.
      output_dir: The folder for tables and figures.
    """

    folders: tuple[str, ...]
    columns: tuple[str, ...]
    thresholds: tuple[float, ...]
    last: int
    by: tuple[str, ...] | None
    axes: tuple[str, ...]
    against: str | None
    bands: str
    output_dir: pathlib.Path


def flags() -> dict[str, Flag]:
    """Returns the flags of `tff-drift analyze` by name."""
    plugin = declarations.flags_of(LIST)["plugin"]
    return {flag.name: flag for flag in (*_OWN, plugin)}


def request(given: Mapping[str, Any]) -> Analysis:
    """Returns what is asked for.

    Args:
      given: The values of the flags that are given, by name, and `folders`.

    Raises:
      UserError: If there is no such folder.
    """
    values = declarations.values(flags(), given)
    folders = tuple(given["folders"])
    for folder in folders:
        if not pathlib.Path(folder).is_dir():
            raise errors.UserError(
                f"{folder!r} is not a folder. Name folders of `tff-drift train`, "
                "compare, sweep or preset."
            )
    return Analysis(
        folders=folders,
        columns=values["columns"] or (),
        thresholds=values["thresholds"] or (),
        last=values["last"],
        by=values["by"],
        axes=values["axes"],
        against=values["against"],
        bands=values["bands"],
        output_dir=pathlib.Path(values["output_dir"]),
    )
