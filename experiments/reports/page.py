"""A page of results: what it holds, as HTML and as Markdown.

Both are made of the same `Page` by templates, which escape whatever they are given:
names of folders, settings and errors are data, never markup.
"""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import re
import urllib.parse
from collections.abc import Sequence
from typing import Any

import jinja2
import markupsafe

from experiments import escape
from experiments.reports import writing
from tff_drift import files

_TEMPLATES = pathlib.Path(__file__).with_name("templates")
_MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the first column has the names of its rows.

    Attributes:
      title: What it shows.
      headers: The names of its columns.
      rows: Its cells.
      note: What to say before it.
      of_texts: Whether its cells are words rather than numbers.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    of_texts: bool = False


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
      title: What it shows.
      file: The name of its file, with the ending of its kind.
      content: The file.
      lines: What its lines or boxes are called, for those who do not see it.
      is_wide: Whether it takes the width of a page.
    """

    title: str
    file: str
    content: bytes
    lines: str = ""
    is_wide: bool = False

    @property
    def address(self) -> str:
        """The picture itself as an address, so that a page needs no other file."""
        media = _MEDIA[pathlib.PurePath(self.file).suffix]
        return f"data:{media};base64,{base64.b64encode(self.content).decode()}"


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a page, on runs that belong together.

    Attributes:
      title: What they are.
      about: Sentences on what they show and where that is from.
      facts: Data, versions, machine and the like: terms with what there is to say.
      limits: What the result does not show.
      differing: The settings in which the variants differ, a row for each variant.
      tables: What came out.
      pictures: Its figures.
      shared: The settings that all variants have.
    """

    title: str
    about: Sequence[str]
    facts: Sequence[tuple[str, str]]
    limits: Sequence[str]
    differing: Table | None
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    shared: Table | None


@dataclasses.dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
      title: Its heading.
      sections: Its sections.
      unfinished: The folders of runs that have rounds to go, which it leaves out.
    """

    title: str
    sections: Sequence[Section]
    unfinished: Sequence[str] = ()


def as_html(page: Page) -> str:
    """Returns a page as HTML, with style and figures in it."""
    environment = _environment(autoescape=True, finalize=_without_control)
    environment.filters["breakable"] = _breakable
    return environment.get_template("page.html").render(page=page)


def as_markdown(page: Page, figures: str) -> str:
    """Returns a page as Markdown.

    Args:
      page: The page.
      figures: The folder of its figures, as seen from the page.
    """
    environment = _environment(autoescape=False, finalize=_escape)
    environment.filters["address"] = lambda text: _Address(urllib.parse.quote(text))
    text = environment.get_template("page.md").render(page=page, figures=figures)
    # Parts that are left out leave empty lines.
    return re.sub(r"\n{3,}", "\n\n", text)


def write(page: Page, folder: pathlib.Path, name: str) -> list[str]:
    """Writes a page, each file in one step and the pages after their figures.

    Args:
      page: The page.
      folder: The folder, which is made if there is none.
      name: The name of its files, without ending.

    Returns:
      The names of the files and of the folder with figures.

    Raises:
      OSError: If a file cannot be written.
    """
    figures = f"{name}_figures"
    html, markdown = as_html(page), as_markdown(page, figures)
    pictures = [picture for section in page.sections for picture in section.pictures]
    files.make_folder(folder)
    if pictures or (folder / figures).is_dir():
        files.make_folder(folder / figures, inside=folder)
        # A page of that name may have had more of them.
        writing.remove(folder / figures, *(f"[0-9]*_*{end}" for end in _MEDIA))
    for picture in pictures:
        writing.write_bytes(folder / figures / picture.file, picture.content)
    writing.write_text(folder / f"{name}.md", markdown)
    writing.write_text(folder / f"{name}.html", html)
    return [f"{name}.html", f"{name}.md", *([figures] if pictures else [])]


def _environment(**options: Any) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )


def _breakable(name: str) -> markupsafe.Markup:
    """Returns a name whose line may end after an underscore."""
    return markupsafe.Markup("_<wbr>").join(escape.terminal(name).split("_"))


def _without_control(value: object) -> object:
    """Returns a text without what steers the terminal of who looks into the file."""
    return escape.terminal(value) if type(value) is str else value


class _Address(str):
    """The text of a link, quoted already."""


def _escape(value: object) -> object:
    """Returns a text that Markdown shows as it is."""
    if isinstance(value, _Address) or not isinstance(value, str):
        return value
    return escape.markdown(value)
