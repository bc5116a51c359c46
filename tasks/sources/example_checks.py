"""Checks of clients' examples, whose errors say where the bad value is."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tff_drift import checks
from tff_drift.models.example_weights import WEIGHTS

Features = Mapping[str, np.ndarray]

# A value as it is written, and the table or the file in which it stands.
Place = tuple[Any, str]

# Beyond, float64 lacks some integers.
LARGEST_QUANTITY = 2**53


class DataError(checks.ShortError):
    """A client's examples that cannot be trained on; they are read when needed."""


def unreadable(where: str, error: Exception) -> DataError:
    """Returns the error for a file that the system does not let read.

    Args:
      where: The file, and whose it is.
      error: What the system says.
    """
    return DataError(
        f"{where} cannot be read ({error}). Check the file and its rights."
    )


def may_be_one(
    known: Place, here: Place, what: str, remedy: str, field: str = ""
) -> DataError:
    """Returns the error for two values that may be one thing or two.

    Args:
      known: The value that was found first.
      here: The other one.
      what: What each names.
      remedy: What to do.
      field: What to add to where `here` is, such as ", column 'owner'".
    """
    (first, first_where), (value, where) = known, here
    elsewhere = "" if first_where == where else f" of {first_where}"
    return DataError(
        f"{where}{field}: {checks.shown(first)}{elsewhere} and {checks.shown(value)} "
        f"may be one {what} or two. {remedy}"
    )


def as_read(text: str | bytes) -> str | bytes:
    """Returns a text by what people see of it.

    Args:
      text: The text.

    Returns:
      It without spaces around it, and in one of the forms that Unicode has for
      characters such as é.
    """
    text = text.strip()
    return unicodedata.normalize("NFC", text) if isinstance(text, str) else text


def write_alike(texts: Sequence[str | bytes]) -> str:
    """Returns the remedy for texts that differ, and are one to people.

    Args:
      texts: The texts, of which `as_read` makes one.
    """
    have_spaces = any(text != text.strip() for text in texts)
    have_forms = any(text.strip() != as_read(text) for text in texts)
    ways = [
        (have_spaces, "without spaces around them", ".str.strip()"),
        (have_forms, "in one form of Unicode", ".str.normalize('NFC')"),
    ]
    how = " and ".join(words for is_way, words, _ in ways if is_way)
    methods = "".join(method for is_way, _, method in ways if is_way)
    return f"Write all alike, {how}: pandas' {methods} does so in a table."


def check_no_weights(names: Collection[Any], where: str) -> None:
    """Raises if a client's data has weights, which tasks do not take.

    Args:
      names: The names of what it has, beside those that the user gives.
      where: The table or the file, for messages.

    Raises:
      DataError: If one of them is the name of weights.
    """
    for name in WEIGHTS:
        if name in names:
            raise DataError(
                f"{where} has {name!r}, but tasks take no weights. Leave it out, "
                "rename it if it is a feature, or give arrays to ClientDatasets."
                f"from_arrays({{client: {{{name!r}: weights, 'x': x, 'y': y}}}})."
            )


def check_features(
    features: Features, where: str, num_classes: Mapping[str, int] | None = None
) -> None:
    """Raises unless a client's features can be trained on.

    Args:
      features: The client's examples, stacked feature by feature.
      where: The file and the client, for messages.
      num_classes: The number of classes of those features that are labels.

    Raises:
      DataError: If there is no example, a number is not finite, text is not
        UTF-8, or a label is not one of its classes.
    """
    if not features or any(len(array) == 0 for array in features.values()):
        raise DataError(f"{where} has no examples. Leave the client out.")
    for name, array in features.items():
        check_finite(array, f"{where}, field {checks.shown(name)}")
        if array.dtype == object:
            _check_text(array, f"{where}, field {checks.shown(name)}")
    for name, number in (num_classes or {}).items():
        check_labels(
            features[name], range(number), f"{where}, field {checks.shown(name)}"
        )


