"""Clients as a user's data names them, and what may be one of them or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.sources import example_checks
from tff_drift import checks

if TYPE_CHECKING:
    import pandas as pd


class Owners:
    """The clients that all tables or files of a task name."""

    def __init__(self) -> None:
        """Begins with no client."""
        # By what is no string, by what people see of strings, and by the numbers that
        # strings read as.
        self._values: dict[Any, example_checks.Place] = {}
        self._texts: dict[str | bytes, example_checks.Place] = {}
        self._numbers: dict[float, example_checks.Place] = {}

    def add(self, owners: pd.Series, where: str) -> None:
        """Adds the clients of a table.

        Args:
          owners: The column that says whose example a row is.
          where: The table, for messages.

        Raises:
          DataError: If a value is missing, is a float that may have been rounded, or
            may be the client of another value, here or in a table before: like 1 and
            1.0, 1 and "1.0", "a" and " a", or Unicode's forms of "é"; or, in one
            table, 1 and "1"; or if values do not sort, like 1 and a date.
        """
        if owners.isna().any():
            raise example_checks.DataError(
                f"{where} has no client in column {checks.shown(owners.name)} of row "
                f"{checks.shown(owners.index[owners.isna()][0])}. Fill it in or leave "
                "the row out."
            )
        by_text: dict[str, Any] = {}
        for value in _distinct(owners, where):
            _check_not_rounded(value, owners.name, where)
            known = by_text.setdefault(str(value), value)
            if known != value:
                raise _may_be_one((known, where), (value, where), owners.name)
            for place in self._like(value, where):
                if str(place[0]) != str(value):
                    raise _may_be_one(place, (value, where), owners.name)
        _check_sorts(owners, where)

    def add_text(self, owner: str, where: str) -> None:
        """Adds a client that a text names.

        Args:
          owner: The client.
          where: The file or the folder, for messages.

        Raises:
          DataError: If it may be one from before, like "a" and " a".
        """
        for place in self._like(owner, where):
            if place[0] != owner:
                raise _may_be_one(place, (owner, where))

    def _like(self, value: Any, where: str) -> list[example_checks.Place]:
        """Returns the places of a value and of those that may be the same client."""
        here = (value, where)
        if not isinstance(value, str):
            found = [self._values.setdefault(value, here), self._numbers.get(value)]
            return [place for place in found if place is not None]
        places = [self._texts.setdefault(example_checks.as_read(value), here)]
        number = _number(value)
        if number is not None:
            self._numbers.setdefault(number, here)
            if number in self._values:
                places.append(self._values[number])
        return places


def _distinct(owners: pd.Series, where: str) -> list[Any]:
    """Returns the different values of a column; equal ones of two types are two."""
    # Values of one type, as NumPy's arrays hold them, differ by their texts.
    if owners.dtype != object:
        return list(owners.unique())
    found: dict[tuple[type, Any], None] = {}
    for value in owners:
        try:
            found[type(value), value] = None
        except TypeError:
            raise example_checks.DataError(
                f"{where} has the client {checks.shown(value)} in column "
                f"{checks.shown(owners.name)}. Give clients strings or numbers."
            ) from None
    return [value for _, value in found]


def _check_sorts(owners: pd.Series, where: str) -> None:
    """Raises if a table's rows cannot be grouped by client in the clients' order."""
    try:
        owners.factorize(sort=True)
    except TypeError as error:
        raise example_checks.DataError(
            f"{where}, column {checks.shown(owners.name)}: clients of several kinds "
            f"cannot be sorted ({error}). Write all ids as strings, alike, such as by "
            "pandas' .astype(str)."
        ) from error


def _number(text: str) -> float | None:
    """Returns the number that a text reads as, an integer without rounding."""
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return None


def _check_not_rounded(value: Any, column: Any, where: str) -> None:
    """Raises if a client is a float of which several integers may have become one."""
    if not isinstance(value, (float, np.floating)):
        return
    if abs(value) >= 2 ** (np.finfo(type(value)).nmant + 1):
        raise example_checks.DataError(
            f"{where}, column {checks.shown(column)}: the client {float(value)} is a "
            "float, to which integers so large are rounded, two perhaps to one. Read "
            "ids as strings, such as by "
            f"pandas.read_csv(..., dtype={{{column!r}: str}})."
        )


def _may_be_one(
    known: example_checks.Place, here: example_checks.Place, column: Any = None
) -> example_checks.DataError:
    """Returns the error for two values, perhaps of a column, of one client or two."""
    values = (known[0], here[0])
    if all(isinstance(value, str) for value in values):
        remedy = example_checks.write_alike(values)
    else:
        how = "astype(str)" if known[1] == here[1] else "astype(int).astype(str)"
        if any(str(value) != str(value).strip() for value in values):
            how = "str.strip()"
        remedy = f"Write all ids as strings, alike, such as by pandas' .{how}."
    field = "" if column is None else f", column {checks.shown(column)}"
    return example_checks.may_be_one(known, here, "client", remedy, field)
