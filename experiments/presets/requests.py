"""The request of `tff-drift preset`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import declarations, errors, placement, tuned_settings
from experiments.flags.errors import UserError
from experiments.flags.flag import PRESET
from experiments.flags.placement import ON_THIS_MACHINE, Placement
from experiments.presets.catalogue import PRESETS
from experiments.presets.preset import Preset, Study

_CIRCUMSTANCES = ("cache_dir", "execution", "plugin", "ray_address", "settings")


@dataclasses.dataclass(frozen=True)
class Request:
    """A preset as a user asks for it.

    Attributes:
      preset: The preset.
      scale: "local" or "paper".
      parts: The parts to run, in their order.
      seeds: The seeds, each for a run of every method.
      folder: The folder for the results.
      circumstances: The flags of `tff-drift train` given for all runs: where the
        data is and where computations run.
      placement: Where the runs train.
      verify: Whether to compare with the results that are kept, and write none.
    """

    preset: Preset
    scale: str
    parts: tuple[str, ...]
    seeds: tuple[int, ...]
    folder: pathlib.Path
    circumstances: Mapping[str, Any]
    placement: Placement = ON_THIS_MACHINE
    verify: bool = False

    @property
    def studies(self) -> list[Study]:
        """The studies of the parts to run."""
        return [self.preset.study(self.scale, part) for part in self.parts]


def request(name: str, given: Mapping[str, Any]) -> Request:
    """Returns what is asked for.

    Args:
      name: The preset's name.
      given: The values of the flags that are given, by name.

    Returns:
      The request, checked.

    Raises:
      UserError: If there is no such preset, it has no such part, a flag has no meaning
        with --verify, or a file of settings is for no task of its parts.
    """
    if name not in PRESETS:
        raise errors.unknown("preset", name, tuple(PRESETS))
    preset, values = (
        PRESETS[name],
        declarations.values(declarations.flags_of(PRESET), given),
    )
    scale = values["scale"]
    known = preset.scale(scale).parts
    wanted = values["parts"] or known
    for part in wanted:
        if part not in known:
            raise errors.unknown(f"part of {name} at the scale {scale}", part, known)
    if values["verify"]:
        _check_verification(given)
    place, given = placement.take(given)
    tasks = [preset.study(scale, part).flags["task"] for part in wanted]
    tuned_settings.check_tasks(given.get("settings"), tasks)
    return Request(
        preset=preset,
        scale=scale,
        parts=tuple(part for part in known if part in wanted),
        seeds=values["seeds"],
        folder=pathlib.Path(values["output_dir"] or f"results/{name}/{scale}"),
        circumstances={flag: given[flag] for flag in _CIRCUMSTANCES if flag in given},
        placement=place,
        verify=values["verify"],
    )


def _check_verification(given: Mapping[str, Any]) -> None:
    """Raises unless flags have a meaning for runs of this process that are not kept."""
    if given.get("execution") == "ray":
        raise UserError("--verify trains in this process: leave out --execution=ray.")
    for name in ("output_dir", "processes"):
        if name in given:
            raise UserError(
                f"--{name} has no meaning with --verify, which trains one run after "
                "the other and keeps none. Leave it out."
            )
