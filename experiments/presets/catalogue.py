"""All presets by name: those of this package's modules, and a user's own."""

from __future__ import annotations

import importlib
import pathlib

from experiments.presets import validation
from experiments.presets.preset import Preset
from tff_drift import registrations

PRESETS: dict[str, Preset] = {}


def register(preset: Preset) -> Preset:
    """Adds a preset to those that `tff-drift preset` runs.

    Args:
      preset: The preset.

    Returns:
      The preset.

    Raises:
      TypeError: If it is not a `Preset`, or a part of it has the wrong type; the
        message names the part.
      ValueError: If a part of it does not fit the others, or another preset has its
        name, unless the module that registered that one, such as a cell of a notebook,
        does so anew.
    """
    if not isinstance(preset, Preset):
        raise TypeError(f"preset must be a Preset, found {type(preset).__name__}.")
    validation.check(preset)
    other = PRESETS.get(preset.name)
    if not registrations.may_be("preset", preset.name, preset, other):
        raise ValueError(
            f"a preset named {preset.name!r} is registered already. Choose another "
            "name."
        )
    PRESETS[preset.name] = preset
    return preset


def _register_those_of_this_package() -> None:
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        if "\nPRESETS = " in path.read_text(encoding="utf-8"):
            module = importlib.import_module(f"experiments.presets.{path.stem}")
            for preset in module.PRESETS:
                register(preset)


_register_those_of_this_package()
