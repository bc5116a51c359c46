"""Runs the tutorials and keeps them as notebooks, with outputs: `make notebooks`.

A tutorial is a script in cells, `# %%` above code and `# %% [markdown]` above text:
Jupytext's percent format, which editors run cell by cell. This module runs the script
in the environment that it is run in, and writes the notebook beside it. It does without
Jupyter, so that it needs nothing that the library does not.

    python docs/site/notebooks.py                  # all of them
    python docs/site/notebooks.py docs/tutorials/drift.py
    python docs/site/notebooks.py --check          # run, and write nothing
    python docs/site/notebooks.py --text           # run nothing, where code is the same
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import importlib.util
import io
import json
import linecache
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
_MARKER = re.compile(r"^# %%( \[markdown\])?$\n?", re.MULTILINE)
# A link to a file of the project, and whether it is alone in parentheses.
_TARGET = r"\[([^\]]+)\]\((?!\w+:)([^)#\s]+)\)"
_LINK = re.compile(rf"\({_TARGET}\)|{_TARGET}")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


# What a cell puts out, in Jupyter's format.
Outputs = list[dict[str, Any]]


class Cell(NamedTuple):
    """A cell of a tutorial.

    Attributes:
      kind: `"markdown"` or `"code"`.
      source: What a reader sees in it.
    """

    kind: str
    source: str


def scripts() -> list[pathlib.Path]:
    """Returns the tutorials' scripts, in the order of the alphabet."""
    return sorted(TUTORIALS.glob("*.py"))


def cells(script: str) -> list[Cell]:
    """Returns the cells of a script.

    Args:
      script: The text of the script, which begins with a marker of a cell.
    """
    _, *parts = _MARKER.split(script)
    found = []
    for is_text, part in zip(parts[::2], parts[1::2], strict=True):
        if is_text:
            part = re.sub(r"^# ?", "", part, flags=re.MULTILINE)
        found.append(Cell("markdown" if is_text else "code", part.strip("\n")))
    return found


def without_links(cell: Cell) -> Cell:
    """Returns a cell as notebooks have it, where files are named and not linked to.

    In Colab and on Kaggle a notebook stands alone, and such links lead nowhere. The
    site takes its text from the script, where they are.

    Args:
      cell: A cell of a script in the tutorials' folder.
    """

    def named(match: re.Match[str]) -> str:
        title, target = match[1] or match[3], match[2] or match[4]
        path = os.path.relpath(TUTORIALS / target, ROOT)
        if path.startswith("docs/methods/"):  # A page that the site makes.
            return f"({title})" if match[1] else title
        return f"(*{title}*, `{path}`)" if match[1] else f"*{title}* (`{path}`)"

    if cell.kind == "code":
        return cell
    return cell._replace(source=_LINK.sub(named, cell.source))


def with_links(notebook_text: str, script: str) -> str:
    """Returns a notebook with the text of its script, for the site.

    Args:
      notebook_text: The notebook's file.
      script: The text of its script.
    """
    whole = json.loads(notebook_text)
    for kept, cell in zip(whole["cells"], cells(script), strict=True):
        if cell.kind == "markdown":
            kept["source"] = cell.source
    return json.dumps(whole)


