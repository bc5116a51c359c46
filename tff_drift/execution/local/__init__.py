"""An execution context that runs TFF computations in this process."""

from tff_drift.execution.local.context import (
    AsyncLocalExecutionContext,
    LocalExecutionContext,
    create_async_local_execution_context,
    create_local_execution_context,
    set_local_execution_context,
)

__all__ = [
    "AsyncLocalExecutionContext",
    "LocalExecutionContext",
    "create_async_local_execution_context",
    "create_local_execution_context",
    "set_local_execution_context",
]
