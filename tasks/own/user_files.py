"""Reading and checking of a client's file: a table, or arrays."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import pathlib
import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tasks.own import user_folders, user_tables
from tasks.sources import array_files, example_checks
from tff_drift import checks, files

if TYPE_CHECKING:
    import pandas as pd

INPUTS = "x"
# Not of so many digits that a float is infinite; pandas leaves out spaces.
_INTEGER = r"\s*[+-]?\d{16,300}\s*"
_DECIMAL_COMMA = re.compile(r"\d,\d")
_FOREIGN_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Examples = tuple[np.ndarray, np.ndarray]


class Layout(NamedTuple):
    """The layout of features that all clients' files must have.

    Attributes:
      path: The file that set it: the first one.
      columns: The columns of features of a table, in the order of the model's
        inputs; `None` for files of arrays.
      shape: The shape of an example's features.
      given: Whether the user named the columns, so that a file may have others too.
    """

    path: pathlib.Path
    columns: tuple[str, ...] | None
    shape: tuple[int, ...]
    given: bool


def find_layout(
    path: pathlib.Path, label: str, features: Sequence[str] | None
) -> Layout:
    """Returns what the features of a file are, for all others to be alike.

    Args:
      path: The file.
      label: The column or array of labels.
      features: The columns of features of a table; `None` takes all others.

    Returns:
      The layout.

    Raises:
      DataError: As in `read_file`.
      ValueError: If `features` are given for a file of arrays.
    """
    where = _where(path)
    if path.suffix.lower() == user_folders.ARRAYS:
        if features is not None:
            raise ValueError(
                f"features are columns of tables, but {path} is a file of arrays. "
                f"Leave features (--features) out: the array {INPUTS!r} holds all."
            )
        inputs, _ = _read_arrays(path, label, where)
        return Layout(path, None, inputs.shape[1:], False)
    used = None if features is None else [*features, label]
    table = read_table(path, where, used)
    columns = user_tables.feature_columns(
        list(table.columns), {"label": label}, features, where
    )
    return Layout(path, tuple(columns), (len(columns),), features is not None)


class WrittenLabels:
    """The spellings of labels that were read as numbers, in all files of a task.

    Codes such as 1.1 and 1.10 are two texts and one number: of labels that may be
    classes it is not known whether they are one.
    """

    def __init__(self, label: str) -> None:
        """Begins with no file.

        Args:
          label: The column of labels.
        """
        self.label = label
        # By what was read: a text, and the file in which it stands.
        self._texts: dict[Any, tuple[str, str]] = {}

    def add(self, labels: pd.Series, table: bytes, where: str) -> None:
        """Adds the labels of a file.

        Args:
          labels: The labels as they were read.
          table: The text of the file, in UTF-8.
          where: The file, for messages.

        Raises:
          DataError: If a number is written in two ways, of which Python writes one at
            most, here or in a file before.
        """
        import pandas as pd

        if labels.dtype.kind not in "biuf":
            return
        if labels.dtype.kind == "b":
            written = labels.map(str)  # TRUE and True are one.
        else:
            texts = pd.read_csv(io.BytesIO(table), usecols=[self.label], dtype=str)
            written = texts[self.label]
        pairs = pd.DataFrame({"read": labels, "written": written})
        for value, text in pairs.dropna().drop_duplicates().itertuples(index=False):
            first, place = self._texts.setdefault(value, (text, where))
            if first == text or (_is_plain(first) and _is_plain(text)):
                continue
            raise example_checks.may_be_one(
                (first, place),
                (text, where),
                "label",
                "Write all labels alike, as integers or as words; or give "
                "target='number' (--task=own_numbers) to predict numbers.",
                f", field {checks.shown(self.label)}",
            )


def _is_plain(text: str) -> bool:
    """Whether a text is how Python writes the number that it is."""
    for parse in (int, float):
        try:
            return repr(parse(text)) == text
        except ValueError:
            continue
    return False


def read_file(
    path: pathlib.Path,
    label: str,
    layout: Layout,
    written: WrittenLabels | None = None,
) -> Examples:
    """Returns a client's features and labels, checked except for the labels' range.

    Args:
      path: The client's file.
      label: The column or array of labels.
      layout: What the features must be. Columns are taken by their names, whatever
        the file's order.
      written: What to add to how labels are written.

    Returns:
      The features, `float32` with one row per example, and the labels as they are.

    Raises:
      DataError: If the file cannot be read, is not UTF-8, lacks a column or an
        array, has features of other names or another shape than the first file, no
        examples, a feature that is not a number or not finite, or a label is missing.
    """
    where = _where(path)
    if (path.suffix.lower() == user_folders.ARRAYS) != (layout.columns is None):
        raise example_checks.DataError(
            f"{where} is of another kind than {layout.path}. Write tables for all "
            "clients, or arrays for all."
        )
    if layout.columns is None:
        inputs, labels = _read_arrays(path, label, where)
        if inputs.shape[1:] != layout.shape:
            raise example_checks.DataError(
                f"{where}, field {INPUTS!r}: found examples of shape "
                f"{inputs.shape[1:]}, but {layout.shape} in {layout.path}. Give all "
                "clients the same."
            )
        return inputs, labels
    names = layout.columns if layout.given else None
    used = None if names is None else [*names, label]
    table = read_table(path, where, used, written)
    found = user_tables.feature_columns(
        list(table.columns), {"label": label}, names, where
    )
    if set(found) != set(layout.columns):
        raise example_checks.DataError(
            f"{where} has the columns of features {user_tables.listed(found)}, but "
            f"{layout.path} has {user_tables.listed(layout.columns)}. Give all "
            "clients the same columns, or name those to use by features "
            "(--features)."
        )
    return user_tables.table_examples(table, layout.columns, label, where)


def _where(path: pathlib.Path) -> str:
    return f"{path}: client {checks.shown(user_folders.client_of(path))}"


def read_table(
    path: pathlib.Path,
    where: str,
    used: Sequence[str] | None = None,
    written: WrittenLabels | None = None,
    texts: Sequence[str] = (),
) -> pd.DataFrame:
    """Returns a table, whose columns have a name each.

    Args:
      path: A CSV table in UTF-8, by gzip or not, or a Parquet table.
      where: The table, for messages.
      used: The columns that are used; `None` for all, so that none may be without a
        name.
      written: What to add to how labels of a CSV table are written.
      texts: Columns whose texts are kept as they are in a CSV table, such as 007; of an
        empty one NaN.

    Raises:
      DataError: If it cannot be read, a CSV table is separated by semicolons or tabs,
        columns are called the same or not at all, an integer of a CSV table is among
        floats that round it, or as in `WrittenLabels.add`.
      ValueError: If pyarrow, which reads Parquet, is not installed.
    """
    # Takes a while to import, and tables are read here alone.
    import pandas as pd

    if path.suffix.lower() == user_folders.PARQUET:
        return _read_parquet(path, where)
    # As bytes, which pandas decodes in parts: texts of all of it take much RAM.
    text = _read_utf8(path, where)
    _check_separator(text, where)
    try:
        # With the first row, because one longer than the header is an error here, and
        # pandas would take its first fields for the name of the row below.
        header = pd.read_csv(
            io.BytesIO(text), header=None, nrows=2, dtype=str, keep_default_na=False
        )
        # Numbers as Python reads them, which pandas 3 does by itself, and one type for
        # a whole column.
        is_old = pd.__version__.startswith("2.")
        exactly = {"float_precision": "round_trip"} if is_old else {}
        table = pd.read_csv(
            io.BytesIO(text),
            low_memory=False,
            converters=dict.fromkeys(texts, lambda text: text or np.nan),
            **exactly,
        )
        if written is not None and written.label in table:
            written.add(table[written.label], text, where)
    except example_checks.DataError:
        raise
    except (ValueError, OverflowError) as error:
        # What pandas says ends with a line break.
        reason = checks.shortened(str(error))
        raise example_checks.DataError(
            f"{where} cannot be read as a CSV table ({reason}). Write a line with a "
            "name for every column and a line per example."
        ) from error
    names = header.iloc[0].tolist()
    user_tables.check_distinct(names, where)
    if used is None and "" in names:
        raise example_checks.DataError(
            f"{where} has a column without a name, perhaps of row numbers. Name it, "
            "write the table without it (pandas: index=False), or name the columns to "
            "use by features (--features)."
        )
    _check_not_rounded(
        table[[name for name in used or table if name in table]], text, where
    )
    return table


def _check_separator(text: bytes, where: str) -> None:
    """Raises if a table is separated by what spreadsheets write in place of commas."""
    with io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="") as lines:  # "\r" too.
        first = next(filter(str.strip, lines), "")
    found = [each for each in (";", "\t") if each in first]
    if not found or "," in first:
        return
    decimal = ", decimal=','" if _DECIMAL_COMMA.search(text.decode()) else ""
    raise example_checks.DataError(
        f"{where} is separated by {found[0]!r}, and a CSV table by commas. Save it "
        "with commas, or give tasks.from_frame what pandas.read_csv(path, "
        f"sep={found[0]!r}{decimal}) reads."
    )


def _check_not_rounded(table: pd.DataFrame, text: bytes, where: str) -> None:
    """Raises if an integer was rounded, because others of its column are floats.

    Args:
      table: The columns to check.
      text: The text of the whole table, in UTF-8.
      where: The table, for messages.
    """
    import pandas as pd

    floats = table.select_dtypes("float")
    for name in floats.columns[(floats.abs() >= example_checks.LARGEST_QUANTITY).any()]:
        texts = pd.read_csv(io.BytesIO(text), usecols=[name], dtype=str)[name]
        for row in np.flatnonzero(texts.str.fullmatch(_INTEGER, na=False)):
            if int(texts[row]) != float(table[name][row]):  # Exactly, in Python.
                raise example_checks.DataError(
                    f"{where}, field {checks.shown(name)}, row {row}: found the "
                    f"integer {checks.shortened(texts[row])} in a column of floats, "
                    "which round it. Write a quantity as a float too, with '.0', and "
                    "a code as text, or leave it out."
                )


def _read_parquet(path: pathlib.Path, where: str) -> pd.DataFrame:
    import pandas as pd

    try:
        with files.open_regular(path) as file:
            table = pd.read_parquet(file)
    except ImportError as error:
        raise ValueError(
            f"{where} is read by pyarrow, which is not installed. Install it, or write "
            "the table as CSV."
        ) from error
    # Neither pandas nor pyarrow says what damaged files make their parsers raise.
    except Exception as error:
        reason = checks.shortened(str(error))
        raise example_checks.DataError(
            f"{where} cannot be read as a Parquet table ({reason}). It may be damaged: "
            "write it again, with pandas."
        ) from error
    user_tables.check_distinct(list(table.columns), where)
    return table


def _read_utf8(path: pathlib.Path, where: str) -> bytes:
    """Returns the text of a CSV table, in UTF-8 without a byte order mark."""
    try:
        with files.open_regular(path) as file:
            data = file.read()
        if path.suffix.lower() == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise example_checks.unreadable(where, error) from error
    if data.startswith(_FOREIGN_MARKS) or b"\0" in data:
        raise example_checks.DataError(
            f"{where}: the text is UTF-16, or none at all, not UTF-8. Save the table "
            "as CSV in UTF-8."
        )
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        lines = data[: error.start].decode("latin-1").splitlines() or [""]
        # The header is UTF-8 if the error is below it; the fields in front of the
        # bad byte count the columns.
        header, row = (fields(line) for line in (lines[0], lines[-1]))
        known = 0 < len(row) <= len(header)
        field = f", field {checks.shown(header[len(row) - 1])}" if known else ""
        raise example_checks.DataError(
            f"{where}{field}, line {len(lines)}: the text is not UTF-8 ({error}). "
            "Convert the file."
        ) from error
    return data


def fields(line: str) -> list[str]:
    """Returns the fields of a line of CSV, an empty one if they cannot be told.

    Args:
      line: The line.
    """
    try:
        return next(csv.reader([line]), [""])
    # A field of more than 131,072 characters.
    except csv.Error:
        return [""]


def _read_arrays(path: pathlib.Path, label: str, where: str) -> Examples:
    arrays = array_files.read_arrays(path, (INPUTS, label), where)
    inputs, labels = arrays[INPUTS], arrays[label]
    if inputs.dtype.kind not in "biuf" or inputs.ndim < 2 or 0 in inputs.shape[1:]:
        raise example_checks.DataError(
            f"{where}, field {INPUTS!r}: expected numbers with one row per example, "
            f"found {inputs.dtype} of shape {inputs.shape}."
        )
    if labels.shape != inputs.shape[:1]:
        raise example_checks.DataError(
            f"{where}, field {checks.shown(label)}: expected {len(inputs)} labels, "
            f"found the shape {labels.shape}. Give one label per example."
        )
    if labels.dtype.kind not in "biufSU":
        raise example_checks.DataError(
            f"{where}, field {checks.shown(label)}: expected integers or strings, "
            f"found {labels.dtype}. Turn the labels into one of these."
        )
    if not len(labels):
        # An error, like that of any client without examples.
        example_checks.check_features({label: labels}, where)
    if labels.dtype.kind == "f":
        example_checks.check_given(
            np.isnan(labels), f"{where}, field {checks.shown(label)}"
        )
    return example_checks.to_float32(inputs, f"{where}, field {INPUTS!r}"), labels
