"""Runs presets: study by study, from the search for settings to tables and figures."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from experiments.analysis.studies import METRICS_FILE
from experiments.flags import declarations, errors, settings, tuned_settings
from experiments.flags.errors import UserError
from experiments.flags.flag import TRAIN
from experiments.flags.placement import IN_THIS_PROCESS, Placement
from experiments.flags.settings import RunSettings
from experiments.presets.preset import Study, Variant
from experiments.presets.requests import Request
from experiments.reports import outputs, texts, writing
from experiments.reports.results import Result
from experiments.training import comparison, log, runs, searches

_FAILURES = ("catastrophic_failure", "non_finite")
# What analyses of any study need.
_USUAL = (
    *("test_loss", "test_num_examples", "cohort_size"),
    *("total_examples", "total_bytes"),
)


def run(request: Request) -> None:
    """Runs the parts asked for and writes their files; what is finished is kept.

    Args:
      request: What is asked for.

    Raises:
      KeyboardInterrupt: On Ctrl-C.
      UserError: If something asked for is not available.
    """
    log.show()
    check(request)
    for study in request.studies:
        folder, task = request.folder / study.part, study.flags["task"]
        comparison.check_files(folder, _flags(request, study), {task})
    _check_data(request)
    for study in request.studies:
        chosen = searches.choose(
            study,
            request.folder,
            functools.partial(flags_of, request),
            request.placement,
        )
        done = run_study(request, chosen)
        write_metrics(request, study, done)
        tables = outputs.write(request.folder / study.part, study)
        # After all files, which a reader that closes the output early gets too.
        comparison.show(done, study.part)
        for table in tables:
            print(f"\n{table.title}")
            texts.print_table(table.headers, table.cells)


def check(request: Request) -> None:
    """Raises a `UserError` if a variant cannot run, or an output cannot be made.

    Args:
      request: What is asked for, of a plugin's preset perhaps without its method.
    """
    known = declarations.flags_of(TRAIN)["algorithm"].choices
    kinds = {**outputs.TABLES, **outputs.FIGURES}
    for study in request.studies:
        about = f"preset {request.preset.name!r}, part {study.part!r}: "
        for output in study.outputs:
            if output.kind not in kinds:
                what = f"kind of the output {output.name!r}:"
                raise UserError(f"{about}{errors.unknown(what, output.kind, kinds)}")
        for variant in study.variants:
            if variant.algorithm not in known:
                raise UserError(
                    f"{about}the variant {variant.label!r} asks for the algorithm "
                    f"{variant.algorithm!r}, which is not registered. Register it in "
                    "the plugin, or give its own file to --plugin too."
                )
        for variant in searches.with_each_value(study):
            try:
                run_settings(request, study, variant, request.seeds[0])
            except UserError as error:
                raise UserError(f"{about}variant {variant.label!r}: {error}") from error


def _check_data(request: Request) -> None:
    """Raises if the data of a part is not available, before hours of others are run."""
    for study in request.studies:
        run = run_settings(request, study, study.variants[0], request.seeds[0])
        try:
            runs.check_data(run)
        except UserError as error:
            raise UserError(
                f"{error} A preset takes neither --download nor --synthetic: "
                f"`tff-drift data fetch --task={run.task}` downloads the data, or "
                f"--parts leaves out the part {study.part}, which it is for."
            ) from error


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
    # What was found on one task says nothing of the parts on others.
    found = circumstances.pop("settings", ())
    paths = tuned_settings.for_task(found, study.flags["task"])
    named = {each.algorithm: None for each in study.variants}
    return {
        **study.flags,
        **variant.flags,
        **tuned_settings.of(paths, list(named))[variant.algorithm],
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
      UserError: If something asked for is not available.
    """
    of_study = [
        run_settings(request, study, variant, seed)
        for seed in request.seeds
        for variant in study.variants
    ]
    return comparison.run(
        request.folder / study.part,
        _flags(request, study),
        of_study,
        _placement(request),
    )


def _flags(request: Request, study: Study) -> dict[str, Any]:
    """Returns what the files of a study say that it is."""
    return {
        "preset": request.preset.name,
        "scale": request.scale,
        "part": study.part,
        "seeds": request.seeds,
        **request.circumstances,
        **study.flags,
    }


def _placement(request: Request) -> Placement:
    """Returns where the runs of a study train."""
    if request.circumstances.get("execution", "local") != "local":
        return IN_THIS_PROCESS  # A worker is shared by all runs.
    asked = request.placement
    needed = 1e9 * request.preset.scale(request.scale).gigabytes
    return dataclasses.replace(asked, bytes_per_run=max(needed, asked.bytes_per_run))


def write_metrics(request: Request, study: Study, done: Sequence[Result]) -> None:
    """Writes one small table of what all runs of a study measured.

    It has a row per run and evaluation; the metrics of every round are in the folders
    of the runs. Failures are counted since the evaluation before.

    Args:
      request: What is asked for.
      study: The study, which says what columns it needs.
      done: Its results.

    Raises:
      OSError: If the file cannot be written.
    """
    table = table_of_metrics(study, done)
    writing.write_compressed_table(request.folder / study.part / METRICS_FILE, table)


def table_of_metrics(study: Study, done: Sequence[Result]) -> pd.DataFrame:
    """Returns a row per run and evaluation, with the columns that a study needs.

    Args:
      study: The study.
      done: Its results.
    """
    names = (done[0].headline, *_USUAL)
    columns = {**dict(zip(names, names, strict=True)), **study.columns}
    table = pd.DataFrame([row for result in done for row in _rows(result, columns)])
    numbers = table.select_dtypes("float").columns
    # Five digits are more than seeds agree on, and keep the file small.
    table[numbers] = table[numbers].map(lambda value: float(f"{value:.5g}"))
    return table


def _rows(result: Result, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns a row per evaluation; a column that a method lacks stays empty."""
    rows, broken, simulated = [], dict.fromkeys(_FAILURES, 0.0), 0.0
    for row in result.rows:
        for name in broken:
            broken[name] += row.get(name) or 0.0
        simulated += row.get("simulated_seconds") or 0.0
        if result.headline not in row:
            continue
        record = {
            "method": result.settings.label,
            "seed": result.settings.seed,
            "round": row["round"],
            **{new: row.get(old) for old, new in columns.items()},
            **broken,
        }
        if simulated:
            record["total_simulated_seconds"] = simulated
        rows.append(record)
        broken = dict.fromkeys(_FAILURES, 0.0)
    return rows
