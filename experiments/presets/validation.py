"""Validates what a preset says, before anything of it runs.

Names and values of flags are validated when a preset is run: a task or a method that
has them may be registered later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from experiments.flags.flag import SCALES
from experiments.presets.preset import Output, Preset, Scale, Search, Study, Variant
from tff_drift import checks

# The flags that a preset's folders and variants decide.
_DECIDED = {
    "algorithm": "the algorithm of a variant",
    "output_dir": "--output_dir of the command",
    "seed": "--seeds of the command",
}


def check(preset: Preset) -> None:
    """Raises unless the parts of a preset fit together.

    Args:
      preset: The preset.

    Raises:
      TypeError: If something has the wrong type.
      ValueError: If something is out of range, or does not fit the rest.
    """
    checks.check_file_name("name of a preset", preset.name)
    about = f"preset {checks.shown(preset.name)}"
    for name in ("summary", "source"):
        checks.check_text(f"{about}: {name}", getattr(preset, name))
    for name, scale in zip(SCALES, (preset.local, preset.paper), strict=True):
        checks.check_instance(f"{about}: {name}", scale, Scale, "a Scale")
        checks.check_non_negative(f"{about}: hours", scale.hours)
        checks.check_non_negative(f"{about}: gigabytes", scale.gigabytes)
        _check_list(f"{about}: studies", scale.studies, Study)
        for study in scale.studies:
            checks.check_file_name(f"{about}: part", study.part)
        _check_different(f"{about}: parts", scale.parts)
        for study in scale.studies:
            _check_study(f"{about}, part {checks.shown(study.part)}", study)


def _check_study(about: str, study: Study) -> None:
    _check_flags(f"{about}: flags", study.flags)
    if "task" not in study.flags:
        raise ValueError(
            f"{about}: flags must have a task, found {checks.shown(study.flags)}. Give "
            "them one, as in {'task': 'digits'}."
        )
    _check_list(f"{about}: variants", study.variants, Variant)
    for variant in study.variants:
        checks.check_file_name(f"{about}: label", variant.label)
        of_variant = f"{about}, variant {checks.shown(variant.label)}"
        checks.check_text(f"{of_variant}: algorithm", variant.algorithm)
        _check_flags(f"{of_variant}: flags", variant.flags)
        _check_task_is_absent(f"{of_variant}: flags", variant.flags)
    _check_different(f"{about}: labels", [each.label for each in study.variants])
    if study.search is not None:
        checks.check_instance(f"{about}: search", study.search, Search, "a Search")
        _check_search(about, study.search, study.variants)
    checks.check_list(f"{about}: outputs", study.outputs, "a list of Output")
    for output in study.outputs:
        checks.check_instance(f"{about}: outputs", output, Output, "a list of Output")
        checks.check_file_name(f"{about}: name of an output", output.name)
    _check_different(f"{about}: outputs", [each.name for each in study.outputs])
    checks.check_instance(f"{about}: columns", study.columns, Mapping, "a mapping")


def _check_search(about: str, search: Search, variants: Sequence[Variant]) -> None:
    checks.check_integer(f"{about}: rounds of the search", search.rounds)
    labels = [variant.label for variant in variants]
    for name in ("grids", "taken"):
        of_labels = getattr(search, name)
        checks.check_instance(f"{about}: {name}", of_labels, Mapping, "a mapping")
        for label in of_labels:
            checks.check_one_of(f"{about}: a label in {name}", label, labels)
    for label, grid in search.grids.items():
        of_grid = f"{about}: grid of {checks.shown(label)}"
        _check_flags(of_grid, grid)
        _check_task_is_absent(of_grid, grid)
        for flag, values in grid.items():
            name = f"{of_grid}: {flag}"
            # NumPy, whose arrays are taken too, is slow to import.
            listed = values.tolist() if hasattr(values, "tolist") else values
            checks.check_list(name, listed, "a list of values")
            if not listed:
                raise ValueError(f"{name} must have at least one value, found none.")
    # What variants before one have, which is what it can take of them.
    known: dict[str, set[str]] = {}
    for variant in variants:
        flags = {*variant.flags, *search.grids.get(variant.label, {})}
        if variant.label in search.taken:
            of_taken = f"{about}: taken by {checks.shown(variant.label)}"
            flags |= _check_taken(of_taken, search, variant.label, known)
        known[variant.label] = flags


def _check_taken(
    about: str, search: Search, label: str, known: Mapping[str, Collection[str]]
) -> set[str]:
    """Raises unless a variant takes what those before it have; returns the flags."""
    taken = search.taken[label]
    if not isinstance(taken, (tuple, list)) or len(taken) != 2:
        raise TypeError(
            f"{about} must be a pair of a label and names of flags, found "
            f"{checks.shown(taken)}."
        )
    source, names = taken
    if source not in known:
        raise ValueError(
            f"{about}: {checks.shown(source)} must be the label of a variant before "
            f"it, which are {checks.listed(known) or 'none'}."
        )
    checks.check_list(f"{about}: flags", names, "a list of names")
    if not known[source]:
        raise ValueError(
            f"{about}: {checks.shown(source)} has no flags of its own, nor a grid. "
            "Those of the study are shared anyway."
        )
    for name in names:
        checks.check_one_of(f"{about}: a flag", name, sorted(known[source]))
        if name in search.grids.get(label, {}):
            raise ValueError(
                f"{about}: {name} is in its grid too. Leave it out of one."
            )
    return set(names)


def _check_list(name: str, values: Any, kind: type) -> None:
    """Raises unless a value is a sequence of some class, and not empty."""
    what = f"a list of {kind.__name__}"
    checks.check_list(name, values, what)
    for value in values:
        checks.check_instance(name, value, kind, what)
    if not values:
        raise ValueError(f"{name} must have at least one {kind.__name__}, found none.")


def _check_different(name: str, texts: Collection[str]) -> None:
    """Raises a `ValueError` if two texts, which name files or folders, are the same."""
    for text in texts:
        if list(texts).count(text) > 1:
            raise ValueError(
                f"{name} must be different, found {checks.shown(text)} more than once."
            )


def _check_flags(name: str, flags: Any) -> None:
    """Raises unless a value maps names to something, and none is decided elsewhere."""
    checks.check_instance(name, flags, Mapping, "a mapping from names of flags")
    for flag in flags:
        checks.check_text(f"{name}: a name", flag)
        if flag in _DECIDED:
            raise ValueError(
                f"{name} must not have {flag}: {_DECIDED[flag]} decides it. Leave it "
                "out."
            )


def _check_task_is_absent(name: str, flags: Mapping[str, Any]) -> None:
    if "task" in flags:
        raise ValueError(
            f"{name} must not have task, which the variants of a study share. Give the "
            "other task a study of its own."
        )
