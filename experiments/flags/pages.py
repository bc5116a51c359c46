"""What `tff-drift report` is asked for."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import analyses, declarations, errors
from experiments.flags.analyses import Analysis
from experiments.flags.flag import ANALYZE, Depends, Flag

_NAME = Flag(
    "name",
    "text",
    "What the files are called: NAME.html, NAME.md and NAME_figures.",
    "report",
    group="Figures and files",
)
_TITLE = Flag(
    "title",
    "text",
    "The heading of the page.",
    Depends("what is reported"),
    group="Figures and files",
)
# Where a page differs from the tables and figures of `tff-drift analyze`.
_DEFAULTS: dict[str, Any] = {"axes": ("round",), "output_dir": "results/report"}


@dataclasses.dataclass(frozen=True)
class PageRequest:
    """A page of results as a user asks for it.

    Attributes:
      analysis: What to tell of the runs, and the folder for the page.
      name: The name of its files, without ending.
      title: Its heading, `None` for one that is made of what is reported.
    """

    analysis: Analysis
    name: str
    title: str | None


def flags() -> dict[str, Flag]:
    """Returns the flags of `tff-drift report` by name."""
    found = declarations.flags_of(ANALYZE)
    for name, default in _DEFAULTS.items():
        found[name] = dataclasses.replace(found[name], default=default)
    # What is drawn against a setting belongs to one comparison, not to a page.
    del found["against"]
    return {**found, _NAME.name: _NAME, _TITLE.name: _TITLE}


def request(given: Mapping[str, Any]) -> PageRequest:
    """Returns what is asked for.

    Args:
      given: The values of the flags that are given, by name, and `folders`.

    Raises:
      UserError: If there is no such folder, or the name is not a file name.
    """
    values = declarations.values(flags(), given)
    name = values["name"]
    if not name or pathlib.Path(name).name != name or name.startswith("."):
        raise errors.UserError(
            f"--name must be the name of a file without its folder, found {name!r}. "
            "--output_dir says where it goes."
        )
    defaults = {**_DEFAULTS, **given}
    own = ("name", "title")
    wanted = analyses.request({k: v for k, v in defaults.items() if k not in own})
    return PageRequest(analysis=wanted, name=name, title=values["title"])
