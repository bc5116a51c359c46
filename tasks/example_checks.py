"""Checks of clients' examples, whose errors say where the bad value is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Features = Mapping[str, np.ndarray]


class DataError(ValueError):
    """A client's examples that cannot be trained on; they are read when needed."""


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
        if array.dtype.kind == "f":
            _check_finite(array, f"{where}, field {name!r}")
        elif array.dtype == object:
            _check_text(array, f"{where}, field {name!r}")
    for name, number in (num_classes or {}).items():
        _check_labels(features[name], number, f"{where}, field {name!r}")


def _check_finite(array: np.ndarray, where: str) -> None:
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if not finite.all():
        example = int(np.argmin(finite))
        bad = array[example][~np.isfinite(array[example])].ravel()[0]
        raise DataError(
            f"{where}, example {example}: found {bad}. Replace or leave out what is "
            "not a finite number."
        )


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


def _check_labels(labels: np.ndarray, num_classes: int, where: str) -> None:
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        example = int(np.argmax(wrong))
        raise DataError(
            f"{where}, example {example}: found the label {labels[example]}, but there "
            f"are {num_classes} classes, numbered from 0 to {num_classes - 1}."
        )
