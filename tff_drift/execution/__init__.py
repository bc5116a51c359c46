"""Execution contexts for TFF computations."""

from tff_drift.execution.local import (
    Limits,
    LocalExecutionContext,
    create_async_local_execution_context,
    create_local_execution_context,
    set_local_execution_context,
)
from tff_drift.execution.native import (
    create_native_execution_context,
    set_native_execution_context,
)
from tff_drift.execution.on_ray import (
    RayExecutionContext,
    create_ray_execution_context,
    set_ray_execution_context,
)
from tff_drift.execution.round_runner import RoundRunner
from tff_drift.execution.worker import WorkerError

__all__ = [
    "Limits",
    "LocalExecutionContext",
    "RayExecutionContext",
    "RoundRunner",
    "WorkerError",
    "create_async_local_execution_context",
    "create_local_execution_context",
    "create_native_execution_context",
    "create_ray_execution_context",
    "set_local_execution_context",
    "set_native_execution_context",
    "set_ray_execution_context",
]
