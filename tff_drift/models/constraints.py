"""Refuses constraints of weights and weights without gradients: clients ignore both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tff_drift import checks


def check_unconstrained(keras_model: Any, trainable: Iterable[Any]) -> None:
    """Raises if a trainable weight has a constraint, or takes no gradients.

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
        # Of Keras 3: scales of float8, which its optimizers set.
        if getattr(each, "overwrite_with_gradient", False):
            raise ValueError(
                f"keras_model {checks.shown(keras_model.name)} is quantized to float8: "
                f"its weight {checks.shown(each.path)} is set, not moved by gradients, "
                "which TFF's optimizers do not do. Train the model as it was before."
            )
