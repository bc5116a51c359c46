"""How TensorFlow rewrites the graphs of functions that several threads call."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import tensorflow as tf

# Private: nothing public sets the memory optimizer of eager functions.
from tensorflow.python.eager import context as eager_context


@contextlib.contextmanager
def for_threads() -> Iterator[None]:
    """Lets functions be called by several threads at a time, whatever they hold.

    Where a graph seems to need more than 200 MB, TensorFlow's memory optimizer puts
    sums of many tensors into variables of their own. Outside a session all calls of a
    function have the same ones, so that two calls at a time end in an
    `AlreadyExistsError`. Functions that are called here first stay without.
    """
    eager = eager_context.context()
    given = eager.function_call_options
    eager.function_call_options = _without_variables(
        given.executor_type, given.config_proto_serialized
    )
    try:
        yield
    finally:
        eager.function_call_options = given


@functools.lru_cache(maxsize=16)
def _without_variables(
    executor_type: str | None, config: bytes
) -> eager_context.FunctionCallOptions:
    changed = tf.compat.v1.ConfigProto.FromString(config)
    options = changed.graph_options.rewrite_options
    options.memory_optimization = options.MANUAL
    return eager_context.FunctionCallOptions(executor_type, changed)
