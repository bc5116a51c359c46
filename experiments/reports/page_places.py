"""Finds results: comparisons, sweeps and other runs, in folders and below."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments import stored_files
from experiments.analysis import folders

_SWEEP = "sweep.json"


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
        """The name of the place."""
        if "preset" in self.flags:
            return f"{self.flags['preset']}: {self.flags.get('part', self.folder.name)}"
        if self.content:
            return str(self.folder)
        return f"{self.folder}: {self.runs[0].settings.get('task')}"

    def files(self, ending: str, but: Sequence[str] = ()) -> list[pathlib.Path]:
        """Returns the tables or pictures that were written into the place itself.

        A table was written as CSV too, which tells it from notes and other reports.

        Args:
          ending: How their names end.
          but: The names of those to leave out.
        """
        if not self.content:
            return []
        return [
            path
            for path in sorted(self.folder.glob(f"*{ending}"))
            if path.name not in but
            and stored_files.is_file(path)
            and (ending != ".md" or stored_files.is_file(path.with_suffix(".csv")))
        ]


def find(names: Sequence[str]) -> Iterator[Place]:
    """Yields the places in and below some folders: comparisons, sweeps, other runs.

    Args:
      names: The folders.

    Raises:
      FileNotFoundError: If there is no such folder.
      ValueError: If a folder has nothing to report, or a file is damaged.
    """
    seen: set[str] = set()
    for folder in map(pathlib.Path, dict.fromkeys(names)):
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{str(folder)!r} is not a folder.")
        runs = {run.name: run for run in folders.runs_below(folder)}
        found = list(_with_files(folder, runs))
        owned = {run.name for place in found for run in place.runs}
        others = [run for name, run in runs.items() if name not in owned]
        by_task: dict[Any, list[folders.Run]] = {}
        for run in others:
            by_task.setdefault(run.settings.get("task"), []).append(run)
        found += [Place(folder, {}, group) for group in by_task.values()]
        # Without a result there is nothing to report but what is left out.
        places = [place for place in found if _has_results(place)]
        if not places:
            to_go = f": {len(runs)} with rounds to go" if runs else ""
            raise ValueError(
                f"{str(folder)!r} holds no finished run, comparison or sweep{to_go}."
            )
        for place in places:
            key = f"{place.folder.resolve()} {place.runs[0].name if place.runs else ''}"
            if key not in seen:
                seen.add(key)
                yield place


def _with_files(
    folder: pathlib.Path, runs: Mapping[str, folders.Run]
) -> Iterator[Place]:
    """Yields comparisons and sweeps; a run belongs to the innermost."""
    contents: dict[pathlib.Path, tuple[bool, dict[str, Any]]] = {}
    for path in stored_files.find(folder, [_SWEEP]):
        content = stored_files.read_json(path, stored_files.Sweep)
        contents[path.parent] = (True, content)
    for path in stored_files.find(folder, [folders.CONFIGURATION]):
        content = stored_files.read_json(path, stored_files.Configuration)
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
    return any(run.is_finished for run in place.runs) or bool(place.files(".md"))
