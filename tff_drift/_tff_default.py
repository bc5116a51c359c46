"""TFF's default context where TFF was installed without its worker."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow_federated as tff

from tff_drift import _tff_exit


class LocalAtFirstUse(tff.framework.SyncContext):
    """Makes the local context TFF's default one as soon as it is used.

    Not before: the local context imports what is just being imported.
    """

    def _local(self) -> Any:
        execution = importlib.import_module("tff_drift.execution")
        if tff.framework.get_context_stack().current is self:
            execution.set_local_execution_context()
            return tff.framework.get_context_stack().current
        return execution.create_local_execution_context()

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Runs a computation in the local context."""
        return self._local().invoke(comp, arg)

    def __getattr__(self, name: str) -> Any:
        """Attributes of the local context that TFF's lack, such as `explain`."""
        return getattr(self._local(), name)


def do_without_worker() -> None:
    """Makes the local context the default one, if TFF has no worker.

    TFF's own would fail at the first computation.
    """
    if not _tff_exit.has_worker():
        tff.framework.set_default_context(LocalAtFirstUse())