def check_finite(
    array: np.ndarray, where: str, rows: Sequence[Any] | None = None
) -> None:
    """Raises unless all numbers are finite.

    Args:
      array: The numbers, one row per example; what is no float is fine.
      where: The file, the client and the field, for messages.
      rows: See `place`.

    Raises:
      DataError: If one is not finite.
    """
    if array.dtype.kind == "f":
        _check_all(
            np.isfinite(array),
            array,
            where,
            "Replace or leave out what is not a finite number.",
            rows,
        )


def to_float32(
    array: np.ndarray, where: str, rows: Sequence[Any] | None = None
) -> np.ndarray:
    """Returns numbers as `float32`.

    Digits are lost. An integer beyond 2^53, which is no number of float64 either, is
    rather the code of something than how much there is of it.

    Args:
      array: The numbers, one row per example.
      where: The file, the client and the field, for messages.
      rows: See `place`.

    Returns:
      An array of the same shape.

    Raises:
      DataError: If a number is not finite, no `float32` is as large, or an integer is
        beyond 2^53.
    """
    check_finite(array, where, rows)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        _check_all(
            (array <= LARGEST_QUANTITY) & (array >= -LARGEST_QUANTITY),
            array,
            where,
            "A model takes float32, in which such an integer is another one: leave out "
            "a code, or write a quantity as a float.",
            rows,
        )
    limit = np.finfo(np.float32).max
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        _check_all(
            np.abs(array) <= limit,
            array,
            where,
            f"Scale the numbers: the largest float32 is {limit:.1e}.",
            rows,
        )
    return array.astype(np.float32)


def place(example: int, rows: Sequence[Any] | None) -> str:
    """Returns where an example is, for messages.

    Args:
      example: Its number among its client's.
      rows: The names of the examples' rows in a table, by which users find them; None
        where there is no table.
    """
    if rows is None:
        return f"example {example}"
    row = rows[example]
    # NumPy 2 shows a number with its type.
    return f"row {checks.shown(row.item() if isinstance(row, np.generic) else row)}"


def check_given(
    missing: np.ndarray,
    where: str,
    what: str = "label",
    rows: Sequence[Any] | None = None,
) -> None:
    """Raises if an example lacks something.

    Args:
      missing: Whether an example lacks it, one value per example.
      where: The file, the client and the field, for messages.
      what: What is missing.
      rows: See `place`.

    Raises:
      DataError: If one does.
    """
    if missing.any():
        raise DataError(
            f"{where}, {place(int(np.argmax(missing)), rows)}: there is no {what}. "
            "Fill it in or leave the example out."
        )


def check_labels(labels: np.ndarray, classes: range, where: str) -> None:
    """Raises unless labels number classes.

    Args:
      labels: Integers, one per example.
      classes: The numbers of the classes.
      where: The file, the client and the field, for messages.

    Raises:
      DataError: If there is no label, or one is not one of the classes.
    """
    if not len(labels):
        raise DataError(f"{where} has no examples. Give at least one.")
    wrong = (labels < classes.start) | (labels >= classes.stop)
    if wrong.any():
        example = int(np.argmax(wrong))
        raise DataError(
            f"{where}, example {example}: found the label {labels[example]}, but there "
            f"are {len(classes)} classes, numbered from {classes[0]} to {classes[-1]}. "
            "Number the labels so."
        )


def _check_all(
    fine: np.ndarray,
    array: np.ndarray,
    where: str,
    remedy: str,
    rows: Sequence[Any] | None,
) -> None:
    """Raises unless all numbers of an array are fine."""
    examples = fine.reshape(len(array), -1).all(axis=1)
    if not examples.all():
        example = int(np.argmin(examples))
        bad = array[example][~fine[example]].ravel()[0]
        raise DataError(f"{where}, {place(example, rows)}: found {bad}. {remedy}")


def _check_text(array: np.ndarray, where: str) -> None:
    for example, text in enumerate(array.ravel()):
        if isinstance(text, bytes):
            try:
                text.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}, example {example}: the text is not UTF-8 ({error}). "
                    "Convert it."
                ) from error
