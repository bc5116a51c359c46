"""Simulation of federated training: clients' data, rounds, metrics."""

from tff_drift.simulation import callbacks
from tff_drift.simulation.callbacks import control_variate_mismatch
from tff_drift.simulation.cohorts import Cohort, unstack_client_states
from tff_drift.simulation.data.batching import Batching
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.cohort_schedules import (
    build_growing_sampling,
    doubling_cohorts,
)
from tff_drift.simulation.data.label_counts import label_counts, plot_labels
from tff_drift.simulation.data.sampling import build_uniform_sampling
from tff_drift.simulation.data.sharing import pool, sample_examples, share
from tff_drift.simulation.diagnosis.diagnose import diagnose
from tff_drift.simulation.diagnosis.report import Diagnosis
from tff_drift.simulation.diagnosis.statistics import Estimate
from tff_drift.simulation.evaluation.client_evaluation import build_evaluation
from tff_drift.simulation.evaluation.clients_table import (
    evaluate_clients,
    plot_clients,
)
from tff_drift.simulation.evaluation.latest_models import mean_latest_model
from tff_drift.simulation.loop.arithmetic import client_arithmetic, server_arithmetic
from tff_drift.simulation.loop.callbacks.stragglers import StragglerClock
from tff_drift.simulation.loop.federated_program import (
    ClientDataSource,
    ClientStatesProgramStateManager,
)
from tff_drift.simulation.loop.process_with_client_states import (
    ProcessWithClientStates,
)
from tff_drift.simulation.loop.traffic import Traffic, model_traffic
from tff_drift.simulation.loop.training import run_training
from tff_drift.simulation.records.checkpoint import CheckpointError
from tff_drift.simulation.records.failures import Failure
from tff_drift.simulation.records.metrics import is_timing, without_timing
from tff_drift.simulation.records.metrics_file import MetricsFileError, read_rows
from tff_drift.simulation.records.output_dir import OutputDir
from tff_drift.simulation.records.results import Totals, TrainingResult
from tff_drift.simulation.records.run_folder import OutputDirError
from tff_drift.simulation.records.run_store import RunStore, TrainingState

__all__ = [
    "Batching",
    "CheckpointError",
    "ClientDataSource",
    "ClientDatasets",
    "ClientStatesProgramStateManager",
    "Cohort",
    "Diagnosis",
    "Estimate",
    "Failure",
    "MetricsFileError",
    "OutputDir",
    "OutputDirError",
    "ProcessWithClientStates",
    "RunStore",
    "StragglerClock",
    "Totals",
    "Traffic",
    "TrainingResult",
    "TrainingState",
    "build_evaluation",
    "build_growing_sampling",
    "build_uniform_sampling",
    "callbacks",
    "client_arithmetic",
    "control_variate_mismatch",
    "diagnose",
    "doubling_cohorts",
    "evaluate_clients",
    "is_timing",
    "label_counts",
    "mean_latest_model",
    "model_traffic",
    "plot_clients",
    "plot_labels",
    "pool",
    "read_rows",
    "run_training",
    "sample_examples",
    "server_arithmetic",
    "share",
    "unstack_client_states",
    "without_timing",
]
