"""Checks of arguments, by their names, which mean the same in all of analysis."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from experiments.analysis.finished import AXES, FinishedRuns
from tff_drift import checks

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _check_list(name: str, value: Any, of: str) -> None:
    is_list = isinstance(value, (Sequence, np.ndarray, pd.Index))
    if isinstance(value, (str, bytes)) or not is_list:
        raise TypeError(f"{name} must be a list of {of}, found {checks.shown(value)}.")


def _check_texts(name: str, value: Any) -> None:
    _check_list(name, value, "names")
    for each in value:
        checks.check_text(name, each)


def _check_columns(name: str, value: Any) -> None:
    _check_texts(name, value)
    if not len(value):
        raise ValueError(f"{name} is empty. Name a column.")


def _check_numbers(name: str, value: Any) -> None:
    _check_list(name, value, "numbers")
    for each in value:
        checks.check_finite(name, each)


def _check_of(wanted: type, advice: str) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, wanted):
            raise TypeError(
                f"{name} must be a {wanted.__name__}, found {type(value).__name__}. "
                f"{advice}"
            )

    return check


def _check_axis(name: str, value: Any) -> None:
    if not isinstance(value, str) or value not in AXES:
        raise ValueError(
            f"{name} must be one of {', '.join(AXES)}, found {checks.shown(value)}."
        )


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "runs": _check_of(FinishedRuns, "analysis.read returns one."),
    "labels": _check_of(pd.Series, "analysis.labels returns one."),
    "values": _check_of(pd.DataFrame, "analysis.last_mean returns one."),
    "table": _check_of(pd.DataFrame, "Give it a row for each value of a setting."),
    "column": checks.check_text,
    "train": checks.check_text,
    "test": checks.check_text,
    "setting": checks.check_text,
    "band": checks.check_text,
    "name": checks.check_text,
    "columns": _check_columns,
    "by": _check_texts,
    "thresholds": _check_numbers,
    "axis": _check_axis,
    "last": checks.check_integer,
}


def checked(function: _Function) -> _Function:
    """Returns a function that checks what it is given before it begins.

    Args:
      function: A function of this package. What is its default may be given.

    Raises:
      TypeError: When it is called, if an argument has the wrong type.
      ValueError: When it is called, if an argument is out of its range.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        for name, value in signature.bind(*arguments, **options).arguments.items():
            is_default = value is None and signature.parameters[name].default is None
            if name in _CHECKS and not is_default:
                _CHECKS[name](name, value)
        return function(*arguments, **options)

    return call  # type: ignore[return-value]
