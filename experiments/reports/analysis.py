"""The tables and figures of `tff-drift analyze`; without TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import sys
from collections.abc import Iterator, Sequence

import matplotlib.figure
import pandas as pd

from experiments import analysis, escape, stored_files
from experiments.analysis import FinishedRuns, clients, folders, style
from experiments.flags.analyses import Analysis
from experiments.reports import texts, writing
from tff_drift import files

TABLE, THRESHOLDS, PERSONALIZATION = "table", "thresholds", "personalization"
_REACHED = "reached"
# How many runs a row is of, where they are not its seeds.
_NUMBER = "number"
# Figures that not all runs have, or that not all calls ask for.
_CLIENTS, _NORMS, _PREDICTED_NORMS = "clients", "norms", "predicted_norms"
_COSINES, _TRAIN_AND_TEST, _AGAINST = "cosines", "train_and_test", "against_"


def write(wanted: Analysis) -> None:
    """Writes tables of runs and their figures, and prints the tables.

    Args:
      wanted: The analysis that was asked for.

    Raises:
      FileNotFoundError: If there is no such folder.
      OSError: If a file cannot be written.
      ValueError: If there is no run, column or setting of a name that was given, or
        the folder for the files holds a comparison, whose tables they would replace.
    """
    configuration = wanted.output_dir / folders.CONFIGURATION
    content = {}
    if wanted.output_dir.is_dir():  # What cannot be one is told where it is made.
        content = stored_files.read_json(configuration, stored_files.Configuration)
    if content.get("format") == folders.COMPARISON:
        raise ValueError(
            f"output_dir must be a folder without a comparison, whose tables would be "
            f"replaced, found '{wanted.output_dir}'. Give another."
        )
    runs = analysis.read(*wanted.folders)
    if runs.unfinished:
        unfinished = escape.terminal(", ".join(runs.unfinished))
        print(f"Left out, not finished: {unfinished}", file=sys.stderr)
    if runs.repeated:
        repeated = escape.terminal(", ".join(runs.repeated))
        print(f"Left out, settings and seed of another: {repeated}", file=sys.stderr)
    asked, wanted = wanted.axes, with_measured_axes(wanted, runs)
    if missing := [axis for axis in asked if axis not in wanted.axes]:
        print(f"Left out, not measured: {', '.join(missing)}", file=sys.stderr)
    columns = wanted.columns or (analysis.headline(runs), "test_loss")
    labels = analysis.labels(runs, wanted.by)
    # Drawn before anything is written, so that mistakes leave no half of the files.
    drawn = dict(figures(wanted, runs, columns, labels))
    tables = dict(tabulate(wanted, runs, columns, labels))
    by_client = clients.read(runs, columns[0])
    if by_client:
        drawn[PERSONALIZATION] = clients.draw(by_client, labels)
        tables[PERSONALIZATION] = clients.tabulate(by_client, labels)
    make_output_folder(wanted)
    # What is left of an earlier call may be of other runs.
    writing.remove(wanted.output_dir, *_written())
    for name, table in tables.items():
        said = title(name, wanted, runs, columns[0])
        text = f"{escape.markdown(said)}\n\n"
        text += texts.markdown_table(*readable(table, columns[0]))
        writing.write_text(wanted.output_dir / f"{name}.md", text)
        writing.write_table(wanted.output_dir / f"{name}.csv", table.reset_index())
    for name, figure in drawn.items():
        style.save(figure, wanted.output_dir / f"{name}.png")
    # After all files, which a reader that closes the output early gets too.
    for name, table in tables.items():
        print(escape.terminal(title(name, wanted, runs, columns[0])))
        headers, cells = readable(table, columns[0])
        if not texts.fits(headers, cells):
            short = essential(table, columns[0], wanted.axes)
            headers, cells = readable(short, columns[0])
        texts.print_table(headers, cells)
    names = [f"{name}.{kind}" for name in tables for kind in ("md", "csv")]
    names += [f"{name}.png" for name in drawn]
    print(f"Files in {wanted.output_dir}: {', '.join(names)}")


def _written() -> Iterator[str]:
    """Yields the names of all files that a call may write, as `glob` takes them."""
    for name in (TABLE, THRESHOLDS, PERSONALIZATION):
        yield from (f"{name}.md", f"{name}.csv")
    yield from (f"curves_{axis}.png" for axis in analysis.AXES)
    # Of settings, whose names plugins add to.
    yield from (f"{axis}_{_AGAINST}*.png" for axis in analysis.AXES)
    yield from (f"{_AGAINST}*.png", f"{PERSONALIZATION}.png", f"{_CLIENTS}.png")
    yield from (f"{_NORMS}.png", f"{_PREDICTED_NORMS}.png", f"{_COSINES}.png")
    yield f"{_TRAIN_AND_TEST}.png"


def make_output_folder(wanted: Analysis) -> None:
    """Makes the folder for the files, unless what is read leads them elsewhere.

    Args:
      wanted: The analysis that was asked for.

    Raises:
      UserError: If it cannot be made, or no file in it.
      ValueError: If it is in a folder that is read, and a link there leads out of it.
    """
    output_dir = wanted.output_dir.absolute()
    for name in wanted.folders:
        folder = pathlib.Path(name)
        if output_dir.is_relative_to(folder.absolute()):
            try:
                files.check_inside(output_dir, folder)
            except OSError as error:
                raise ValueError(f"output_dir: {error}. Give another.") from error
    writing.make_output_dir(wanted.output_dir)


def with_measured_axes(wanted: Analysis, runs: analysis.FinishedRuns) -> Analysis:
    """Returns the analysis without the axes that no run measured, if any was.

    Tables of results that were kept without their runs may have the rounds alone.

    Args:
      wanted: The analysis that was asked for.
      runs: The runs.
    """
    axes = tuple(axis for axis in wanted.axes if analysis.AXES[axis] in runs.rounds)
    return dataclasses.replace(wanted, axes=axes or wanted.axes)


def title(name: str, wanted: Analysis, runs: FinishedRuns, column: str) -> str:
    """Returns what to say above a table.

    Args:
      name: "table", "thresholds" or "personalization".
      wanted: The analysis that was asked for.
      runs: The runs.
      column: The column of the metric.
    """
    over = analysis.averaged_over(runs, analysis.labels(runs, wanted.by))
    if name == THRESHOLDS:
        return f"To reach a {column} for the first time: mean ± sd over {over}."
    if name == PERSONALIZATION:
        return "Each client's own model, before and after local training: means."
    rounds = analysis.last_rounds(runs, wanted.last)
    return f"Mean of {rounds}: mean ± sd over {over}."


def _percentiles(runs: FinishedRuns, metric: str) -> list[str]:
    """Returns the columns of a metric's percentiles over clients, if there are any."""
    names = analysis.percentile_columns(metric)
    if not set(names) <= set(runs.rounds):
        return []
    measured = runs.rounds[names].dropna()
    # A metric of the model alone is the same on all clients.
    return names if (measured[names[0]] != measured[names[-1]]).any() else []