def notebook(contents: list[Cell], outputs: list[Outputs]) -> str:
    """Returns a notebook's file.

    Args:
      contents: The cells.
      outputs: For each cell what it put out.
    """
    made = []
    for number, (cell, found) in enumerate(zip(contents, outputs, strict=True)):
        cell = without_links(cell)
        entry: dict[str, Any] = {
            "cell_type": cell.kind,
            "id": f"cell-{number:02}",
            "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }
        if cell.kind == "code":
            entry.update(execution_count=None, outputs=found)
        made.append(entry)
    whole = {"cells": made, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


class _Printed(io.StringIO):
    """What a cell prints; programs that it starts print to the terminal."""

    def fileno(self) -> int:
        """Returns the terminal's, for TFF's worker."""
        return sys.__stdout__.fileno()


def _figures() -> Outputs:
    """Takes the figures that are open."""
    from matplotlib import pyplot

    found = [_value(pyplot.figure(number)) for number in pyplot.get_fignums()]
    pyplot.close("all")
    return found


def _value(value: Any) -> dict[str, Any]:
    """Returns what Jupyter shows of a value."""
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "savefig"):
        png = io.BytesIO()
        value.savefig(png, dpi=100, bbox_inches="tight")
        data["image/png"] = base64.b64encode(png.getvalue()).decode()
    elif hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return {"output_type": "display_data", "metadata": {}, "data": data}


def _run_cell(source: str, names: dict[str, Any], file: str) -> Outputs:
    """Runs a cell and returns what it printed, its last value, and its figures."""
    *statements, last = ast.parse(source).body
    printed, outputs, value = _Printed(), [], None
    # TensorFlow rewrites functions from their source, which it finds here.
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    with contextlib.redirect_stdout(printed):
        if not isinstance(last, ast.Expr):
            exec(compile(source, file, "exec"), names)
        else:
            exec(compile(ast.Module(statements, []), file, "exec"), names)
            value = eval(compile(ast.Expression(last.value), file, "eval"), names)
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        outputs.append(_value(value))
    return outputs + _figures()


def run(contents: list[Cell]) -> list[Outputs]:
    """Runs cells in this process, in a folder of their own.

    Args:
      contents: The cells.

    Returns:
      For each cell what it put out.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return [
                _run_cell(cell.source, names, f"<cell {number}>")
                if cell.kind == "code"
                else []
                for number, cell in enumerate(contents)
            ]
        finally:
            os.chdir(before)


def kept_outputs(path: pathlib.Path, contents: list[Cell]) -> list[Outputs]:
    """Returns the outputs in a notebook, to keep them when text alone has changed.

    Args:
      path: The notebook.
      contents: The cells of its script.

    Raises:
      ValueError: If their code is not the notebook's.
    """
    kept = json.loads(path.read_text("utf-8"))["cells"]
    kept = [each for each in kept if each["cell_type"] == "code"]
    code = [cell.source for cell in contents if cell.kind == "code"]
    if ["".join(each["source"]) for each in kept] != code:
        raise ValueError(f"{path.name} has other code: run its script.")
    outputs = iter(kept)
    return [
        next(outputs)["outputs"] if cell.kind == "code" else [] for cell in contents
    ]


def lacking_packages(script: str) -> Iterator[str]:
    """Yields the packages that a script needs, as its head says, and that are not here.

    They are optional extras of the library; most tutorials need none.
    """
    head = _MARKER.split(script)[0]
    for words in re.findall(r"^# needs: (.*)$", head, re.MULTILINE):
        for name in words.split():
            if importlib.util.find_spec(name) is None:
                yield name


def main() -> None:
    """Runs the scripts that are named, by default all, and writes their notebooks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", type=pathlib.Path, default=scripts())
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--text", action="store_true", help="keep the outputs")
    arguments = parser.parse_args()
    named = [path.resolve() for path in arguments.scripts]
    if len(named) > 1:
        # Each in a process of its own: the execution context is the program's.
        options = [word for word in sys.argv[1:] if word.startswith("--")]
        for path in named:
            subprocess.run([sys.executable, __file__, *options, path], check=True)
        return
    os.environ["MPLBACKEND"] = "Agg"
    sys.path.insert(0, str(ROOT))
    start = time.monotonic()
    script = named[0].read_text("utf-8")
    lacking = [] if arguments.text else list(lacking_packages(script))
    if lacking:
        print(f"{named[0].stem}: not run, for lack of {', '.join(lacking)}")
        return
    contents = cells(script)
    target = named[0].with_suffix(".ipynb")
    outputs = kept_outputs(target, contents) if arguments.text else run(contents)
    if not arguments.check:
        target.write_text(notebook(contents, outputs), "utf-8")
    print(f"{named[0].stem}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
