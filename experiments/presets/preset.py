"""The parts of presets: studies at two scales, and their tables and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.flags.flag import SCALES


@dataclasses.dataclass(frozen=True)
class Variant:
    """One line of a study's table.

    Attributes:
      label: What tables, figures and folders call it.
      algorithm: The algorithm's name.
      flags: Its flags of `tff-drift train`, beyond those of the study, by name.
    """

    label: str
    algorithm: str
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def with_flags(self, suffix: str, **flags: Any) -> Variant:
        """Returns the variant with more flags, and a suffix to its label."""
        return Variant(f"{self.label}{suffix}", self.algorithm, {**self.flags, **flags})


def crossed(
    variants: Iterable[Variant | str], flag: str, values: Iterable[Any], suffix: str
) -> tuple[Variant, ...]:
    """Returns each variant at each value of a flag.

    Args:
      variants: The variants; a text is an algorithm with its default flags.
      flag: The flag's name.
      values: Its values.
      suffix: What to add to labels, with "{}" for the value, as "_m{}".
    """
    plain = [
        Variant(each, each) if isinstance(each, str) else each for each in variants
    ]
    return tuple(
        each.with_flags(suffix.format(value), **{flag: value})
        for each in plain
        for value in values
    )


@dataclasses.dataclass(frozen=True)
class Search:
    """The choice of hyperparameters by sweeps on clients that are held out.

    Attributes:
      rounds: The rounds of training at each point.
      grids: Of each variant's label, the values to try by names of flags. A grid of a
        single point is not searched; a variant without a grid stays as it is.
      taken: Of a variant's label, the variant before it whose choice it takes, and the
        flags of that choice.
    """

    rounds: int
    grids: Mapping[str, Mapping[str, Sequence[Any]]]
    taken: Mapping[str, tuple[str, tuple[str, ...]]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True)
class Output:
    """A table or a figure that is made of a study's results.

    Attributes:
      name: The name of its files, without ending.
      kind: What it is: a name in `TABLES` or `FIGURES` of
        `experiments.reports.outputs`.
      options: What it takes besides the results.
    """

    name: str
    kind: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Study:
    """Variants that are compared on one task: a part of a preset.

    Attributes:
      part: The part of the preset, which names the folder.
      flags: The flags of `tff-drift train` that all variants share, by name.
      variants: The variants.
      search: How their hyperparameters are found, if they are.
      outputs: Tables and figures beyond those of every comparison.
      columns: The columns of metrics.csv that the outputs need beyond the usual ones,
        and their names in the study's table of metrics.
    """

    part: str
    flags: Mapping[str, Any]
    variants: Sequence[Variant]
    search: Search | None = None
    outputs: Sequence[Output] = ()
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Scale:
    """The scale of a preset: its studies and searches.

    Attributes:
      studies: Its studies, one for each part, in the order in which they run.
      hours: About how long all of it takes with the default seeds, on the machine that
        `machine` names.
      gigabytes: The RAM that a process needs at the most.
      machine: What the hours were measured or estimated on.
    """

    studies: Sequence[Study]
    hours: float
    gigabytes: float
    machine: str = "one core"

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts."""
        return tuple(study.part for study in self.studies)


@dataclasses.dataclass(frozen=True)
class Preset:
    """An experiment of a paper.

    Attributes:
      name: Its name.
      summary: One sentence on what it shows.
      source: Paper, tables and figures that it repeats.
      local: The experiment for two cores.
      paper: The paper's protocol, for a GPU and the official data.
    """

    name: str
    summary: str
    source: str
    local: Scale
    paper: Scale

    def scale(self, name: str) -> Scale:
        """Returns what is run at a scale, "local" or "paper"."""
        return dict(zip(SCALES, (self.local, self.paper), strict=True))[name]

    def study(self, scale: str, part: str) -> Study:
        """Returns the study of a part; raises `KeyError` if the scale lacks it."""
        return {each.part: each for each in self.scale(scale).studies}[part]
