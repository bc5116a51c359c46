"""Detection of rounds in which training broke down."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

CATASTROPHIC_FAILURE = "catastrophic_failure"
NON_FINITE = "non_finite"

_DESCRIPTIONS = {
    CATASTROPHIC_FAILURE: "the training accuracy fell to half or less",
    NON_FINITE: "the training loss or the model is not finite",
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A round in which training broke down.

    Attributes:
      round: The round, from 1.
      kind: `"catastrophic_failure"` or `"non_finite"`.
    """

    round: int
    kind: str

    def __str__(self) -> str:
        return f"Round {self.round}: {_DESCRIPTIONS[self.kind]}."


def is_catastrophic(previous_accuracy: float | None, accuracy: float | None) -> bool:
    """Returns whether the training accuracy fell to half or less in one round.

    This is the *catastrophic training failure* of section 3.1 of

    On Large-Cohort Training for Federated Learning
        Zachary Charles, Zachary Garrett, Zhouyuan Huo, Sergei Shmulyian,
        Virginia Smith. NeurIPS 2021.
        https://arxiv.org/abs/2106.07820

    Args:
      previous_accuracy: The training accuracy of the round before, `None` if it
        is not known. An accuracy of 0 cannot fall.
      accuracy: The training accuracy of this round, `None` if it is not known.

    Returns:
      Whether `accuracy` is at most half of `previous_accuracy`.
    """
    if previous_accuracy is None or accuracy is None:
        return False
    return previous_accuracy > 0 and accuracy <= previous_accuracy / 2


def is_non_finite(loss: float | None, model_weights: Any) -> bool:
    """Returns whether the training loss or a weight is infinite or not a number.

    Args:
      loss: The training loss, `None` if it is not known.
      model_weights: A structure of arrays.

    Returns:
      Whether a value is not finite.
    """
    if loss is not None and not math.isfinite(loss):
        return True
    return not all(
        np.all(np.isfinite(np.asarray(leaf))) for leaf in tf.nest.flatten(model_weights)
    )


def all_rejected(row: Mapping[str, Any]) -> bool:
    """Returns whether every client of a round was rejected: no update was finite.

    Such a round leaves the model as it is.

    Args:
      row: The metrics of the round.
    """
    cohort = row.get("cohort_size", 0)
    return cohort > 0 and row.get("client_work/rejected_clients", 0) >= cohort


def failures_of(rows: Sequence[Mapping[str, Any]]) -> list[Failure]:
    """Returns the failures recorded in the rows of a run.

    Args:
      rows: One mapping per round; the columns `catastrophic_failure` and
        `non_finite` hold 1 where training broke down, else 0.

    Returns:
      The failures in the order of their rounds.
    """
    return [
        Failure(int(row["round"]), kind)
        for row in rows
        for kind in _DESCRIPTIONS
        if row.get(kind)
    ]
