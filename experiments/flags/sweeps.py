"""The request of `tff-drift sweep`: values of flags, points, runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.flags import declarations, errors, placement, settings
from experiments.flags.errors import UserError
from experiments.flags.flag import (
    CIRCUMSTANCES,
    GRID,
    RANDOM,
    SWEEP,
    TRAIN,
    Flag,
)
from experiments.flags.placement import Placement
from experiments.flags.settings import RunSettings
from tff_drift import value_types

# More points than anybody trains are a mistake, and take long to be checked.
MAX_POINTS = 10_000
# Their own or decided by the sweep; of several tasks no point is the best.
_NOT_SWEPT = ("seed", "plugin", "settings", "execution", "task")
_RANGES = ("lin", "log")
# The flags that say which runs there are, rather than what a run is.
_OWN = ("seeds", "points", "sampler", "prune")


@dataclasses.dataclass(frozen=True)
class Axis:
    """A flag with the values to try.

    Attributes:
      flag: The flag.
      values: The values of a grid, in order.
      spread: "lin" or "log" of a range, "" of a list.
      bounds: The ends of the range.
    """

    flag: Flag
    values: tuple[Any, ...]
    spread: str = ""
    bounds: tuple[float, float] = (0.0, 0.0)

    @property
    def is_whole(self) -> bool:
        """Whether its values are integers."""
        return self.flag.value_type in ("count", "batches", "whole", "seed")

    def value(self, number: float) -> Any:
        """Returns the value of the flag nearest to a number, of four digits."""
        text = str(round(number)) if self.is_whole else f"{number:.4g}"
        with errors.as_user_errors(ValueError):
            return self.flag.read(text, f"--{self.flag.name}")


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A search.

    Attributes:
      axes: What varies.
      fixed: The flags that are given for all points.
      seeds: The seeds of every point.
      sampler: How points are chosen: `GRID`, `RANDOM` or `TPE`.
      num_points: How many points to try.
      prune: Whether points that do badly are given up before their end.
      folder: The folder for the results.
      placement: Where the runs train.
    """

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Any]
    seeds: tuple[int, ...]
    sampler: str
    num_points: int
    prune: bool
    folder: pathlib.Path
    placement: Placement

    @property
    def has_range(self) -> bool:
        """Whether there is a range, of which points beside the grid's may be tried."""
        return any(axis.spread for axis in self.axes)

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yields the points of the grid in order, values by names of flags."""
        return self._product([axis.values for axis in self.axes])

    def corners(self) -> Iterator[dict[str, Any]]:
        """Yields points with every value of lists, and with the ends of ranges."""
        return self._product(
            [
                (axis.values[0], axis.values[-1]) if axis.spread else axis.values
                for axis in self.axes
            ]
        )

    def _product(self, values: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
        names = [axis.flag.name for axis in self.axes]
        return (
            dict(zip(names, point, strict=True)) for point in itertools.product(*values)
        )

    def runs(self, point: Mapping[str, Any]) -> tuple[RunSettings, ...]:
        """Returns the runs of a point, one for each seed.

        Args:
          point: Values by names of flags.

        Raises:
          UserError: If a flag is not right.
        """
        place = self.folder / _file_name(label(point))
        return tuple(
            settings.resolve(
                {
                    **self.fixed,
                    **point,
                    "seed": seed,
                    "output_dir": str(place / f"seed_{seed}"),
                },
                label(point),
            )
            for seed in self.seeds
        )


def request(given: Mapping[str, Any]) -> Sweep:
    """Returns what is asked for.

    Args:
      given: The values of the flags that are given, by name, and `axes`, words such
        as "tau=0.001,0.01" and "client_learning_rate=log:0.01:1:5".

    Raises:
      UserError: If an axis or a flag is not right, in any point.
    """
    axes = tuple(_axis(word) for word in given["axes"])
    names = [axis.flag.name for axis in axes]
    place, fixed = placement.take(given)
    del fixed["axes"]
    for name in names:
        if names.count(name) > 1 or name in fixed:
            raise UserError(f"--{name} is given more than once.")
    known = declarations.flags_of(SWEEP)
    own = {name: fixed.pop(name, known[name].value) for name in _OWN}
    return build(axes, fixed, place=place, **own)


def build(
    axes: Sequence[Axis],
    fixed: Mapping[str, Any],
    seeds: Sequence[int],
    points: int | None = None,
    place: Placement = placement.ON_THIS_MACHINE,
    sampler: str | None = None,
    prune: bool = False,
) -> Sweep:
    """Returns a search.

    Args:
      axes: What varies, each a flag of its own.
      fixed: The values of the flags that are given for all points, by name.
      seeds: The seeds of every point.
      points: How many points to try; by default the whole grid.
      place: Where the runs train; by default as many on this machine as fit.
      sampler: How points are chosen; by default the grid, with `points` at random.
      prune: Whether points that do badly are given up before their end.

    Raises:
      UserError: If a flag is not right, in any point.
    """
    sampler = sampler or (GRID if points is None else RANDOM)
    size = math.prod(len(axis.values) for axis in axes)
    if sampler != GRID and points is None:
        raise UserError(f"--sampler={sampler} needs --points, the number to try.")
    if sampler == GRID and points is not None:
        raise UserError(
            "--points has no meaning for --sampler=grid, which takes all of them. "
            "Leave it out, or choose --sampler=random or tpe."
        )
    if (points or size) > MAX_POINTS:
        raise UserError(
            f"{points or size:,} points are more than {MAX_POINTS:,}. Ask for fewer, "
            "by a COUNT of LOW:HIGH:COUNT or by --points with --sampler=random or tpe."
        )
    task = fixed.get("task", declarations.flags_of(TRAIN)["task"].value)
    sweep = Sweep(
        axes=tuple(axes),
        fixed=dict(fixed),
        seeds=tuple(seeds),
        sampler=sampler,
        num_points=points or size,
        prune=prune,
        folder=pathlib.Path(fixed.get("output_dir") or f"results/sweep/{task}"),
        placement=place,
    )
    if sweep.num_points > size and not sweep.has_range:
        raise UserError(
            f"--points={points} is more than the {size} points of the lists. Ask for "
            "at most as many, or try all of them without --points and --sampler."
        )
    checked = sweep.grid() if sampler == GRID else sweep.corners()
    for point in itertools.islice(checked, MAX_POINTS):
        sweep.runs(point)
    return sweep


def axis(name: str, values: Sequence[Any]) -> Axis:
    """Returns an axis of a grid.

    Args:
      name: The name of a flag of runs.
      values: Its values to try.
    """
    return Axis(declarations.flags_of(TRAIN)[name], tuple(values))


def label(point: Mapping[str, Any]) -> str:
    """Returns what a point is called, in tables and in names of folders."""
    return ",".join(
        f"{name}={value_types.show(value)}" for name, value in point.items()
    )


def _file_name(text: str) -> str:
    """Returns the name of a file that no other text has."""
    return text.replace("%", "%25").replace("/", "%2F")


def _axis(word: str) -> Axis:
    """Returns the axis that a word spells."""
    name, equals, text = word.partition("=")
    known = declarations.flags_of(TRAIN)
    if name not in known:
        raise errors.unknown("flag", name, tuple(known))
    flag = known[name]
    if not equals or not text:
        raise UserError(
            f"{word!r} must be FLAG=VALUES, as client_learning_rate=0.1,0.3 or "
            "client_learning_rate=log:0.01:1:5."
        )
    if name in _NOT_SWEPT or flag.group == CIRCUMSTANCES or flag.many:
        raise UserError(f"--{name} cannot be swept.")
    spread, *rest = text.split(":")
    if spread in _RANGES:
        return _range(flag, spread, rest, word)
    with errors.as_user_errors(ValueError):
        parts = [part.strip() for part in text.split(",")]
        values = tuple(flag.read(part, f"--{name}") for part in parts)
    return Axis(flag, tuple(dict.fromkeys(values)))


def _range(flag: Flag, spread: str, rest: Sequence[str], word: str) -> Axis:
    try:
        low, high, count = float(rest[0]), float(rest[1]), int(rest[2])
        if len(rest) > 3 or count < 2 or not (low > 0 or spread == "lin"):
            raise ValueError(word)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(word)
    except (ValueError, IndexError):
        raise UserError(
            f"{word!r} must be {flag.name}={spread}:LOW:HIGH:COUNT, with LOW below HIGH"
            f"{', above 0,' if spread == 'log' else ''} and COUNT at least 2."
        ) from None
    if count > MAX_POINTS:
        raise UserError(f"{word!r}: COUNT must be at most {MAX_POINTS:,}.")
    axis = Axis(flag, (), spread, (low, high))
    shares = (position / (count - 1) for position in range(count))
    values = [axis.value(_between(spread, low, high, share)) for share in shares]
    if spread == "log" and values[0] == 0:
        raise UserError(f"{word!r}: LOW must be at least 1, for integers.")
    return dataclasses.replace(axis, values=tuple(dict.fromkeys(values)))


def _between(spread: str, low: float, high: float, share: float) -> float:
    if spread == "log":
        return low * (high / low) ** share
    return low + share * (high - low)
