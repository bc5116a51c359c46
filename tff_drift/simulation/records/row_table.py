"""The rows of a long run in little RAM."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Union, overload

from tff_drift.simulation.records.metrics import Number, Row

_FLOAT, _SIGNED, _UNSIGNED = "d", "q", "Q"
# An integer of more than 64 bits, whose row stays as it is.
_LARGE = "?"


class _Layout(NamedTuple):
    """The columns that some rows share, and how their numbers are packed."""

    names: tuple[str, ...]
    packing: struct.Struct


class RowTable(Sequence[Row]):
    """A growing sequence of rows, each of which is packed into bytes.

    As dictionaries the rows of a run take some 5 KB each, most of it for names, which
    are the same in every row. Packed they take 8 bytes for a number and about 100 for a
    row. Rows come out as new dictionaries that equal those that went in.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Makes a table.

        Args:
          rows: The rows to begin with.
        """
        self._layouts: dict[tuple[tuple[str, ...], str], _Layout] = {}
        self._rows: list[tuple[_Layout, bytes] | Row] = []
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """Adds a row.

        Args:
          row: Numbers by column name.
        """
        names = tuple(row)
        codes = "".join(map(_code, row.values()))
        if _LARGE in codes:
            self._rows.append(dict(row))
            return
        layout = self._layouts.get((names, codes))
        if layout is None:
            layout = _Layout(tuple(map(sys.intern, names)), struct.Struct("=" + codes))
            self._layouts[names, codes] = layout
        self._rows.append((layout, layout.packing.pack(*row.values())))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: Union[int, slice]) -> Any:  # noqa: UP007
        if isinstance(index, slice):
            return [_unpack(row) for row in self._rows[index]]
        return _unpack(self._rows[index])


def _code(number: Number) -> str:
    if isinstance(number, float):
        return _FLOAT
    if not -(2**63) <= number < 2**64:
        return _LARGE
    return _SIGNED if number < 2**63 else _UNSIGNED


def _unpack(row: tuple[_Layout, bytes] | Row) -> Row:
    if isinstance(row, dict):
        return dict(row)
    layout, packed = row
    return dict(zip(layout.names, layout.packing.unpack(packed)))
