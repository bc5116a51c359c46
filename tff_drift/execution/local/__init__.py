"""An execution context that runs TFF computations in this process: the map.

A call, from top to bottom; what is made once is kept for the next call:

    process.next(state, data)
        |
    context.py              invoke(computation, argument)
        |
        |  once per computation
        |-- plan_cache.py   is there a plan for an equal computation?
        |     plans/        TFF's language, interpreted: phases of operations
        |     graphs/       the graphs of each phase, made one TensorFlow function
        |     pure/         a client's graph without variables
        |     stacked/      ... as functions of many clients, where that may pay
        |
        |  every time
        |-- values/         the argument into tensors, datasets into sequences
        |-- run/            for each phase:
        |     phases.py       the server's function
        |     stacked/        the policy asked: stacked, or one by one?
        |                       one by one:  a function per client, a few at a time
        |                       in turns:    full batches taken together, clients that
        |                                    are through wait (`stacked/in_turns.py`);
        |                                    so do loops over batches in lists, there
        |                                    and back (`pure/list_loops.py`)
        |     aggregation.py  clients' values summed, collected, or added in turn
        |-- values/         tensors into the Python values that TFF returns

What a computation will do, and why, is told by `LocalExecutionContext.explain`, from
`run/explanation.py`, which asks what a run asks.

A module imports from its own floor or from those below:

    context.py
    plan_cache.py
    run/
    stacked/
    graphs/    pure/
    values/
    plans/
    tensors.py
    placement.py
    policy.py  patterns.py  rewriting.py

Where to change what:

*   When clients are stacked, how many at a time, any other number: `policy.py`, which
    holds every threshold, as functions without side effects that say why.
*   A form of graph that is to be recognised, or whose maker changes: `patterns.py`.
*   An intrinsic of TFF: `plans/planner.py`; inside local computations,
    `graphs/functions.py`.
*   What TensorFlow refuses to run in a function (resources, sessions):
    `graphs/prepare.py`; loops over datasets: `graphs/dataset_loops.py`; devices:
    `graphs/devices.py`.
*   An operation that TensorFlow vectorizes, exactly or not: `pure/vectorizable.py`.
*   An operation on variables that cannot be stacked yet: `pure/variables.py`; control
    flow: `pure/graph_interpreter.py`.
*   Another way to train many clients at a time: a `StackedComputation` of
    `stacked/interface.py`, in the list of `stacked/clients.py`.
*   A kind of argument or of result: `values/arguments.py`, `values/results.py`; the
    Python containers are `tff_drift/execution/containers.py`.
"""

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
