"""Finished runs on one page, as HTML and as Markdown; without TensorFlow.

from experiments.reports import report

report.write(["results/compare/digits"], "results/report", thresholds=(0.7, 0.8))
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from experiments import escape
from experiments.flags import declarations, pages
from experiments.flags.flag import REPORT
from experiments.flags.pages import PageRequest
from experiments.reports import analysis as tables
from experiments.reports import page, page_sections


def write(
    folders: Iterable[str | os.PathLike[str]],
    output_dir: str | os.PathLike[str] = "results/report",
    presets: Mapping[str, str] | None = None,
    **flags: Any,
) -> pathlib.Path:
    """Writes the page of some folders.

    Args:
      folders: Folders of `tff-drift train`, compare, sweep or preset, or of such.
      output_dir: The folder for the page, which is made if there is none.
      presets: What presets show and where that is from, by their names.
      **flags: Other flags of `tff-drift report`, such as `name="digits"`.

    Returns:
      The HTML page. Beside it are the page in Markdown and its figures.

    Raises:
      OSError: If a file cannot be written.
      UserError: If a folder does not exist or cannot be written, or the name is not a
        file name.
      ValueError: If a folder has nothing to report, a file is damaged, or there is no
        column or setting of a name that was given.
    """
    unknown = set(flags) - set(declarations.flags_of(REPORT))
    if unknown:
        raise ValueError(f"tff-drift report has no {', '.join(sorted(unknown))}.")
    names = tuple(os.fspath(folder) for folder in folders)
    request = pages.request({"folders": names, "output_dir": output_dir, **flags})
    _write(request, presets or {})
    return request.analysis.output_dir / f"{request.name}.html"


def write_requested(request: PageRequest, presets: Mapping[str, str]) -> None:
    """Writes a page and prints where it is.

    Args:
      request: What is asked for.
      presets: As for `write`, which raises what this does.
    """
    files, made = _write(request, presets)
    if made.unfinished:
        names = escape.terminal(", ".join(made.unfinished))
        print(f"Left out, not finished: {names}", file=sys.stderr)
    print(f"Files in {request.analysis.output_dir}: {', '.join(files)}")


def _write(
    request: PageRequest, presets: Mapping[str, str]
) -> tuple[list[str], page.Page]:
    _check_files(request)
    made = page_sections.build(request, presets)
    tables.make_output_folder(request.analysis)
    return page.write(made, request.analysis.output_dir, request.name), made


def _check_files(request: PageRequest) -> None:
    """Raises a `ValueError` if the page would replace a file that is no page's.

    A page is two files: of a table, or of notes, there is the one only.
    """
    place = request.analysis.output_dir / request.name
    paths = [place.with_name(f"{place.name}{end}") for end in (".html", ".md")]
    there = [path for path in paths if path.exists()]
    if len(there) == 1:
        raise ValueError(
            f"--name must be that of a page, or new, found {request.name!r}: "
            f"'{there[0]}', which is of no page, would be replaced. Give another "
            "--name or --output_dir."
        )
