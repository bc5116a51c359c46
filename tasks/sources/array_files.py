"""Reading of files of NumPy arrays."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np

from tasks.sources import example_checks
from tff_drift import checks, files

_SUFFIX = ".npy"


def read_arrays(
    path: pathlib.Path, names: Sequence[str], where: str
) -> dict[str, np.ndarray]:
    """Returns arrays of a file that `numpy.savez` wrote.

    Objects, which NumPy would keep as pickles, are refused: reading runs nothing of
    what a file holds. Every array is read to its end, where its checksum is compared.

    Args:
      path: The file.
      names: The names of the arrays to read.
      where: The file, and whose it is, for messages.

    Returns:
      The arrays by name.

    Raises:
      DataError: If the file cannot be read, is damaged, lacks an array or has weights.
    """
    try:
        with files.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            found = sorted(name.removesuffix(_SUFFIX) for name in archive.namelist())
            arrays = {name: _read(archive, name) for name in names if name in found}
    except OSError as error:
        raise example_checks.unreadable(where, error) from error
    # Neither `zipfile` nor NumPy says what damaged files make their parsers raise.
    except Exception as error:
        raise example_checks.DataError(
            f"{where} cannot be read as a file of NumPy arrays "
            f"({checks.shortened(str(error))}). It may be damaged: write it "
            "again, with numpy.savez."
        ) from error
    missing = [name for name in names if name not in arrays]
    if missing:
        raise example_checks.DataError(
            f"{where} has no array {missing}; it has {checks.shown(found)}. Save "
            f"{', '.join(names)} with numpy.savez."
        )
    example_checks.check_no_weights({*found} - {*names}, where)
    return arrays


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name + _SUFFIX) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        # `np.load` stops at the last value, before the checksum, and would take an
        # array for a part of it whose header has a damaged shape.
        if member.read(1):
            raise ValueError(
                f"there is more than the array {checks.shown(name)} in its place"
            )
    return array
