"""The execution context of a command's runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from experiments.flags.errors import UserError
from tff_drift import execution, system


def set_execution_context(
    kind: str, cohort: int, circumstances: Mapping[str, Any]
) -> None:
    """Sets where TFF computations run, the same for all runs of a command.

    Args:
      kind: The value of --execution.
      cohort: The clients of a round.
      circumstances: Those of the runs.

    Raises:
      UserError: If Ray is not installed.
      WorkerError: If TFF's worker, or what runs on Ray, does not start.
    """
    concurrent = circumstances["max_concurrent_clients"]
    if kind == "ray":
        try:
            execution.set_ray_execution_context(
                address=circumstances["ray_address"],
                num_actors=circumstances["ray_actors"],
                max_concurrent_clients=concurrent,
            )
        except ImportError as error:
            raise UserError(f"--execution=ray: {error}") from error
    elif kind == "native":
        execution.set_native_execution_context(
            max_concurrent_computation_calls=concurrent
        )
    else:
        _share_out_processors(cohort)
        execution.set_local_execution_context(max_concurrent_clients=concurrent)


# So many clients of unequal sizes for each processor keep all of them busy.
_CLIENTS_PER_PROCESSOR = 4


def _share_out_processors(cohort: int) -> None:
    """Gives each operation one thread where clients keep the processors busy anyway.

    TensorFlow would split operations among processors besides, which costs 5 to 15 % of
    a round then. That can be set only before it starts; who has set it keeps it.
    """
    processors = system.processors()
    given = "TF_NUM_INTRAOP_THREADS" in os.environ
    if cohort >= _CLIENTS_PER_PROCESSOR * processors and not given:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(1)
