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


def is_non_finite(loss: float | None, norm: float) -> bool:
    """Returns whether the training loss or a weight is infinite or not a number.

    Args:
      loss: The training loss, `None` if it is not known.
      norm: The model's `weights_norm`.
    """
    return not math.isfinite(norm) or (loss is not None and not math.isfinite(loss))


def weights_norm(model_weights: Any) -> float:
    """Returns the Euclidean norm of a model; NaN if a weight is not finite.

    Args:
      model_weights: A structure of arrays, of which integers do not count.
    """
    leaves = map(np.asarray, tf.nest.flatten(model_weights))
    return math.hypot(*(_norm(leaf) for leaf in leaves if leaf.dtype.kind in "fcV"))


def _norm(array: np.ndarray) -> float:
    # Of NumPy's own floats the product is quick, and tells whether all are finite.
    flat = array.ravel() if array.dtype.kind in "fc" else array.ravel().astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.vdot(flat, flat).real)
    if math.isfinite(square):
        return math.sqrt(square)
    if not np.all(np.isfinite(flat)):
        return math.nan
    largest = float(np.max(np.abs(flat)))
    return largest * float(np.linalg.norm(flat.astype(np.complex128) / largest))


def all_rejected(row: Mapping[str, Any]) -> bool:
    """Returns whether every client of a round was rejected: no update was finite.

    Such a round leaves the model as it is.

    Args:
      row: The metrics of the round.
    """
    cohort = row.get("cohort_size", 0)
    return cohort > 0 and row.get("client_work/rejected_clients", 0) >= cohort


def nobody_counted(row: Mapping[str, Any]) -> bool:
    """Returns whether a round's training metrics are those of no example.

    So they are of a cohort without clients or examples, and where every client was
    rejected.

    Args:
      row: The metrics of the round.
    """
    examples = row.get("train_num_examples")
    if examples is not None:
        return examples == 0
    return row.get("cohort_size") == 0 or all_rejected(row)


def is_left_out(row: Mapping[str, Any]) -> bool:
    """Returns whether a round counted clients and changed nothing all the same.

    Such is a round whose mean of the updates, or whose new model, is not finite.

    Args:
      row: The metrics of the round.
    """
    # Some aggregators have no number for the mean of nobody.
    return bool(row.get("finalizer/update_non_finite")) and not nobody_counted(row)


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
