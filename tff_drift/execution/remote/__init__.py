"""Runs the clients' part of TFF computations on several machines."""

from tff_drift.execution.remote.context import (
    create_remote_execution_context,
    set_remote_execution_context,
)

__all__ = ["create_remote_execution_context", "set_remote_execution_context"]
