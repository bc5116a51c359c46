"""Whole runs as tasks on a Ray cluster."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import tff_drift
from experiments.flags import errors, plugins
from experiments.flags.errors import UserError
from experiments.flags.placement import Placement
from tff_drift.execution import WorkerError
from tff_drift.execution.on_ray import cluster

# A local instance shares no data among its processes.
_OBJECT_STORE_BYTES = 100 * 2**20
_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# For runs that were interrupted, each of which ends after its round.
_SECONDS_TO_END = 10.0
# Of a call whose process or node is lost: what ends its process does so each time.
_MAX_RETRIES = 3


@dataclasses.dataclass(frozen=True)
class _Process:
    """The knowledge that a process on a node needs before it can train.

    Attributes:
      folder: Where this program runs, from which relative paths are.
      paths: Files of the user that runs need.
      threads: How many threads TensorFlow may keep busy.
      version: Of `tff_drift`.
    """

    folder: str
    paths: tuple[str, ...]
    threads: int
    version: str

    def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Calls a function there."""
        if tff_drift.__version__ != self.version:
            raise UserError(
                f"A node of the Ray cluster has tff_drift {tff_drift.__version__}, "
                f"this program {self.version}. Install the same on every node."
            )
        os.chdir(self.folder)
        for name in _THREADS:
            os.environ.setdefault(name, str(self.threads))
        plugins.load(self.paths)
        return function(*arguments, **named)


class RayTasks(concurrent.futures.Executor):
    """Calls functions in processes of a Ray cluster.

    A call whose process or node is lost is made again, up to three times: runs go on
    from their checkpoints, in a folder that all nodes see under the same path.

    Attributes:
      size: How many calls are made at a time.
    """

    def __init__(self, placement: Placement, most_runs: int) -> None:
        """Connects to Ray, or starts a local instance.

        Args:
          placement: What was asked for.
          most_runs: No more than so many runs will be trained.

        Raises:
          UserError: If Ray is not installed, or the cluster has no processor.
        """
        with errors.as_user_errors(ImportError, WorkerError):
            self._ray = cluster.connect(placement.ray_address, _OBJECT_STORE_BYTES)
            counts = cluster.processors_of_nodes(self._ray).values()
        self.size = max(1, min(placement.processes or sum(counts), most_runs))
        processors = cluster.share(counts, self.size)
        self._process = _Process(
            os.getcwd(),
            tuple(os.path.abspath(path) for path in placement.plugins),
            max(1, int(processors)),
            tff_drift.__version__,
        )
        nodes = [each["Resources"] for each in self._ray.nodes() if each["Alive"]]
        memory = [node["memory"] for node in nodes if "memory" in node]
        self._task = self._ray.remote(_Process.run).options(
            num_cpus=processors,
            memory=int(min([placement.bytes_per_run, *memory])),
            max_retries=_MAX_RETRIES,
        )
        self._begun: list[Any] = []

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, **named: Any
    ) -> concurrent.futures.Future[Any]:
        """Calls a function of a module; see `concurrent.futures.Executor`."""
        reference = self._task.remote(self._process, function, *arguments, **named)
        self._begun.append(reference)
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        reference.future().add_done_callback(functools.partial(self._tell, answer))
        return answer

    def _tell(self, answer: Any, done: Any) -> None:
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
            return
        cause = getattr(error, "cause", None)
        if not isinstance(cause, Exception):
            cause = UserError(
                f"A run on the Ray cluster was lost: {' '.join(str(error).split())} "
                "Often RAM ran out: lower --processes, or use larger nodes. The same "
                "command again goes on from what is finished."
            )
        answer.set_exception(cause)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Interrupts what has been begun, where that is asked for."""
        if cancel_futures and self._begun:
            for reference in self._begun:
                self._ray.cancel(reference)
            self._ray.wait(
                self._begun, num_returns=len(self._begun), timeout=_SECONDS_TO_END
            )
