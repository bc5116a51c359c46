"""The sections of a page of results, made of what is in folders; without TensorFlow."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import pandas as pd

from experiments import analysis, escape, stored_files
from experiments.analysis import (
    FinishedRuns,
    finished,
    folders,
    style,
)
from experiments.flags.analyses import Analysis
from experiments.flags.pages import PageRequest
from experiments.reports import analysis as tables
from experiments.reports import page_facts, page_limits, page_places
from experiments.reports.page import Page, Picture, Section, Table
from experiments.reports.page_places import Place
from experiments.stored_files import Allowance
from tff_drift import value_types

_NOTHING = "-"
# Bytes of pictures and tables, which a page holds several times while it is made.
_MOST_ON_A_PAGE = 2**26
# Files of a folder whose content is taken from its runs, if there are any.
_FROM_RUNS = ("table.md", "curves.png")
_PICTURES = {
    "clients": "Test clients: 5th, 25th, 50th, 75th and 95th percentiles",
    "cosines": "Mean pairwise cosine of the clients' updates",
    "predicted_norms": "Norm of the mean pseudo-gradient, and its prediction by 1/√M",
    "train_and_test": "In training beside on test clients",
}
# What headers of tables mean.
_NOTES = {
    "p5": "p5 to p95 are percentiles over test clients.",
    "failed": "failed: the share of runs in which a round broke down.",
}
_PNG = b"\x89PNG\r\n\x1a\n"
# Its head ends with width and height.
_PNG_HEAD = 24
# What is as wide as two panels side by side.
_WIDE = 1.4
_OF_A_SWEEP = (
    "Points of a search are measured on clients that are held out, to choose one of "
    "them: how good it is on test clients is not shown here."
)
_WITHOUT_RUNS = "Only what the tables were made for: the runs themselves are not here."
# Of what legends have room for.
_LONGEST_LABEL = 48
_SEED = re.compile(r"/?seed_\d+$")
_RULE = re.compile(r"^\|(?: :?-+:? \|)+$")


def build(request: PageRequest, presets: Mapping[str, str]) -> Page:
    """Returns the page of some folders.

    Args:
      request: What is asked for.
      presets: What presets show and where that is from, by their names.

    Raises:
      FileNotFoundError: If there is no such folder.
      ValueError: If a folder has nothing to report, a file is damaged, or there is no
        column or setting of a name that was given.
    """
    places = list(page_places.find(request.analysis.folders))
    sections = []
    allowance = stored_files.Allowance(_MOST_ON_A_PAGE)
    for number, place in enumerate(places, start=1):
        about = presets.get(place.flags.get("preset", ""), "")
        section = _section(request.analysis, place, number, allowance)
        sections.append(dataclasses.replace(section, about=[about] if about else []))
    runs = {run.name: run for place in places for run in place.runs}
    unfinished = tuple(name for name, run in runs.items() if not run.is_finished)
    whole = ", ".join(request.analysis.folders)
    title = request.title or (sections[0].title if len(sections) == 1 else whole)
    return Page(title, sections, unfinished)


def _section(
    wanted: Analysis, place: Place, number: int, allowance: Allowance
) -> Section:
    ended = [run for run in place.runs if run.is_finished]
    summaries = [folders.read_summary(place.folder)]
    summaries += [
        folders.read_summary(pathlib.Path(run.name), place.folder) for run in ended
    ]
    # Points of a sweep are in its own table.
    if place.is_sweep or not ended:
        return _without_runs(place, summaries, number, allowance)
    runs = finished.gather(ended, place.order)
    return _of_runs(wanted, place, runs, summaries, number, allowance)


def _without_runs(
    place: Place,
    summaries: Sequence[Mapping[str, Any]],
    number: int,
    allowance: Allowance,
) -> Section:
    """Returns what only the files that were written into a place show."""
    flags = {name: value for name, value in place.flags.items() if value is not None}
    return Section(
        title=place.title,
        about=[],
        facts=page_facts.facts(None, place.flags, summaries),
        limits=[_OF_A_SWEEP if place.is_sweep else _WITHOUT_RUNS],
        differing=None,
        tables=[read_table(path, allowance) for path in place.files(".md")],
        pictures=[
            _read_picture(path, number, allowance) for path in place.files(".png")
        ],
        shared=_two_columns(flags),
    )


def _of_runs(
    wanted: Analysis,
    place: Place,
    runs: FinishedRuns,
    summaries: Sequence[Mapping[str, Any]],
    number: int,
    allowance: Allowance,
) -> Section:
    """Returns the tables of runs, and the files that were written of them."""
    labels = _labels(wanted, place, runs)
    columns = wanted.columns or (analysis.headline(runs), "test_loss")
    wanted = tables.with_measured_axes(wanted, runs)
    read = [read_table(path, allowance) for path in place.files(".md", _FROM_RUNS)]
    written = {
        path.stem: _read_picture(path, number, allowance)
        for path in place.files(".png", _FROM_RUNS)
    }
    for name, table in tables.tabulate(wanted, runs, columns, labels):
        title = tables.title(name, wanted, runs, columns[0])
        headers, cells = tables.readable(table, columns[0])
        notes = [note for name, note in _NOTES.items() if name in headers]
        read.append(Table(title, headers, cells, " ".join(notes)))
    figures = dict(tables.figures(wanted, runs, columns, labels, apart=True))
    pictures = [_picture(*each, labels, number) for each in figures.items()]
    # What was drawn of the same runs before needs no second look.
    pictures += [each for name, each in written.items() if name not in figures]
    known = [each["git_revision"] for each in summaries if each.get("git_revision")]
    limits = page_limits.limits(runs, labels, columns[0], place.flags, set(known))
    differing, shared = _protocol(runs, labels)
    return Section(
        title=place.title,
        about=[],
        facts=page_facts.facts(runs, place.flags, summaries),
        limits=list(limits),
        differing=differing,
        tables=read,
        pictures=pictures,
        shared=shared,
    )


def _labels(wanted: Analysis, place: Place, runs: FinishedRuns) -> pd.Series:
    """Returns what each run is called: as its folder, where settings are too many."""
    if wanted.by is not None:
        return analysis.labels(runs, wanted.by)
    if not place.content:
        names = analysis.labels(runs)
        if names.str.len().max() <= _LONGEST_LABEL:
            return names

    def name(run: str) -> str:
        path = str(pathlib.PurePath(run).relative_to(place.folder))
        return _SEED.sub("", path).strip(".") or place.folder.name

    return runs.settings.index.to_series().map(name)


def _protocol(runs: FinishedRuns, labels: pd.Series) -> tuple[Table | None, Table]:
    """Returns the settings that differ between labels, and those that do not."""
    shown = runs.settings.map(_setting)
    by_label = shown.drop(columns="seed").groupby(labels, sort=False)
    by_name = by_label.agg(lambda values: " or ".join(dict.fromkeys(values)))
    differ = [name for name in by_name if by_name[name].nunique() > 1]
    same = {name: by_name[name].iloc[0] for name in by_name if name not in differ}
    differing = None
    if differ:
        shown = by_name[differ]
        # The longer side goes down, where pages have room.
        corner = "runs"
        if len(differ) > len(shown):
            corner, shown = "setting", shown.T
        rows = [
            [str(name), *row]
            for name, row in zip(shown.index, shown.to_numpy(), strict=True)
        ]
        differing = Table("What differs", [corner, *map(str, shown.columns)], rows)
    return differing, _two_columns(same)


def _setting(value: Any) -> str:
    if not isinstance(value, tuple) and pd.isna(value):
        return _NOTHING
    return value_types.show(value)


def _two_columns(settings: Mapping[str, Any]) -> Table:
    """Returns settings one below the other; those without meaning in one sentence."""
    texts = {
        name: value if isinstance(value, str) else value_types.show(value)
        for name, value in settings.items()
    }
    without = [name for name, text in texts.items() if text == _NOTHING]
    note = f"Without a value here: {', '.join(without)}." if without else ""
    rows = [[name, text] for name, text in texts.items() if text != _NOTHING]
    headers = ["setting", "value"]
    return Table("The same for all runs", headers, rows, note, of_texts=True)


def _picture(
    name: str, figure: matplotlib.figure.Figure, labels: pd.Series, number: int
) -> Picture:
    title = _PICTURES.get(name)
    if title is None:
        kind, _, rest = name.partition("_")
        axis = next((axis for axis in analysis.AXES if rest.startswith(f"{axis}_")), "")
        column = rest.removeprefix(f"{axis}_") if kind == "curves" else rest
        title = f"{column} by {axis or 'round'}".replace("simulated_", "simulated ")
    names = ", ".join(dict.fromkeys(labels))
    return Picture(
        title=title,
        file=_file(number, name, ".svg"),
        content=style.as_svg(figure),
        lines=names,
        is_wide=_is_wide(*figure.get_size_inches()),
    )


def _read_picture(path: pathlib.Path, number: int, allowance: Allowance) -> Picture:
    content = stored_files.read_bytes(path, allowance=allowance)
    if not content.startswith(_PNG) or len(content) < _PNG_HEAD:
        raise ValueError(f"{str(path)!r} is damaged: it is not a PNG.")
    title = path.stem.replace("_", " ")
    width, height = struct.unpack(">II", content[_PNG_HEAD - 8 : _PNG_HEAD])
    file = _file(number, path.stem, ".png")
    return Picture(title, file, content, is_wide=_is_wide(width, height))


def _is_wide(width: float, height: float) -> bool:
    return width > _WIDE * height


def _file(number: int, name: str, ending: str) -> str:
    return f"{number}_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)}{ending}"


def read_table(path: pathlib.Path, allowance: Allowance | None = None) -> Table:
    """Returns a table that was written in Markdown, with what is said above it.

    Args:
      path: The file.
      allowance: What may be read with it.

    Raises:
      ValueError: If it holds no table.
    """
    try:
        lines = stored_files.read_text(path, allowance).splitlines()
        rule = next(i for i, line in enumerate(lines) if _RULE.match(line.strip()))
    except (StopIteration, ValueError) as error:
        raise ValueError(f"{str(path)!r} is damaged: it holds no table.") from error
    words = " ".join(line.strip() for line in lines[: rule - 1])
    note = escape.from_markdown(" ".join(words.replace("`", "").split()))
    cells = [
        [
            escape.from_markdown(cell.strip())
            for cell in line.strip().strip("|").split(" | ")
        ]
        for line in lines[rule - 1 :]
        if line.startswith("|")
    ]
    headers, _, *rows = cells
    return Table(path.stem.replace("_", " "), headers, rows, note)
