"""The request of `tff-drift report`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import analyses, declarations, errors
from experiments.flags.analyses import Analysis
from experiments.flags.flag import REPORT


@dataclasses.dataclass(frozen=True)
class PageRequest:
    """A page of results as a user asks for it.

    Attributes:
      analysis: The analysis of the runs, and the folder for the page.
      name: The name of its files, without ending.
      title: Its heading, `None` for one that is made of what is reported.
    """

    analysis: Analysis
    name: str
    title: str | None


def request(given: Mapping[str, Any]) -> PageRequest:
    """Returns what is asked for.

    Args:
      given: The values of the flags that are given, by name, and `folders`.

    Raises:
      UserError: If there is no such folder, or the name is not a file name.
    """
    values = declarations.values(declarations.flags_of(REPORT), given)
    name = values["name"]
    if not name or pathlib.Path(name).name != name or name.startswith("."):
        raise errors.UserError(
            f"--name must be the name of a file without its folder, found {name!r}. "
            "--output_dir says where it goes."
        )
    wanted = analyses.request({**values, "folders": given["folders"]})
    return PageRequest(analysis=wanted, name=name, title=values["title"])
