"""The classes that labels name, and their numbers."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.sources import example_checks
from tff_drift import checks

# A net has at least one weight per class: beyond this, a label is a code or an error.
MAX_CLASSES = 1_000_000

# What to do with classes that are numbered otherwise.
_NUMBER_FROM_0 = (
    "Number classes from 0, as (y + 1) // 2 does -1 and 1, write them as words"
)

# Where a client's labels stand, for messages, and the distinct ones among them.
LabelsAt = tuple[str, np.ndarray]


def check_num_classes(num_classes: int | None) -> None:
    """Raises unless an argument can be a number of classes.

    Args:
      num_classes: The argument; `None` is right too.

    Raises:
      TypeError: If it is not an integer.
      ValueError: If it is below 1 or above `MAX_CLASSES`.
    """
    if num_classes is None:
        return
    checks.check_integer("num_classes", num_classes)
    if num_classes > MAX_CLASSES:
        raise ValueError(
            f"num_classes must be at most {MAX_CLASSES}, found "
            f"{checks.shown(num_classes)}. Number the classes that occur from 0."
        )


def find_classes(labels: Sequence[LabelsAt], num_classes: int | None) -> Sequence[Any]:
    """Returns the classes in the order of their numbers.

    Args:
      labels: Each client's distinct labels, as `distinct` returns them, after where
        they stand: file, client and field.
      num_classes: The number of classes; `None` takes as many as the labels need.

    Returns:
      A range 0, 1, ... if all labels are integers, which tables and files may write as
      floats, otherwise the values in sorted order.

    Raises:
      DataError: If an integer is too large to count classes, labels are of different
        kinds or cannot be sorted, differ by spaces around them or by Unicode's forms of
        characters alone, a number is not whole, or other labels than integers are not
        as many as `num_classes`.
    """
    values = [(where, set(array.tolist())) for where, array in labels]
    if all(array.dtype.kind in "iu" for _, array in labels):
        # A negative label, or one beyond `num_classes`, is found when it is numbered.
        return range(num_classes or _count(values))
    check_one_kind(labels)
    _check_whole(labels)
    if all(_is_number(value) for _, found in values for value in found):
        return range(num_classes or _count(values))
    _check_seen(labels)
    try:
        classes = sorted(set().union(*(found for _, found in values)))
    except TypeError as error:
        raise example_checks.DataError(
            f"{labels[0][0]}: the labels cannot be sorted ({error}). Give "
            "integers from 0, or strings."
        ) from error
    if num_classes not in (None, len(classes)):
        raise example_checks.DataError(
            f"{labels[0][0]}: num_classes is {num_classes}, but the labels have "
            f"{len(classes)} values, {checks.shown(classes[0])} to "
            f"{checks.shown(classes[-1])}. Leave num_classes out, or number the labels "
            "from 0."
        )
    return tuple(classes)


def distinct(labels: np.ndarray, where: str) -> np.ndarray:
    """Returns the different ones among labels.

    Args:
      labels: The labels.
      where: The file, client and field, for messages.

    Returns:
      An array of the same type.

    Raises:
      DataError: If they cannot be compared.
    """
    if labels.dtype != object:
        return np.unique(labels)
    try:
        # NumPy would sort them, which labels of different kinds cannot be.
        found = list(dict.fromkeys(labels.tolist()))
    except TypeError as error:
        raise example_checks.DataError(
            f"{where}: the labels cannot be told apart ({error}). Give integers from "
            "0, or strings."
        ) from error
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) and not isinstance(value, bool)


def _count(values: Sequence[tuple[str, set[int]]]) -> int:
    most, where = max((max(found, default=0), where) for where, found in values)
    largest = int(most)
    if largest >= MAX_CLASSES:
        raise example_checks.DataError(
            f"{where}: found the label {largest}, but integers number classes from 0, "
            f"of which there may be {MAX_CLASSES}. Number the classes, or write codes "
            f"as strings, such as 'c{largest}'."
        )
    return max(0, largest) + 1


def check_one_kind(labels: Sequence[LabelsAt]) -> None:
    """Raises if some labels are strings and others are not.

    Args:
      labels: As for `find_classes`.

    Raises:
      DataError: If they are of two kinds.
    """
    found: dict[bool, tuple[Any, str]] = {}
    for where, values in labels:
        for value in values.tolist():
            found.setdefault(isinstance(value, str), (value, where))
    if len(found) > 1:
        (text, text_where), (other, other_where) = found[True], found[False]
        raise example_checks.DataError(
            f"{text_where}: labels are of different kinds: {checks.shown(text)} here "
            f"is a string, but {checks.shown(other)} of {other_where} is not. Write "
            "all as strings, or all as numbers."
        )


def _check_whole(labels: Sequence[LabelsAt]) -> None:
    """Raises if a label is a number that counts nothing: what regression predicts."""
    numbered = [
        (where, value, 2 ** (np.finfo(kind).nmant + 1))
        for where, array in labels
        for kind in [array.dtype if array.dtype.kind == "f" else np.float64]
        for value in array.tolist()
        if isinstance(value, numbers.Number)
    ]
    for where, value, exact in numbered:
        if has_fraction(value):
            raise _no_class(where, value, "and a class is no such number")
        if isinstance(value, float) and abs(value) >= exact:
            raise _no_class(where, value, "to which floats round other integers too")
    for where, value, _ in numbered:
        if isinstance(value, float) and value < 0:
            raise example_checks.DataError(
                f"{where}: found the label {value}, and classes are numbered from 0. "
                f"{_NUMBER_FROM_0}, or give target='number' (--task=own_numbers) to "
                "predict numbers."
            )


def _check_seen(labels: Sequence[LabelsAt]) -> None:
    """Raises if two labels differ by what people do not see."""
    places: dict[str | bytes, example_checks.Place] = {}
    for where, values in labels:
        for value in values.tolist():
            if not isinstance(value, (str, bytes)):
                continue
            known = places.setdefault(example_checks.as_read(value), (value, where))
            if known[0] != value:
                remedy = example_checks.write_alike((known[0], value))
                here = (value, where)
                raise example_checks.may_be_one(known, here, "class", remedy)


def _no_class(where: str, value: Any, why: str) -> example_checks.DataError:
    return example_checks.DataError(
        f"{where}: found the label {value}, {why}. Give target='number' "
        "(--task=own_numbers) to predict numbers, put them into classes, as "
        "pandas.cut does, or write names such as '0.5' as strings."
    )


def has_fraction(value: Any) -> bool:
    """Returns whether a number is not whole: it has a fraction or is not finite.

    Args:
      value: The number.
    """
    try:
        return bool(int(value) != value)
    except (OverflowError, TypeError, ValueError):  # Infinite, complex or no number.
        return True


def number_labels(
    labels: np.ndarray, classes: range | Mapping[Any, int], where: str
) -> np.ndarray:
    """Returns the numbers of labels' classes, as `int32`.

    Args:
      labels: The labels.
      classes: The numbers of the classes, in their order; a range where each class is
        its number.
      where: The file, client and field, for messages.

    Returns:
      One number per label.

    Raises:
      DataError: If a label is not one of the classes.
    """
    found = _numbers(labels, classes)
    unknown = found < 0
    if unknown.any():
        names = tuple(classes)
        example = int(np.argmax(unknown))
        raise example_checks.DataError(
            f"{where}, example {example}: found the label "
            f"{checks.shown(labels.tolist()[example])}, but the {len(names)} classes "
            f"are {checks.shown(names[0])} to {checks.shown(names[-1])}. "
            f"{_NUMBER_FROM_0}, or give target='number' (--task=own_numbers) if labels "
            "are numbers to predict."
        )
    return found.astype(np.int32)


def _numbers(labels: np.ndarray, classes: range | Mapping[Any, int]) -> np.ndarray:
    """Returns the numbers of labels' classes, -1 for none."""
    if isinstance(classes, range):
        labels = _as_integers(labels)
        known = (labels >= 0) & (labels < len(classes))
        # Not where they are unsigned: they have no -1.
        return np.where(known, np.where(known, labels, 0).astype(np.int64), -1)
    return np.array([classes.get(value, -1) for value in labels.tolist()])


def _as_integers(labels: np.ndarray) -> np.ndarray:
    """Returns labels that are whole numbers as integers, and others as -1."""
    if labels.dtype.kind in "iu":
        return labels
    return np.array(
        [-1 if has_fraction(label) else int(label) for label in labels.tolist()]
    )
