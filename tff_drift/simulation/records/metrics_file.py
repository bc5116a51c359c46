"""The rows of a run in a CSV file that a kill cannot corrupt."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from tff_drift import checks, files
from tff_drift.simulation.records.metrics import (
    ROUND,
    MetricsRecord,
    MetricsTable,
    Number,
)


class MetricsFileError(checks.ShortError):
    """A metrics file that is not one of ours or lacks rows."""


def _parse_number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        return float(text)


def read_rows(path: str | os.PathLike[str]) -> tuple[list[str], list[MetricsRecord]]:
    """Reads a metrics file.

    A last line without its line break, left by a kill, is left out.

    Args:
      path: The file.

    Returns:
      The column names and the rows; a row lacks the columns that are empty.

    Raises:
      FileNotFoundError: If there is no such file.
      MetricsFileError: If the file is not a metrics file.
      TypeError: If `path` is not a path.
    """
    checks.check_path("path", path)
    path = pathlib.Path(path)
    try:
        with files.open_regular(path) as file:
            return _parse(file.read())
    except (OSError, ValueError, csv.Error) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise MetricsFileError(
            f"{path} is not a metrics file of tff_drift ({checks.shortened(error)}). "
            "It was left unchanged: choose another output_dir."
        ) from error


def _parse(content: bytes) -> tuple[list[str], list[MetricsRecord]]:
    if not content:
        return [], []
    whole_lines = content[: content.rfind(b"\n") + 1]
    # Bytes that are not text make the header or a number unknown.
    table = csv.reader(io.StringIO(whole_lines.decode(errors="replace"), newline=""))
    columns, *lines = list(table) or [[]]
    if columns[:1] != [ROUND]:
        raise ValueError(f"it does not begin with the column {ROUND!r}")
    rows = [
        {
            column: _parse_number(text)
            for column, text in zip(columns, line, strict=False)
            if text
        }
        for line in lines
    ]
    if any(type(row.get(ROUND)) is not int or row[ROUND] < 0 for row in rows):
        raise ValueError("it has a row without a round number")
    return columns, rows


def _format_line(values: Iterable[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue().encode()


def _format_row(columns: Sequence[str], row: Mapping[str, Number]) -> bytes:
    # `repr` of a float is the shortest text that reads back as the same float.
    return _format_line(
        repr(row[column]) if column in row else "" for column in columns
    )


class RowsDigest:
    """A hash of rows in their order, which detects a changed row.

    Attributes:
      hex: The hash of the rows so far.
    """

    def __init__(self) -> None:
        self.hex = ""
        # The round of the latest row, and the hash of the rows before it.
        self._before = (-1, "")

    def add(self, row: MetricsRecord) -> None:
        """Adds a row.

        Args:
          row: The row. The order of its columns does not matter, nor whether it has
            been read back from a file.
        """
        content = f"{self.hex} {sorted(row.items())!r}"
        # First, because Ctrl-C may come between the two.
        self._before = (int(row[ROUND]), self.hex)
        self.hex = hashlib.sha256(content.encode()).hexdigest()

    def until(self, rounds_completed: int) -> str:
        """Returns the hash of the rows up to a round.

        Args:
          rounds_completed: The round of the latest row, or the one before it.
        """
        latest, before = self._before
        return self.hex if latest <= rounds_completed else before


class MetricsFile:
    """Appends rows to a CSV file; columns may first appear in later rows.

    A kill can cut the last line short, which `read_rows` recognises. A row with
    new columns rewrites the file under its wider header in one step.

    Attributes:
      path: The file.
      rows: The rows in the file.
    """

    def __init__(self, path: pathlib.Path, rows: Sequence[MetricsRecord] = ()) -> None:
        """Writes `rows` in place of what the file holds and opens it.

        Args:
          path: The file; it is created if necessary.
          rows: The rows to begin with.

        Raises:
          OSError: If the file cannot be written.
        """
        self.path = path
        self.rows = MetricsTable(rows)
        self._columns = [ROUND]
        self._file: io.FileIO | None = None
        self._add_columns(self.rows)
        self._rewrite()

    def _add_columns(self, rows: Iterable[MetricsRecord]) -> bool:
        """Adds the rows' columns to the header; returns whether any was new."""
        before = len(self._columns)
        known = set(self._columns)
        for row in rows:
            new = [column for column in row if column not in known]
            self._columns += new
            known.update(new)
        return len(self._columns) > before

    def _rewrite(self) -> None:
        self.close()
        content = _format_line(self._columns)
        content += b"".join(_format_row(self._columns, row) for row in self.rows)
        files.replace_file(self.path, lambda file: file.write(content))
        # Without a buffer, which would keep what a full disk has refused.
        descriptor = files.open_in_place(self.path, os.O_WRONLY | os.O_APPEND)
        self._file = io.FileIO(descriptor, "ab")

    def append(self, row: MetricsRecord) -> None:
        """Adds a row.

        Args:
          row: The row; its column `round` is its number.

        Raises:
          OSError: If the file cannot be written.
        """
        self.rows.append(row)
        if self._add_columns([row]):
            self._rewrite()
        elif self._file is not None:
            line = _format_row(self._columns, row)
            while line:
                line = line[self._file.write(line) :]

    def sync(self) -> None:
        """Makes the rows appended so far durable."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; the rows stay."""
        if self._file is not None:
            self._file.close()
            self._file = None


def holds_no_more(path: pathlib.Path, rows: int) -> bool:
    """Returns whether a file is a header and so many rows, the last one whole too.

    Args:
      path: The metrics file.
      rows: Their number.

    Raises:
      OSError: If it cannot be read.
    """
    with files.open_regular(path) as file:
        content = file.read()
    return content.endswith(b"\n") and content.count(b"\n") == 1 + rows


def rows_until(path: pathlib.Path, rounds_completed: int) -> list[MetricsRecord]:
    """Reads the rows that belong to a checkpoint.

    Args:
      path: The metrics file.
      rounds_completed: The checkpoint's number of rounds; later rows are left
        out.

    Returns:
      The rows of the rounds up to `rounds_completed`.

    Raises:
      MetricsFileError: If the file is missing, is not a metrics file, or lacks
        rows.
    """
    try:
        _, rows = read_rows(path)
    except FileNotFoundError:
        rows = []
    kept = [row for row in rows if row[ROUND] <= rounds_completed]
    rounds = [row[ROUND] for row in kept if row[ROUND] > 0]
    if rounds != list(range(1, rounds_completed + 1)):
        raise MetricsFileError(
            f"{path} has {len(rounds)} of the rounds 1 to {rounds_completed} of the "
            "checkpoint beside it. Restore the file, or choose another output_dir."
        )
    return kept
