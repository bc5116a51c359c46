"""Local training on clients, written as init / step / finish."""

from tff_drift.client_works.client_work import build_client_work
from tff_drift.client_works.dropout import Dropout
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

__all__ = [
    "Dropout",
    "FullGradient",
    "LocalContext",
    "LocalModel",
    "LocalOutcome",
    "LocalSgd",
    "LocalWork",
    "ModelFn",
    "ModelSpec",
    "Step",
    "StepResult",
    "build_client_work",
    "build_model_spec",
    "run_local_work",
]
