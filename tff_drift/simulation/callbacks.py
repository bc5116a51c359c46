"""Callbacks of `tff_drift.simulation.run_training`."""

from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.loop.callbacks.early_stopping import EarlyStopping
from tff_drift.simulation.loop.callbacks.evaluation import (
    FinalEvaluation,
    PeriodicEvaluation,
)
from tff_drift.simulation.loop.callbacks.failure_watch import FailureWatch
from tff_drift.simulation.loop.callbacks.mismatch import (
    ControlVariateMismatch,
    control_variate_mismatch,
)
from tff_drift.simulation.loop.callbacks.mlflow_tracker import MLflowTracker
from tff_drift.simulation.loop.callbacks.progress import Progress
from tff_drift.simulation.loop.callbacks.release import ReleaseRows, TensorBoard
from tff_drift.simulation.loop.callbacks.soft_interrupt import SoftInterrupt
from tff_drift.simulation.loop.callbacks.tracker import Tracker
from tff_drift.simulation.loop.callbacks.wandb_tracker import WandbTracker

__all__ = [
    "Callback",
    "ControlVariateMismatch",
    "EarlyStopping",
    "FailureWatch",
    "FinalEvaluation",
    "MLflowTracker",
    "PeriodicEvaluation",
    "Progress",
    "ReleaseRows",
    "SoftInterrupt",
    "TensorBoard",
    "Tracker",
    "TrainingRun",
    "WandbTracker",
    "control_variate_mismatch",
]
