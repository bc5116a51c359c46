"""Local training on clients, written as init / step / finish."""

from tff_drift.client_works.client_work import build_client_work, check_batches
from tff_drift.client_works.dropout import Dropout
from tff_drift.client_works.keep_trace_work import build_keep_trace_work
from tff_drift.client_works.local_models import (
    LocalModel,
    ModelFn,
    ModelSpec,
    StepResult,
    Tensors,
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
from tff_drift.client_works.lstm import LSTM
from tff_drift.client_works.proximal import ProximalSgd
from tff_drift.client_works.stateful_work import (
    ClientState,
    LocalResult,
    Memory,
    StatefulSgd,
)
from tff_drift.client_works.vectors import from_vector, to_vector

__all__ = [
    "LSTM",
    "ClientState",
    "Dropout",
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
    "Tensors",
    "build_client_work",
    "build_keep_trace_work",
    "build_model_spec",
    "check_batches",
    "from_vector",
    "run_local_work",
    "to_vector",
]
