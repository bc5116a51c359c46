"""Local training on clients, written as init / step / finish."""

from tff_drift.client_works.batches import check_batches, read_batches
from tff_drift.client_works.client_state import (
    ClientOutput,
    ClientState,
    LocalResult,
)
from tff_drift.client_works.full_gradient import FullGradient
from tff_drift.client_works.keep_trace_work import KeepTraceSgd
from tff_drift.client_works.local_models import LocalModel, StepResult
from tff_drift.client_works.local_sgd import LocalOptions, LocalSgd, check_sgd_rate
from tff_drift.client_works.local_work import (
    ClientWork,
    LocalContext,
    LocalOutcome,
    LocalWork,
    Step,
    run_local_work,
)
from tff_drift.client_works.model_spec import ModelFn, ModelSpec, build_model_spec
from tff_drift.client_works.proximal import ProximalSgd

__all__ = [
    "ClientOutput",
    "ClientState",
    "ClientWork",
    "FullGradient",
    "KeepTraceSgd",
    "LocalContext",
    "LocalModel",
    "LocalOptions",
    "LocalOutcome",
    "LocalResult",
    "LocalSgd",
    "LocalWork",
    "ModelFn",
    "ModelSpec",
    "ProximalSgd",
    "Step",
    "StepResult",
    "build_model_spec",
    "check_batches",
    "check_sgd_rate",
    "read_batches",
    "run_local_work",
]
