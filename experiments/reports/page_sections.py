"""The sections of a page of results, made of what is in folders; without TensorFlow."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from experiments import analysis
from experiments.analysis import FinishedRuns, finished, folders, style
from experiments.flags.analyses import Analysis
from experiments.flags.pages import PageRequest
from experiments.reports import analysis as tables
from experiments.reports import page_facts, page_limits
from experiments.reports.page import Page, Picture, Section, Table
from tff_drift import kinds

_SWEEP = "sweep.json"
_NOTHING = "-"
# What files of a folder show that is told from its runs, if there are any.
_FROM_RUNS = ("table.md", "curves.png")
_PICTURES = {
    "clients": "Test clients: 5th, 25th, 50th, 75th and 95th percentiles",
    "cosines": "Mean pairwise cosine of the clients' updates",
    "predicted_norms": "Norm of the mean pseudo-gradient, and its prediction by 1/√M",
    "train_and_test": "In training beside on test clients",
}
_PNG = b"\x89PNG\r\n\x1a\n"
_OF_A_SWEEP = (
    "Points of a search are measured on clients that are held out, to choose one of "
    "them: how good it is on test clients is not seen here."
)
_WITHOUT_RUNS = "Only what the tables were made for: the runs themselves are not here."
# Of what legends have room for.
_LONGEST_LABEL = 48
_SEED = re.compile(r"/?seed_-?\d+$")
_RULE = re.compile(r"^\|(?: :?-+:? \|)+$")


@dataclasses.dataclass(frozen=True)
class Place:
    """A folder whose runs belong together.

    Attributes:
      folder: The folder.
      content: What says so: the configuration of a comparison, or the protocol of a
        sweep. Empty for runs that belong to neither.
      runs: Its runs.
      is_sweep: Whether it is a sweep.
    """

    folder: pathlib.Path
    content: Mapping[str, Any]
    runs: Sequence[folders.Run]
    is_sweep: bool = False

    @property
    def flags(self) -> Mapping[str, Any]:
        """The flags of the command that made it, as far as they are kept."""
        return self.content.get("flags", {})

    @property
    def order(self) -> list[str]:
        """The runs in the order in which a comparison names them."""
        runs = self.content.get("runs", [])
        return [str(self.folder / run["folder"]) for run in runs if "folder" in run]

    @property
    def title(self) -> str:
        """What it is called."""
        if "preset" in self.flags:
            return f"{self.flags['preset']}: {self.flags.get('part', self.folder.name)}"
        if self.content:
            return str(self.folder)
        return f"{self.folder}: {self.runs[0].settings.get('task')}"


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
    places = list(_places(request.analysis.folders))
    sections = []
    for number, place in enumerate(places, start=1):
        about = presets.get(place.flags.get("preset", ""), "")
        sections.append(_section(request.analysis, place, about, number))
    runs = {run.name: run for place in places for run in place.runs}
    unfinished = tuple(name for name, run in runs.items() if not run.is_finished)
    whole = ", ".join(request.analysis.folders)
    title = request.title or (sections[0].title if len(sections) == 1 else whole)
    return Page(title, sections, unfinished)


def _places(names: Sequence[str]) -> Iterator[Place]:
    """Yields the places in and below some folders: comparisons, sweeps, other runs."""
    seen: set[str] = set()
    for folder in map(pathlib.Path, dict.fromkeys(names)):
        if not folder.is_dir():
            raise FileNotFoundError(f"{str(folder)!r} is no folder.")
        runs = {run.name: run for run in folders.runs_below(folder)}
        found = list(_with_files(folder, runs))
        owned = {run.name for place in found for run in place.runs}
        others = [run for name, run in runs.items() if name not in owned]
        by_task: dict[Any, list[folders.Run]] = {}
        for run in others:
            by_task.setdefault(run.settings.get("task"), []).append(run)
        found += [Place(folder, {}, group) for group in by_task.values()]
        # Without a result there is nothing to tell but what is left out.
        told = [place for place in found if _has_results(place)]
        if not told:
            to_go = f": {len(runs)} with rounds to go" if runs else ""
            raise ValueError(
                f"{str(folder)!r} holds no finished run, comparison or sweep{to_go}."
            )
        for place in told:
            key = f"{place.folder.resolve()} {place.runs[0].name if place.runs else ''}"
            if key not in seen:
                seen.add(key)
                yield place


def _with_files(
    folder: pathlib.Path, runs: Mapping[str, folders.Run]
) -> Iterator[Place]:
    """Yields comparisons and sweeps; a run belongs to the innermost."""
    contents: dict[pathlib.Path, tuple[bool, dict[str, Any]]] = {}
    for path in folder.rglob(_SWEEP):
        contents[path.parent] = (True, folders.read_json(path))
    for path in folder.rglob(folders.CONFIGURATION):
        content = folders.read_json(path)
        if content.get("format") == folders.COMPARISON:
            contents[path.parent] = (False, content)
    owners: dict[pathlib.Path, list[folders.Run]] = {place: [] for place in contents}
    for name, run in runs.items():
        owner = next(
            (each for each in pathlib.Path(name).parents if each in owners), None
        )
        if owner is not None:
            owners[owner].append(run)
    # Comparisons before the sweeps that found their rates.
    for place in sorted(contents, key=lambda each: (contents[each][0], str(each))):
        is_sweep, content = contents[place]
        yield Place(place, content, owners[place], is_sweep)


def _has_results(place: Place) -> bool:
    return any(run.is_finished for run in place.runs) or any(_own_files(place, ".md"))


def _own_files(
    place: Place, ending: str, but: Sequence[str] = ()
) -> list[pathlib.Path]:
    """Returns the tables or pictures that were written into a place itself."""
    if not place.content:
        return []
    left_out = ("README.md", *but)
    return [
        path
        for path in sorted(place.folder.glob(f"*{ending}"))
        if path.name not in left_out
    ]


def _section(wanted: Analysis, place: Place, about: str, number: int) -> Section:
    finished_runs = [run for run in place.runs if run.is_finished]
    # Points of a sweep are told by its own table.
    runs = (
        None
        if place.is_sweep or not finished_runs
        else finished.gather(finished_runs, place.order)
    )
    but = _FROM_RUNS if runs is not None else ()
    written = [read_table(path) for path in _own_files(place, ".md", but)]
    drawn = [_read_picture(path, number) for path in _own_files(place, ".png", but)]
    summaries = [folders.read_json(place.folder / folders.SUMMARY)]
    summaries += [
        folders.read_json(pathlib.Path(run.name) / folders.SUMMARY)
        for run in finished_runs
    ]
    facts = page_facts.facts(runs, place.flags, summaries)
    if runs is None:
        flags = {k: v for k, v in place.flags.items() if v is not None}
        return Section(
            title=place.title,
            about=[about] if about else [],
            facts=facts,
            limits=[_OF_A_SWEEP if place.is_sweep else _WITHOUT_RUNS],
            differing=None,
            tables=written,
            pictures=drawn,
            shared=_two_columns(flags),
        )
    labels = _labels(wanted, place, runs)
    columns = wanted.columns or (analysis.headline(runs), "test_loss")
    axes = tuple(axis for axis in wanted.axes if analysis.AXES[axis] in runs.rounds)
    wanted = dataclasses.replace(wanted, axes=axes or ("round",))
    told = [
        Table(
            tables.title(name, wanted, columns[0]), *tables.readable(each, columns[0])
        )
        for name, each in tables.tabulate(wanted, runs, columns, labels)
    ]
    pictures = [
        _picture(name, style.as_svg(figure), labels, number)
        for name, figure in tables.figures(wanted, runs, columns, labels, apart=True)
    ]
    revisions = {
        str(each["git_revision"]) for each in summaries if each.get("git_revision")
    }
    limits = page_limits.limits(runs, labels, columns[0], place.flags, revisions)
    differing, shared = _protocol(runs, labels)
    return Section(
        title=place.title,
        about=[about] if about else [],
        facts=facts,
        limits=list(limits),
        differing=differing,
        tables=[*written, *told],
        pictures=[*pictures, *drawn],
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
    return runs.settings.index.to_series().map(
        lambda run: _SEED.sub("", str(pathlib.PurePath(run).relative_to(place.folder)))
    )


def _protocol(runs: FinishedRuns, labels: pd.Series) -> tuple[Table | None, Table]:
    """Returns the settings that differ between labels, and those that do not."""
    shown = runs.settings.map(_setting)
    by_label = shown.drop(columns="seed").groupby(labels, sort=False)
    told = by_label.agg(lambda values: " or ".join(dict.fromkeys(values)))
    differ = [name for name in told if told[name].nunique() > 1]
    same = {name: told[name].iloc[0] for name in told if name not in differ}
    differing = None
    if differ:
        shown = told[differ]
        # The longer side goes down, where pages have room.
        corner = "runs"
        if len(differ) > len(shown):
            corner, shown = "setting", shown.T
        rows = [[str(name), *row] for name, row in zip(shown.index, shown.to_numpy())]
        differing = Table("What differs", [corner, *map(str, shown.columns)], rows)
    return differing, _two_columns(same)


def _setting(value: Any) -> str:
    if not isinstance(value, tuple) and pd.isna(value):
        return _NOTHING
    return kinds.show(value)


def _two_columns(settings: Mapping[str, Any]) -> Table:
    """Returns settings one below the other; those without meaning in one sentence."""
    texts = {
        name: value if isinstance(value, str) else kinds.show(value)
        for name, value in settings.items()
    }
    without = [name for name, text in texts.items() if text == _NOTHING]
    note = f"Without a value here: {', '.join(without)}." if without else ""
    rows = [[name, text] for name, text in texts.items() if text != _NOTHING]
    headers = ["setting", "value"]
    return Table("The same for all runs", headers, rows, note, of_texts=True)


def _picture(name: str, content: bytes, labels: pd.Series, number: int) -> Picture:
    title = _PICTURES.get(name)
    if title is None:
        kind, _, rest = name.partition("_")
        axis = next((axis for axis in analysis.AXES if rest.startswith(f"{axis}_")), "")
        column = rest.removeprefix(f"{axis}_") if kind == "curves" else rest
        title = f"{column} by {axis or 'round'}".replace("simulated_", "simulated ")
    names = ", ".join(dict.fromkeys(labels))
    return Picture(title, _file(number, name, ".svg"), content, names)


def _read_picture(path: pathlib.Path, number: int) -> Picture:
    content = path.read_bytes()
    if not content.startswith(_PNG):
        raise ValueError(f"{str(path)!r} is damaged: it is no PNG.")
    title = path.stem.replace("_", " ")
    return Picture(title, _file(number, path.stem, ".png"), content)


def _file(number: int, name: str, ending: str) -> str:
    return f"{number}_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)}{ending}"


def read_table(path: pathlib.Path) -> Table:
    """Returns a table that was written in Markdown, with what is said above it.

    Args:
      path: The file.

    Raises:
      ValueError: If it holds no table.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rule = next(i for i, line in enumerate(lines) if _RULE.match(line.strip()))
    except (StopIteration, ValueError) as error:
        raise ValueError(f"{str(path)!r} is damaged: it holds no table.") from error
    words = " ".join(line.strip() for line in lines[: rule - 1])
    note = " ".join(words.replace("`", "").split())
    cells = [
        [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        for line in lines[rule - 1 :]
        if line.startswith("|")
    ]
    headers, _, *rows = cells
    return Table(path.stem.replace("_", " "), headers, rows, note)
