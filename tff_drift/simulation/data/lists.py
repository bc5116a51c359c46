"""Lists among clients' examples, which are arrays of examples or structures of arrays.

JSON knows no arrays but nested lists, and Keras writes several inputs as a list.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import tree

from tff_drift import checks

# Beyond, float64 lacks some integers.
_EXACT = 2**53
_SCALARS = (int, float, complex, str, bytes, np.generic, type(None))


def without_lists(examples: Any) -> Any:
    """Returns a client's examples with arrays or tuples for their lists.

    A list of numbers or strings, nested or not, is an array. A list of arrays is an
    array too if it has one for each example, and a tuple otherwise. All examples
    together, such as `[x, y]`, are a tuple.

    Args:
      examples: The structure of arrays, lists and what NumPy makes arrays of.

    Raises:
      ValueError: If rows differ in length, or a list may be one or the other.
    """
    if _is_of_arrays(examples):  # As most are: quickly.
        return examples
    if isinstance(examples, list):
        _check_pair(examples)
        examples = tuple(examples)
    examples = tree.traverse(
        lambda each: array_of(each) if _is_plain(each) else None, examples
    )
    lengths = set(_lengths_outside_lists(examples))
    return tree.traverse(
        lambda each: _of_arrays(each, lengths) if isinstance(each, list) else None,
        examples,
        top_down=False,
    )


def _is_of_arrays(examples: Any) -> bool:
    if isinstance(examples, tuple):
        return all(map(_is_of_arrays, examples))
    if isinstance(examples, dict):
        return all(map(_is_of_arrays, examples.values()))
    return isinstance(examples, np.ndarray)


def ragged(why: object) -> ValueError:
    """Returns the error for rows that make no array.

    Args:
      why: What keeps them from it, such as NumPy's error.
    """
    return ValueError(
        f"{checks.shortened(why).rstrip('.')}. Give all rows of an array one shape: "
        "tf.keras.utils.pad_sequences(rows, padding='post') fills up short ones."
    )


def array_of(values: list[Any]) -> np.ndarray:
    """Returns the array of a list of scalars, nested or not.

    Args:
      values: The list.

    Raises:
      ValueError: If rows differ in length, strings are among numbers, or NumPy has no
        integers as large, or would round them to floats.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ragged(_odd_row(values) or error) from error
    _check_integers(values, array)
    is_text = (isinstance(each, (str, bytes)) for each in _scalars(values))
    if array.dtype.kind in "SU" and not all(is_text):
        found = f"both strings and numbers, such as {checks.shown(values)}"
        raise ValueError(f"a list has {found}. Give all of one kind.")
    return array


def _check_integers(values: list[Any], array: np.ndarray) -> None:
    """Raises if an integer of a list is another number, or none, in its array."""
    is_object = array.dtype == object
    is_rounded = array.dtype.kind == "f" and (np.abs(array) >= _EXACT).any()
    for row, of_row in enumerate(values if is_object or is_rounded else ()):
        for value in _scalars([of_row]):
            if not isinstance(value, numbers.Integral) or abs(int(value)) <= _EXACT:
                continue
            if is_object or int(value) != float(value):
                raise ValueError(
                    f"row {row} has the integer {checks.shown(int(value))}, too large "
                    "to be kept. Write a code as a string, a quantity as a float."
                )


def _odd_row(values: list[Any]) -> str:
    """Returns which row has another shape than the first, nothing if none has."""
    shapes = []
    for number, row in enumerate(values):
        try:
            shapes.append(np.shape(row))
        except ValueError:
            return f"in row {number}, {_odd_row(row)}"
        if shapes[number] != shapes[0]:
            return f"row {number} has the shape {shapes[number]}, row 0 has {shapes[0]}"
    return ""


def _is_plain(value: Any) -> bool:
    """Returns whether a value is a list or range of nothing but scalars, or nested."""
    return isinstance(value, (list, range)) and all(
        _is_plain(item) or isinstance(item, _SCALARS) for item in value
    )


def _scalars(values: list[Any]) -> Iterator[Any]:
    for each in values:
        if isinstance(each, list):
            yield from _scalars(each)
        else:
            yield each


def _of_arrays(items: list[Any], lengths: set[int]) -> Any:
    """Returns one array or a tuple, by the numbers of examples that other arrays have.

    Args:
      items: Arrays, or structures of them.
      lengths: The first dimensions of the arrays outside of lists.
    """
    if len(lengths) != 1 or len(items) not in lengths:
        return tuple(items)
    if not all(hasattr(item, "shape") for item in items):
        return tuple(items)
    if {item.shape[0] for item in items if len(item.shape)} == lengths:
        raise ValueError(
            f"a list of {len(items)} arrays of {len(items)} rows may be as many "
            "examples or inputs. Give np.stack(them) for examples, tuple(them) for "
            "inputs."
        )
    try:
        return np.stack(items)
    except ValueError as error:
        raise ragged(error) from error


def _check_pair(examples: list[Any]) -> None:
    """Raises if a list of all examples may be a list of rows."""
    if not _is_plain(examples):
        return
    try:
        shape = np.shape(examples)
    except ValueError:
        return
    if len(shape) > 1:
        raise ValueError(
            f"a list of {len(examples)} lists that are alike may be examples or arrays."
            " Give np.array(them) for examples, a tuple such as (x, y) for arrays."
        )


def _lengths_outside_lists(examples: Any) -> list[int]:
    lengths: list[int] = []

    def note(each: Any) -> Any:
        if isinstance(each, list):
            return ()  # Looked at no further.
        shape: Any = () if tree.is_nested(each) else getattr(each, "shape", ())
        if len(shape):
            lengths.append(shape[0])
        return None

    tree.traverse(note, examples)
    return lengths
