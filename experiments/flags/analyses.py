"""The request of `tff-drift analyze`."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import declarations, errors
from experiments.flags.flag import ANALYZE


@dataclasses.dataclass(frozen=True)
class Analysis:
    """The analysis that was asked for.

    Attributes:
      folders: The folders with the runs.
      columns: The columns, none for those of the task.
      thresholds: Values of the first column to reach.
      last: How many rounds at the end to take the mean of.
      by: The settings that distinguish runs, `None` for those that vary.
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


def request(given: Mapping[str, Any]) -> Analysis:
    """Returns what is asked for.

    Args:
      given: The values of the flags that are given, by name, and `folders`.

    Raises:
      UserError: If there is no such folder.
    """
    values = declarations.values(declarations.flags_of(ANALYZE), given)
    folders = tuple(given["folders"])
    for folder in folders:
        if not os.path.isdir(folder):
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
