"""Constraints of a Keras model's weights, which clients would not keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tff_drift import checks


def check_unconstrained(keras_model: Any, trainable: Iterable[Any]) -> None:
    """Raises if a trainable weight has a constraint.

    Args:
      keras_model: A model of Keras 2 or 3.
      trainable: Its trainable variables.

    Raises:
      ValueError: If one has.
    """
    for each in trainable:
        if getattr(each, "constraint", None) is not None:
            raise ValueError(
                f"keras_model {checks.shown(keras_model.name)} has a constraint of its "
                f"weight {checks.shown(getattr(each, 'path', each.name))}, which "
                "clients would not keep: TFF's optimizers know none. Leave it out, or "
                "use a regularizer."
            )
