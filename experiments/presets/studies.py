"""What presets are made of: studies, each a comparison in a folder of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from experiments.flags import found_settings, settings
from experiments.flags.presets import Request
from experiments.flags.settings import RunSettings
from experiments.reports import writing
from experiments.reports.results import Result
from experiments.training import comparison

METRICS_FILE = "metrics.csv"


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


@dataclasses.dataclass(frozen=True)
class Study:
    """Variants that are compared on one task.

    Attributes:
      part: The part of the preset, which names the folder.
      flags: The flags of `tff-drift train` that all variants share, by name.
      variants: The variants.
    """

    part: str
    flags: Mapping[str, Any]
    variants: Sequence[Variant]


def run_settings(
    request: Request, study: Study, variant: Variant, seed: int
) -> RunSettings:
    """Returns one run of a study.

    Args:
      request: What is asked for.
      study: The study.
      variant: One of its variants, or a changed one.
      seed: The seed.

    Returns:
      The run, as the same flags of `tff-drift train` would give it.

    Raises:
      UserError: If a flag does not fit the task or the algorithm.
    """
    folder = request.folder / study.part / variant.label / f"seed_{seed}"
    given = {
        **flags_of(request, study, variant),
        "seed": seed,
        "output_dir": str(folder),
    }
    return settings.resolve(given, variant.label)


def flags_of(request: Request, study: Study, variant: Variant) -> dict[str, Any]:
    """Returns the flags that a variant's runs share, by name.

    Args:
      request: What is asked for.
      study: The study.
      variant: One of its variants, or a changed one.

    Raises:
      UserError: If a file of settings does not fit the variants.
    """
    circumstances = dict(request.circumstances)
    paths = circumstances.pop("settings", ())
    named = {each.algorithm: None for each in study.variants}
    return {
        **study.flags,
        **variant.flags,
        **found_settings.of(paths, list(named))[variant.algorithm],
        **circumstances,
        "algorithm": variant.algorithm,
    }


def run_study(request: Request, study: Study) -> list[Result]:
    """Trains all variants of a study with all seeds and writes its files.

    The folder of the study gets what `tff-drift compare` writes: table.md, table.csv,
    curves.png, summary.json, config.json, and a folder per variant and seed. What is
    finished is not repeated.

    Args:
      request: What is asked for.
      study: The study.

    Returns:
      The results, seed by seed.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for cannot be had.
    """
    runs = [
        run_settings(request, study, variant, seed)
        for seed in request.seeds
        for variant in study.variants
    ]
    flags = {
        "preset": request.preset.name,
        "scale": request.scale,
        "part": study.part,
        "seeds": request.seeds,
        **request.circumstances,
        **study.flags,
    }
    return comparison.run(request.folder / study.part, flags, runs)


def write_metrics(
    request: Request,
    study: Study,
    done: Sequence[Result],
    columns: Mapping[str, str],
) -> None:
    """Writes one small table of what all runs of a study measured.

    `metrics.csv` has a row per run and evaluation; the metrics of every round are in
    the folders of the runs.

    Args:
      request: What is asked for.
      study: The study.
      done: Its results.
      columns: The columns to keep, and their names in the file. A column that a
        method does not have stays empty.

    Raises:
      OSError: If the file cannot be written.
    """
    rows = [
        {
            "method": result.settings.label,
            "seed": result.settings.seed,
            "round": row["round"],
            **{new: row.get(old) for old, new in columns.items()},
        }
        for result in done
        for row in result.rows
        if result.headline in row
    ]
    table = pd.DataFrame(rows)
    numbers = table.select_dtypes("float").columns
    # Five digits are more than seeds agree on, and keep the file small.
    table[numbers] = table[numbers].map(lambda value: float(f"{value:.5g}"))
    writing.write_table(request.folder / study.part / METRICS_FILE, table)
