"""An execution context that runs TFF computations in this process.

A call, from top to bottom; what is made once is kept for the next call:

    process.next(state, data)
        |
    context.py              invoke(computation, argument)
        |
        |  once per computation
        |-- phases.py       is there a plan for an equal computation?
        |     planner.py        TFF's language, interpreted: phases of operations
        |     graphs/           the graphs of each phase, made one TensorFlow function
        |     client_program/   a client's graph as start, step, finish
        |     runners/          ... as a function of one client, and of many at a time
        |                       where that may pay
        |
        |  every time
        |-- data/           the argument into tensors, datasets into sequences
        |-- phases.py       for each phase:
        |                     the server's function
        |                     clients one by one: a function for each, a few at a time
        |                     or vectorized, in lockstep (`runners/`)
        |     aggregation.py  clients' values summed, collected, or added in turn
        |-- data/           tensors into the Python values that TFF returns

`docs/engine.md` follows one round through this. What a computation will do, and why,
`LocalExecutionContext.explain` says, by `explain.py`, which asks what a run asks. Which
module may import which stands in `pyproject.toml`.

Where to change what:

*   When clients are vectorized, and how many at a time: `policy.py`, functions without
    side effects that say why; the numbers that depend on the machine, and the devices:
    `options.py`.
*   A form of graph that is to be recognised: `patterns.py`.
*   An intrinsic of TFF: `planner.py`; inside local computations, `graphs/functions.py`.
*   What TensorFlow refuses to run in a function (resources, sessions), and devices in
    graphs: `graphs/import_graph.py`.
*   How one client's steps follow each other, and what runs as TFF's graph:
    `runners/sequential.py`.
*   An operation that TensorFlow vectorizes, exactly or not:
    `client_program/vectorizable.py`.
*   An operation on variables that has no program yet: `client_program/nodes.py`;
    control flow: `client_program/interpreter.py`.
*   A kind of argument or of result: `data/conversion.py`; the Python containers are
    `tff_drift/execution/containers.py`.
"""

from tff_drift.execution.local.context import (
    AsyncLocalExecutionContext,
    LocalExecutionContext,
    create_async_local_execution_context,
    create_local_execution_context,
    set_local_execution_context,
)
from tff_drift.execution.local.options import Limits

__all__ = [
    "AsyncLocalExecutionContext",
    "Limits",
    "LocalExecutionContext",
    "create_async_local_execution_context",
    "create_local_execution_context",
    "set_local_execution_context",
]
