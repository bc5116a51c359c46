"""Local training on clients, written as init / step / finish."""

from tff_drift.client_works.client_work import build_client_work, check_batches
from tff_drift.client_works.keep_trace_work import build_keep_trace_work
from tff_drift.client_works.local_models import (
    LocalModel,
    ModelFn,
    ModelSpec,
    StepResult,
    build_model_spec,
)
from tff_drift.client_works.local_work import (
    FullGradient,
    LocalContext,
    LocalOutcome,
    LocalSgd,
    LocalWork,
    Step,
    run_local_work,
)
from tff_drift.client_works.proximal import ProximalSgd
from tff_drift.client_works.stateful_work import (
    ClientState,
    LocalResult,
    Memory,
    StatefulSgd,
)

__all__ = [
    "ClientState",
    "FullGradient",
    "LocalContext",
    "LocalModel",
    "LocalOutcome",
    "LocalResult",
    "LocalSgd",
    "LocalWork",
    "Memory",
    "ModelFn",
    "ModelSpec",
    "ProximalSgd",
    "StatefulSgd",
    "Step",
    "StepResult",
    "build_client_work",
    "build_keep_trace_work",
    "build_model_spec",
    "check_batches",
    "run_local_work",
]
