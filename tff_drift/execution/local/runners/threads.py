"""Functions that two threads must not run at the same time."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from tff_drift.execution.local import patterns

_NORMALIZATION = re.compile(r"FusedBatchNorm(Grad)?(V\d)?")


def one_at_a_time(function: Any, of_clients: bool = False) -> Callable[..., Any]:
    """Returns a function for which threads wait, if its kernels cannot be shared.

    With oneDNN, TensorFlow's fused normalization keeps the number of channels of a call
    in its kernel. Two calls at once whose numbers differ write beyond their memory, and
    may return wrong moments before the program crashes. Vectorized clients have
    channels of their own; Keras' `LayerNormalization` has one for each row of a batch,
    in the second dimension.

    Args:
      function: A TensorFlow function with a `graph`.
      of_clients: Whether it is of vectorized clients, whose number varies.

    Returns:
      The function, or one that runs it in one thread at a time.
    """
    nodes = patterns.all_nodes(function.graph.as_graph_def())
    if not any(_varies(node, of_clients) for node in nodes):
        return function
    lock = threading.Lock()

    def alone(*inputs: Any) -> Any:
        with lock:
            return function(*inputs)

    return alone


def _varies(node: Any, of_clients: bool) -> bool:
    """Whether a node is a normalization whose number of channels differs by call."""
    if not _NORMALIZATION.fullmatch(node.op):
        return False
    return of_clients or node.attr["data_format"].s == b"NCHW"
