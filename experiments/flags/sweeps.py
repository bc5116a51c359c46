"""What `tff-drift sweep` is asked for: values of flags, points, runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.flags import declarations, errors, settings
from experiments.flags.errors import UserError
from experiments.flags.flag import CIRCUMSTANCES, TRAIN, WHAT, Depends, Flag
from experiments.flags.settings import RunSettings
from tff_drift import kinds

# Their own or decided by the sweep.
_NOT_SWEPT = ("seed", "plugin", "settings")
_RANGES = ("lin", "log")
_OWN = (
    Flag(
        "seeds",
        "seed",
        "Seeds, separated by commas: each point runs once with each. That of reported "
        "runs is better another.",
        (0,),
        many=True,
        group=WHAT,
    ),
    Flag(
        "points",
        "count",
        "Draw so many points at random, rather than take the whole grid.",
        Depends("the whole grid"),
        group=WHAT,
    ),
    Flag(
        "processes",
        "count",
        "Runs trained at a time.",
        Depends("as cores and RAM allow"),
        group=CIRCUMSTANCES,
    ),
)


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

    def draw(self, generator: random.Random) -> Any:
        """Returns a value at random: of a list one, of a range any in it."""
        if not self.spread:
            return generator.choice(self.values)
        share = generator.random()
        return _value(self.flag, _between(self.spread, *self.bounds, share))


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A search.

    Attributes:
      axes: What varies.
      points: The points, values by names of flags.
      runs: The runs, in the order of the points: one per seed.
      folder: The folder for the results.
      processes: Runs to train at a time, `None` for what fits.
      plugins: Files of the user that the runs need.
      fixed: The flags that are given for all points.
    """

    axes: tuple[Axis, ...]
    points: tuple[dict[str, Any], ...]
    runs: tuple[tuple[RunSettings, ...], ...]
    folder: pathlib.Path
    processes: int | None
    plugins: tuple[str, ...]
    fixed: Mapping[str, Any]


def flags() -> dict[str, Flag]:
    """Returns the flags of `tff-drift sweep` by name: those of runs, and its own."""
    known = declarations.flags_of(TRAIN)
    del known["seed"]
    return {**known, **{flag.name: flag for flag in _OWN}}


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
    fixed = {name: value for name, value in given.items() if name != "axes"}
    for name in names:
        if names.count(name) > 1 or name in fixed:
            raise UserError(f"--{name} is given more than once.")
    own = {flag.name: fixed.pop(flag.name, flag.value) for flag in _OWN}
    return build(axes, fixed, own["seeds"], own["points"], own["processes"])


def build(
    axes: Sequence[Axis],
    fixed: Mapping[str, Any],
    seeds: Sequence[int],
    points: int | None = None,
    processes: int | None = None,
) -> Sweep:
    """Returns a search.

    Args:
      axes: What varies, each a flag of its own.
      fixed: The values of the flags that are given for all points, by name.
      seeds: The seeds of every point.
      points: How many points to draw at random; by default the whole grid.
      processes: Runs to train at a time; by default what fits.

    Raises:
      UserError: If a flag is not right, in any point.
    """
    names = [axis.flag.name for axis in axes]
    if points is None:
        values = [axis.values for axis in axes]
        wanted = [dict(zip(names, point)) for point in itertools.product(*values)]
    else:
        generator = random.Random(0)
        drawn = [
            {axis.flag.name: axis.draw(generator) for axis in axes}
            for _ in range(points)
        ]
        # A point that was drawn twice is run once.
        wanted = list({label(point): point for point in drawn}.values())
    task = fixed.get("task", declarations.flags_of(TRAIN)["task"].value)
    folder = pathlib.Path(fixed.get("output_dir") or f"results/sweep/{task}")
    return Sweep(
        axes=tuple(axes),
        points=tuple(wanted),
        runs=tuple(
            tuple(_run(fixed, point, seed, folder) for seed in seeds)
            for point in wanted
        ),
        folder=folder,
        processes=processes,
        plugins=tuple(fixed.get("plugin") or ()),
        fixed={**fixed, "seeds": tuple(seeds)},
    )


def axis(name: str, values: Sequence[Any]) -> Axis:
    """Returns an axis of a grid.

    Args:
      name: The name of a flag of runs.
      values: Its values to try.
    """
    return Axis(declarations.flags_of(TRAIN)[name], tuple(values))


def label(point: Mapping[str, Any]) -> str:
    """Returns what a point is called, in tables and in names of folders."""
    return ",".join(f"{name}={kinds.show(value)}" for name, value in point.items())


def _run(
    fixed: Mapping[str, Any], point: Mapping[str, Any], seed: int, folder: pathlib.Path
) -> RunSettings:
    place = folder / label(point).replace("/", "_") / f"seed_{seed}"
    return settings.resolve(
        {**fixed, **point, "seed": seed, "output_dir": str(place)}, label(point)
    )


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
    if name in _NOT_SWEPT or flag.group == CIRCUMSTANCES:
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
    shares = [position / (count - 1) for position in range(count)]
    values = [_value(flag, _between(spread, low, high, share)) for share in shares]
    return Axis(flag, tuple(dict.fromkeys(values)), spread, (low, high))


def _between(spread: str, low: float, high: float, share: float) -> float:
    if spread == "log":
        return low * (high / low) ** share
    return low + share * (high - low)


def _value(flag: Flag, number: float) -> Any:
    """Returns the value of a flag nearest to a number, of four digits."""
    whole = flag.kind in ("count", "whole", "seed")
    text = str(round(number)) if whole else f"{number:.4g}"
    with errors.as_user_errors(ValueError):
        return flag.read(text, f"--{flag.name}")
