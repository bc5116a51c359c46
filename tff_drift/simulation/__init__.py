"""Simulation of federated training: clients' data, rounds, metrics."""

from tff_drift.simulation import callbacks
from tff_drift.simulation.arithmetic import client_arithmetic, server_arithmetic
from tff_drift.simulation.callbacks import control_variate_mismatch
from tff_drift.simulation.checkpoint import CheckpointError
from tff_drift.simulation.client_datasets import ClientDatasets
from tff_drift.simulation.cohort_schedules import (
    build_growing_sampling,
    doubling_cohorts,
)
from tff_drift.simulation.evaluation import build_evaluation
from tff_drift.simulation.failures import Failure
from tff_drift.simulation.federated_program import (
    ClientDataSource,
    ClientStatesProgramStateManager,
)
from tff_drift.simulation.kept_client_states import (
    ProcessWithClientStates,
    unstack_client_states,
)
from tff_drift.simulation.latest_models import mean_latest_model
from tff_drift.simulation.metrics import is_timing, without_timing
from tff_drift.simulation.metrics_file import MetricsFileError, read_rows
from tff_drift.simulation.output_dir import OutputDir
from tff_drift.simulation.records import Position, Record
from tff_drift.simulation.results import Totals, TrainingResult
from tff_drift.simulation.run_folder import OutputDirError
from tff_drift.simulation.sampling import build_uniform_sampling
from tff_drift.simulation.sharing import pool, sample_examples, share
from tff_drift.simulation.stragglers import StragglerClock
from tff_drift.simulation.traffic import Traffic, model_traffic
from tff_drift.simulation.training import run_training

__all__ = [
    "CheckpointError",
    "ClientDataSource",
    "ClientDatasets",
    "ClientStatesProgramStateManager",
    "Failure",
    "MetricsFileError",
    "OutputDir",
    "OutputDirError",
    "Position",
    "ProcessWithClientStates",
    "Record",
    "StragglerClock",
    "Totals",
    "Traffic",
    "TrainingResult",
    "build_evaluation",
    "build_growing_sampling",
    "build_uniform_sampling",
    "callbacks",
    "client_arithmetic",
    "control_variate_mismatch",
    "doubling_cohorts",
    "is_timing",
    "mean_latest_model",
    "model_traffic",
    "pool",
    "read_rows",
    "run_training",
    "sample_examples",
    "server_arithmetic",
    "share",
    "unstack_client_states",
    "without_timing",
]
