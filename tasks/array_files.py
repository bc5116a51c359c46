"""Reading of files of NumPy arrays."""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np


def read_arrays(
    path: pathlib.Path, names: Sequence[str], where: str
) -> dict[str, np.ndarray]:
    """Returns arrays of a file that `numpy.savez` wrote.

    Args:
      path: The file.
      names: The names of the arrays to read.
      where: The file, and whose it is, for messages.

    Returns:
      The arrays by name.

    Raises:
      ValueError: If the file cannot be read, or lacks an array.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            found = sorted(file)
            arrays = {name: file[name] for name in names if name in file}
    # NumPy takes what is no archive for something else that it refuses.
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{where} cannot be read as a file of NumPy arrays ({error}). It may be "
            "damaged: write it again, with numpy.savez."
        ) from error
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(
            f"{where} has no array {missing}; it has {found}. Save {', '.join(names)} "
            "with numpy.savez."
        )
    return arrays
