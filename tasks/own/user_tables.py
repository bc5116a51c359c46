"""Checks of a user's tables: their columns, their clients and what these hold."""

from __future__ import annotations

import collections
import datetime
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.sources import example_checks
from tff_drift import checks

if TYPE_CHECKING:
    import pandas as pd

# At the end of a time of ISO 8601.
_OFFSET = r"[T ].*(?:Z|[+-]\d\d(?::?\d\d)?)$"
_DURATIONS = (datetime.timedelta, np.timedelta64)
# Integers beyond those of 64 bits, and some before.
_HUGE = r"[+-]?\d{17,}"
# How files write truth values, which are numbers unless a word is among them.
_TRUTHS = ("True", "False", "TRUE", "FALSE", "true", "false")
# Names in a message, at most.
_MOST_LISTED = 30
# Of the arguments that are called otherwise on the command line.
_FLAGS = {"client_id": "client_column", "time": "time_column"}


def check_table(name: str, table: Any) -> None:
    """Raises unless an argument is a table with rows and distinct columns.

    Args:
      name: The argument's name.
      table: Its value.

    Raises:
      DataError: If the table has no rows, or columns of one name.
      TypeError: If it is not a pandas table.
    """
    # Takes a while to import, and tables are read here alone.
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise TypeError(
            f"{name} must be a pandas.DataFrame, found {type(table).__name__}. Turn it "
            "into one, or see from_folder and from_sqlite for files."
        )
    if table.columns.nlevels > 1:
        raise example_checks.DataError(
            f"{name} has columns of {table.columns.nlevels} levels. Give each column "
            "one name."
        )
    if table.empty:
        raise example_checks.DataError(
            f"{name} has {len(table)} rows and {len(table.columns)} columns. Give one "
            "row per example."
        )
    check_distinct(list(table.columns), name)


def check_distinct(columns: Sequence[Any], where: str) -> None:
    """Raises if two columns have one name.

    Args:
      columns: The names of the columns.
      where: The table, for messages.

    Raises:
      DataError: If a name appears twice.
    """
    counts = collections.Counter(columns)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise example_checks.DataError(
            f"{where} has the column {checks.shown(twice[0])} more than once. Give "
            "each column a name of its own."
        )


def feature_columns(
    columns: Sequence[Any],
    others: Mapping[str, Any],
    features: Sequence[Any] | None,
    where: str,
) -> list[Any]:
    """Returns the columns of features.

    Args:
      columns: The columns of the table.
      others: The columns that are none, by the arguments that name them: `label`, and
        perhaps `client_id` and `time`.
      features: The columns wanted; `None` takes all that are left.
      where: The table, for messages.

    Returns:
      The columns, in the order of `features` or of the table.

    Raises:
      DataError: If a column is missing, none is left, or one has weights and is not
        named.
    """
    wanted = features
    if wanted is None:
        wanted = [name for name in columns if name not in others.values()]
        example_checks.check_no_weights(wanted, where)
    known = set(columns)
    missing = [name for name in (*others.values(), *wanted) if name not in known]
    if missing or not wanted:
        lack = f"no column {listed(missing)}" if missing else "no column of features"
        names = ", ".join(
            f"{name} (--{_FLAGS.get(name, name)})" for name in (*others, "features")
        )
        raise example_checks.DataError(
            f"{where} has {lack}; its columns are {listed(columns)}. Name those to "
            f"use by {names}."
        )
    return list(wanted)


