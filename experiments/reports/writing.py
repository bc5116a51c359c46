"""Files of results, each replaced in one step."""

from __future__ import annotations

import gzip
import json
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments import escape
from experiments.flags.errors import UserError
from tff_drift import files


def make_output_dir(folder: pathlib.Path) -> None:
    """Makes the folder of a command's results, which files can be written in.

    Args:
      folder: The folder; it may be there.

    Raises:
      UserError: If it cannot be made, or no file in it.
    """
    try:
        files.make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(
            f"output_dir {str(folder)!r} cannot be written: {error}. Choose a folder "
            "that can be created and written."
        ) from error


def remove(folder: pathlib.Path, *patterns: str) -> None:
    """Removes the files that an earlier call wrote, and this one may not write again.

    Args:
      folder: Their folder.
      *patterns: Their names, as `glob` takes them.

    Raises:
      OSError: If a file cannot be removed.
    """
    for pattern in patterns:
        for path in list(folder.glob(pattern)):
            if path.is_symlink() or path.is_file():
                path.unlink(missing_ok=True)


def write_json(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Replaces a JSON file in one step.

    Args:
      path: The file.
      content: JSON values.

    Raises:
      OSError: If the file cannot be written.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(path, text)


def write_table(path: pathlib.Path, table: pd.DataFrame) -> None:
    """Replaces a CSV file in one step.

    Args:
      path: The file.
      table: The table; its index is left out.

    Raises:
      OSError: If the file cannot be written.
    """
    texts = table.select_dtypes(exclude="number")
    table = table.assign(**{name: texts[name].map(_plain) for name in texts})
    table.columns = [_plain(name) for name in table]
    write_text(path, table.to_csv(index=False))


def _plain(value: Any) -> Any:
    return escape.csv(value) if isinstance(value, str) else value


def write_compressed_table(path: pathlib.Path, table: pd.DataFrame) -> None:
    """Replaces a compressed CSV file in one step; equal tables make equal files.

    Args:
      path: The file.
      table: The table; its index is left out.

    Raises:
      OSError: If the file cannot be written.
    """
    write_bytes(path, gzip.compress(table.to_csv(index=False).encode(), mtime=0))


def write_text(path: pathlib.Path, text: str) -> None:
    """Replaces a text file in one step.

    Args:
      path: The file.
      text: What it is to hold.

    Raises:
      OSError: If the file cannot be written.
    """
    # A command may name a folder whose name is no text.
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Replaces a file in one step.

    Args:
      path: The file.
      content: What it is to hold.

    Raises:
      OSError: If the file cannot be written.
    """
    files.replace_file(path, lambda file: file.write(content))