def _training_column(runs: FinishedRuns, metric: str) -> str | None:
    """Returns the metric on training clients, of the final model if it was measured."""
    for prefix in ("final_train_", "train_"):
        column = metric.replace("test_", prefix, 1)
        if column != metric and column in runs.rounds:
            return column
    return None


def tabulate(
    wanted: Analysis, runs: FinishedRuns, columns: tuple[str, ...], labels: pd.Series
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields tables by their names, for `readable` to make legible.

    Args:
      wanted: The analysis that was asked for.
      runs: The runs.
      columns: The columns of metrics.
      labels: What each run is called.

    Raises:
      ValueError: If there is no such column.
    """
    names = {"seeds": _NUMBER} if analysis.averaged_over(runs, labels) == "runs" else {}
    yield TABLE, _at_the_end(wanted, runs, columns, labels).rename(columns=names)
    if wanted.thresholds:
        table = _to_thresholds(wanted, runs, columns[0], labels)
        yield THRESHOLDS, table.rename(columns=names)


def _at_the_end(
    wanted: Analysis, runs: FinishedRuns, columns: tuple[str, ...], labels: pd.Series
) -> pd.DataFrame:
    measured = dict.fromkeys([*columns, *_percentiles(runs, columns[0])])
    if twice := sorted(set(measured) & set(analysis.AXES)):
        raise ValueError(
            f"columns must not have {', '.join(twice)}, of which tables have the total "
            "of a run anyway. Leave it out."
        )
    values = analysis.last_mean(runs, list(measured), wanted.last)
    totals = [name for name in analysis.AXES.values() if name in runs.rounds]
    ends = runs.rounds.groupby("run")[totals].max()
    ends.columns = [name.removeprefix("total_") for name in totals]
    values = values.join(ends)
    values["failed"] = analysis.failed(runs)
    table = analysis.over_seeds(values, labels)
    # Of yes and no, and of what seeds hardly change, the mean says all.
    plain = [f"{name}_sd" for name in (*ends.columns, "failed")]
    return table.drop(columns=plain)


def _to_thresholds(
    wanted: Analysis, runs: FinishedRuns, column: str, labels: pd.Series
) -> pd.DataFrame:
    values = to_thresholds(runs, column, wanted.thresholds, wanted.axes)
    table = analysis.over_seeds(values, labels)
    first = values.iloc[:, : len(wanted.thresholds)].notna().astype(float)
    shares = first.groupby(labels, sort=False).mean()
    for threshold, name in zip(wanted.thresholds, first, strict=True):
        table[f"{_REACHED} {threshold:g}"] = shares[name]
    return table


def to_thresholds(
    runs: FinishedRuns,
    column: str,
    thresholds: Sequence[float],
    axes: Sequence[str],
) -> pd.DataFrame:
    """Returns what it took to reach values, in columns such as "round to 0.8".

    Args:
      runs: The runs.
      column: The column of the metric.
      thresholds: Its values.
      axes: What to count.

    Raises:
      ValueError: If there is no such column or axis.
    """
    parts = []
    for axis in axes:
        found = analysis.to_thresholds(runs, column, thresholds, axis)
        found.columns = [f"{axis} to {threshold:g}" for threshold in found]
        parts.append(found)
    return pd.concat(parts, axis=1)


def readable(table: pd.DataFrame, column: str) -> tuple[list[str], list[list[str]]]:
    """Returns the headers and the cells of a table for people.

    Args:
      table: A row per label, with columns `<name>` and `<name>_sd`.
      column: The column of the metric.
    """
    names = [name for name in table if not str(name).endswith("_sd")]
    cells = [
        [str(label), *(_cell(str(name), row) for name in names)]
        for label, row in table.iterrows()
    ]
    return [
        "runs",
        *(str(name).replace(f"{column}_client_", "") for name in names),
    ], cells


def essential(table: pd.DataFrame, column: str, axes: Sequence[str]) -> pd.DataFrame:
    """Returns the columns of a table that a narrow terminal gets; files have all.

    Args:
      table: The table, without percentiles of clients and totals in the result, and
        with what it took to reach thresholds along the first axis alone.
      column: The column of the metric.
      axes: The axes.
    """
    percentiles = analysis.percentile_columns(column)

    def is_kept(name: str) -> bool:
        name = name.removesuffix("_sd")
        axis, _, threshold = name.partition(" to ")
        if axis in analysis.AXES:
            return bool(threshold) and axis == axes[0]
        return name not in percentiles

    return table[[name for name in table if is_kept(str(name))]]


def _cell(name: str, row: pd.Series) -> str:
    value, deviation = row[name], row.get(f"{name}_sd", math.nan)
    if name in ("seeds", _NUMBER, "clients"):
        return f"{value:.0f}"
    if name in ("failed", clients.GAINED) or name.startswith(_REACHED):
        return f"{100 * value:.0f} %"
    if name.startswith("bytes"):
        return "-" if math.isnan(value) else texts.size(value)
    if "accuracy" in name:
        return texts.metric_with_deviation("accuracy", value, deviation)
    if name.split(" ")[0] in analysis.AXES:
        return texts.count(value, deviation)
    return texts.metric_with_deviation(name, value, deviation)


def figures(
    wanted: Analysis,
    runs: FinishedRuns,
    columns: tuple[str, ...],
    labels: pd.Series,
    apart: bool = False,
) -> Iterator[tuple[str, matplotlib.figure.Figure]]:
    """Yields figures by their names.

    Args:
      wanted: The analysis that was asked for.
      runs: The runs.
      columns: The columns of metrics.
      labels: What each run is called.
      apart: Whether each column of curves has a figure of its own, for narrow pages.

    Raises:
      ValueError: If there is no such column, axis or setting.
    """
    metric, *_ = columns
    for axis in wanted.axes:
        yield from _curves(f"curves_{axis}", wanted, runs, columns, labels, axis, apart)
    if _percentiles(runs, metric):
        yield _CLIENTS, analysis.draw_clients(runs, metric, wanted.last, labels)
    norms = tuple(name for name in analysis.NORMS if name in runs.rounds)
    if norms:
        yield from _curves(_NORMS, wanted, runs, norms, labels, "round", apart)
    if runs.settings["clients_per_round"].nunique() > 1 and analysis.NORMS[1] in norms:
        yield _PREDICTED_NORMS, analysis.draw_predicted_norms(runs)
    cosine = analysis.cosine_column(runs)
    if cosine is not None:
        figure = analysis.draw_curves(runs, [cosine], "round", wanted.bands, labels)
        yield _COSINES, figure
    train = _training_column(runs, metric)
    if train is not None:
        figure = analysis.draw_train_and_test(runs, train, metric, wanted.last, labels)
        yield _TRAIN_AND_TEST, figure
    if wanted.against is None:
        return
    setting, bands = wanted.against, wanted.bands
    by = None
    if wanted.by is not None:
        by = analysis.labels(runs, [name for name in wanted.by if name != setting])
    values = analysis.last_mean(runs, list(columns), wanted.last)
    figure = analysis.draw_against(runs, setting, values, bands, by)
    yield f"{_AGAINST}{setting}", figure
    for axis in wanted.axes if wanted.thresholds else ():
        values = analysis.to_thresholds(runs, metric, wanted.thresholds, axis)
        values.columns = [f"{axis} to {metric} {threshold:g}" for threshold in values]
        figure = analysis.draw_against(runs, setting, values, bands, by)
        yield f"{axis}_{_AGAINST}{setting}", figure


def _curves(
    name: str,
    wanted: Analysis,
    runs: FinishedRuns,
    columns: tuple[str, ...],
    labels: pd.Series,
    axis: str,
    apart: bool,
) -> Iterator[tuple[str, matplotlib.figure.Figure]]:
    """Yields curves by their names, which say the column where each is apart."""
    if not apart:
        yield name, analysis.draw_curves(runs, columns, axis, wanted.bands, labels)
        return
    for column in columns:
        figure = analysis.draw_curves(runs, [column], axis, wanted.bands, labels)
        yield f"{name}_{column}", figure