def listed(names: Sequence[Any]) -> str:
    """Returns names as a list, the first of them if there are many.

    Args:
      names: The names of columns.
    """
    first = ", ".join(map(repr, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    first = checks.shortened(first)
    return f"[{first}]" if more <= 0 else f"[{first}, and {more} more]"


def check_no_words(
    column: pd.Series, where: str, owners: pd.Series | None = None, remedy: str = ""
) -> None:
    """Raises if a column has a value that cannot be read as a number.

    One word makes texts of all numbers of its column in a file.

    Args:
      column: The column.
      where: The table, for messages.
      owners: The column that says whose example a row is, if the table has one.
      remedy: What to do; by default as for features.

    Raises:
      DataError: If it has; the message names the first one and its row.
    """
    # Takes a while to import, and tables are read here alone.
    import pandas as pd

    if column.dtype.kind in "biufmMc":
        return
    values = column.astype(object)
    try:
        are_read = pd.to_numeric(values, errors="coerce").notna()
    except (TypeError, ValueError):  # Lists, for example, which are no words.
        return
    texts = values.astype(str)
    is_word = ~(are_read | values.isna() | texts.isin(_TRUTHS))
    # What makes texts of a column of integers in a file.
    is_word |= texts.str.fullmatch(_HUGE)
    if is_word.any():
        row = int(np.argmax(is_word.to_numpy()))
        if owners is not None:
            where = f"{where}: client {checks.shown(str(owners.iloc[row]))}"
        raise example_checks.DataError(
            f"{where}, field {checks.shown(column.name)}, row "
            f"{checks.shown(column.index[row])}: expected numbers, found "
            f"{checks.shown(values.iloc[row])} of {column.dtype}. "
            f"{_remedy(column.dtype, values.iloc[row], remedy)}"
        )


def client_examples(
    table: pd.DataFrame,
    owners: pd.Series,
    columns: Sequence[Any],
    label: Any,
    where: str,
    time: Any = None,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns each client's features and labels, checked except for the labels' kind.

    Columns are checked as a whole: there may be many clients of a few rows.

    Args:
      table: The table.
      owners: The owner of each row.
      columns: The columns of features.
      label: The column of labels.
      where: The table, for messages.
      time: The column whose order the examples are put into; `None` leaves them as
        they are.

    Returns:
      By client, in sorted order, views of arrays of all clients.

    Raises:
      DataError: As in `table_examples`, or if a time is none.
    """
    groups = table.groupby(owners, sort=True, observed=True)
    try:
        order = _order(table, time, where)
        examples = table_examples(table, columns, label, where)
    except example_checks.DataError:
        # The message is to name the first such client, and its first such row.
        for owner, rows in groups:
            of_client = f"{where}: client {checks.shown(str(owner))}"
            ordered = rows.iloc[_order(rows, time, of_client)]
            table_examples(ordered, columns, label, of_client)
        raise
    return _by_client(groups, order, *examples)


def _order(rows: pd.DataFrame, time: Any, where: str) -> np.ndarray:
    """Returns the numbers of rows in the order of time, or as they are without one."""
    if time is None:
        return np.arange(len(rows))
    _check_times(rows[time], f"{where}, field {checks.shown(time)}")
    # An index may have the column's name.
    times = rows[time].reset_index(drop=True)
    return times.sort_values(kind="stable").index.to_numpy()


def _by_client(groups: Any, order: np.ndarray, *arrays: np.ndarray) -> dict[str, Any]:
    """Returns each client's parts of arrays with a value or more for each row.

    Args:
      groups: The rows by their owners, as pandas groups them.
      order: The numbers of all rows in the order that each client's are to have.
      *arrays: The arrays, in the order of the table.
    """
    sizes = groups.size()
    order = order[np.argsort(groups.ngroup().to_numpy()[order], kind="stable")]
    ends = np.cumsum(sizes.to_numpy())[:-1]
    parts = zip(*(np.split(array[order], ends) for array in arrays), strict=True)
    return dict(zip(map(str, sizes.index), parts, strict=True))


def table_examples(
    rows: pd.DataFrame, columns: Sequence[Any], label: Any, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the features and labels of rows, checked except for the labels' kind.

    Args:
      rows: A table, or the part of a client.
      columns: The columns of features.
      label: The column of labels.
      where: The table and the client, for messages.

    Returns:
      The features, `float32[examples, columns]`, and the labels as they are.

    Raises:
      DataError: If there is no row, a feature is not a number or not finite, or a
        label is missing or a date.
    """
    arrays: dict[str, np.ndarray] = {}
    if rows.empty:
        # A table without rows has columns of no type.
        example_checks.check_features(arrays, where)
    for name in columns:
        column = rows[name]
        field = f"{where}, field {checks.shown(name)}"
        if column.dtype.kind not in "biuf":
            check_no_words(column, where)
            raise example_checks.DataError(
                f"{field}: expected numbers, found {column.dtype} such as "
                f"{checks.shown(column.iloc[0])}. "
                f"{_remedy(column.dtype, column.iloc[0])}"
            )
        numbers = (
            column.to_numpy(_plain_dtype(column))
            if column.notna().all()
            # What is missing has no place among integers.
            else column.to_numpy(float, na_value=np.nan)
        )
        arrays[name] = example_checks.to_float32(numbers, field, rows.index)
    return np.stack(list(arrays.values()), axis=1), _labels(rows[label], where)


def _plain_dtype(column: pd.Series) -> Any:
    """Returns NumPy's dtype for a column: nullable, of pyarrow, sparse or its own."""
    of_dense = getattr(column.dtype, "subtype", column.dtype)
    return getattr(column.dtype, "numpy_dtype", of_dense)


def _remedy(dtype: Any, value: Any, of_words: str = "") -> str:
    """Returns what to do with a column that has no numbers, but such a value.

    Args:
      dtype: The column's type.
      value: The value.
      of_words: What to do with one of words; by default as with features.
    """
    if dtype.kind == "m" or isinstance(value, _DURATIONS):
        return "Turn durations into numbers, by .dt.total_seconds(), or leave them out."
    if dtype.kind == "M" or isinstance(value, _times()):
        return (
            "Turn dates into numbers, such as .dt.hour or the seconds since the first "
            "of them, leave them out, or name the order of rows by time "
            "(--time_column)."
        )
    return of_words or (
        "Turn it into numbers (of categories pandas.get_dummies makes a column each, "
        "of texts pandas.to_numeric reads numbers), or leave it out: name the others "
        "by features (--features)."
    )


@functools.cache
def _times() -> tuple[type, ...]:
    """Returns the types of dates, times of a day, periods and durations."""
    # Takes a while to import, and tables are read here alone.
    import pandas as pd

    return datetime.date, datetime.time, np.datetime64, pd.Period, *_DURATIONS


def _labels(column: pd.Series, where: str) -> np.ndarray:
    field = f"{where}, field {checks.shown(column.name)}"
    example_checks.check_given(column.isna().to_numpy(), field, rows=column.index)
    is_number = column.dtype.kind in "biuf"
    labels = column.to_numpy(_plain_dtype(column)) if is_number else column.to_numpy()
    # Objects of Python are in no array of dates.
    objects = labels if labels.dtype == object else ()
    are_times = [isinstance(label, _times()) for label in objects]
    if labels.dtype.kind in "mM" or any(are_times):
        found = column.iloc[int(np.argmax(are_times)) if are_times else 0]
        raise example_checks.DataError(
            f"{field}: found {column.dtype} such as {checks.shown(found)}, which is "
            "neither a class nor a number. Turn it into a number, such as the seconds "
            "since the first of them, or into text if each is a class."
        )
    return labels


def as_times(column: pd.Series, where: str) -> pd.Series:
    """Returns a column of times, whose texts are read as dates of ISO 8601.

    Args:
      column: The column, of numbers, dates or texts such as "2024-05-01 13:00". Texts
        may have offsets from UTC, other ones in summer than in winter.
      where: The table, for messages.

    Raises:
      DataError: If a text is no date, or some have an offset and others none.
    """
    # Takes a while to import, and tables are read here alone.
    import pandas as pd

    if column.dtype.kind in "iufmM":
        return column
    field = f"{where}, field {checks.shown(column.name)}"
    try:
        times = pd.to_datetime(column, format="ISO8601", utc=True)
    except (TypeError, ValueError) as error:
        raise example_checks.DataError(
            f"{field}: expected numbers, or dates such as 2024-05-01 13:00 "
            f"({checks.shortened(str(error))}). Write them so."
        ) from error
    texts = column.dropna().map(str)
    has_offset = texts.str.contains(_OFFSET)
    if has_offset.any() and not has_offset.all():
        one, other = texts[has_offset].iloc[0], texts[~has_offset].iloc[0]
        raise example_checks.DataError(
            f"{field}: {checks.shown(one)} has an offset from UTC and "
            f"{checks.shown(other)} has none, so that nobody knows which was first. "
            "Write all with it, or none."
        )
    return times


def changes(times: pd.Series, owners: pd.Series) -> dict[str, np.ndarray]:
    """Returns after how many of each owner's rows, in order, the time changes.

    Args:
      times: The time of each row.
      owners: The owner of each row.
    """
    moments = times.factorize(sort=True)[0]
    groups = owners.groupby(owners, sort=True, observed=True)
    ordered = _by_client(groups, np.argsort(moments, kind="stable"), moments)
    return {
        owner: np.flatnonzero(np.diff(of_owner)) + 1
        for owner, (of_owner,) in ordered.items()
    }


def _check_times(column: pd.Series, where: str) -> None:
    """Raises unless a column's values say in which order rows were."""
    if column.dtype.kind not in "iufmM":
        raise example_checks.DataError(
            f"{where}: expected times, found {column.dtype} such as "
            f"{checks.shown(column.iloc[0])}. Turn them into dates, as "
            "pandas.to_datetime does, or into numbers."
        )
    if column.isna().any():
        example = int(np.argmax(column.isna().to_numpy()))
        raise example_checks.DataError(
            f"{where}, {example_checks.place(example, column.index)}: there is no "
            "time. Fill it in or leave the row out."
        )
    if column.dtype.kind == "f":
        example_checks.check_finite(column.to_numpy(float), where, column.index)
