"""The norm of the cloud model after every round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tff_drift import tensors
from tff_drift.simulation import callbacks

COLUMN = "model_norm"
# What methods with client states report of it themselves.
_REPORTED = "finalizer/model_norm"


class ModelNorm(callbacks.Callback):
    """Measures ‖θ‖, the norm of the trainable weights that clients get next."""

    def before_training(self, run: callbacks.TrainingRun) -> None:
        """Remembers the run, whose process knows the model."""
        self._process = run.process

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> dict[str, float]:
        """Returns the norm."""
        del round_number
        norm = row.get(_REPORTED)
        if norm is None:
            weights = self._process.get_model_weights(state)
            norm = tensors.global_norm(weights.trainable)
        return {COLUMN: float(norm)}
