"""Flags, and the constants that describe them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_drift.value_types import Option

TRAIN, COMPARE, LIST, DATA, PRESET = "train", "compare", "list", "data", "preset"
SWEEP, ANALYZE, REPORT, DIAGNOSE = "sweep", "analyze", "report", "diagnose"
RUNS = (TRAIN, COMPARE, SWEEP)
TASKS = (*RUNS, DIAGNOSE, DATA)
# Whose options flags set.
ALGORITHM, TASK = "algorithm", "task"
# What flags may need to mean something: cohorts of clients, clients that take local
# steps or keep states, a server whose step has a learning rate, or that has data of
# its own.
COHORTS = "cohorts"
LOCAL, STATES, SERVER = "local steps", "client states", "server rate"
META = "the server's data"
# How a sweep chooses its points, and how much of a preset runs.
GRID, RANDOM, TPE = "grid", "random", "tpe"
SCALES = ("local", "paper")
# The headings of what plugins add to, and of flags that results do not depend on.
WHAT, CIRCUMSTANCES = "What to run", "Files and speed"
OPTION_GROUPS = {each: f"Options, each of some {each}s" for each in (ALGORITHM, TASK)}


class Depends(str):
    """A default that other flags decide, as help describes it."""


@dataclasses.dataclass(frozen=True)
class Flag(Option):
    """A flag: something to choose, with its place on the command line.

    Attributes:
      needs: What a run must have for the flag to mean something: one of the constants
        above, a flag that is on ("switch"), or one with some value ("name=one|other").
      requires: The flags that must be given too, by the values that require them.
      many: Whether it takes several values, separated by commas.
      commands: The commands that have it.
      is_first: Whether the short help shows it.
      group: The heading under which help lists it.
      of: Whose option it sets: `ALGORITHM`, `TASK`, or nobody's.
      options: The options that it sets, by the algorithms or tasks that have them.
    """

    needs: str = ""
    requires: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    many: bool = False
    commands: tuple[str, ...] = RUNS
    is_first: bool = False
    group: str = ""
    of: str = ""
    options: Mapping[str, Option] = dataclasses.field(default_factory=dict)

    @property
    def value(self) -> Any:
        """The default, `None` where other flags decide it."""
        return None if isinstance(self.default, Depends) else self.default
