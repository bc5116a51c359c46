"""Runs the tutorials and keeps their outputs: `make notebooks`.

A tutorial is a text, `docs/tutorials/NAME.py` in the percent format of jupytext, which
is what one reviews and edits. Its notebook beside it, `NAME.ipynb`, is that text run
from top to bottom in the environment of the library.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import jupytext
import nbclient
import nbformat

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
KERNEL = "library"


def install_kernel(folder: pathlib.Path, python: str) -> None:
    """Describes the library's Python to Jupyter, with this environment's kernel."""
    here = [path for path in sys.path if path.endswith("site-packages")]
    paths = [str(ROOT), *here]
    kernel = folder / "kernels" / KERNEL
    kernel.mkdir(parents=True)
    kernel.joinpath("kernel.json").write_text(
        json.dumps(
            {
                "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                "display_name": "Python 3",
                "language": "python",
                "env": {"PYTHONPATH": os.pathsep.join(paths)},
            }
        )
    )


def run(text: pathlib.Path, seconds: int) -> nbformat.NotebookNode:
    """Returns a tutorial as a notebook, with the outputs of a whole run."""
    notebook = jupytext.read(text)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            notebook,
            kernel_name=KERNEL,
            timeout=seconds,
            resources={"metadata": {"path": folder}},
        ).execute()
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if not _is_noise(each)]
    return notebook


def _is_noise(output: nbformat.NotebookNode) -> bool:
    """What TensorFlow tells of the processor that a tutorial happened to run on."""
    return output.output_type == "stream" and output.name == "stderr"


def main() -> None:
    """Runs those tutorials that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="the library's Python")
    parser.add_argument("--seconds", type=int, default=900, help="the limit of a cell")
    parser.add_argument("names", nargs="*", help="tutorials, without .py; default: all")
    arguments = parser.parse_args()
    names = arguments.names or sorted(path.stem for path in TUTORIALS.glob("*.py"))
    with tempfile.TemporaryDirectory() as folder:
        install_kernel(pathlib.Path(folder), os.path.abspath(arguments.python))
        os.environ["JUPYTER_PATH"] = folder
        for name in names:
            start = time.monotonic()
            notebook = run(TUTORIALS / f"{name}.py", arguments.seconds)
            nbformat.write(notebook, TUTORIALS / f"{name}.ipynb")
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
