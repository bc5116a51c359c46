"""The weights that a model function loads, which a graph does not keep.

TFF and this library call `model_fn` in graphs. There a variable begins with what its
initializer gives, and an operation that assigns to it later, as `set_weights`,
`load_weights` and `load_model` add them, is not run. The graph still tells which
variables such operations are for; what they would give is read from a model that is
built where operations have values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.models.explained import explain
from tff_drift.models.outside import check_made_inside
from tff_drift.tensors import eagerly

_METRICS_REMEDY = (
    "Make the metrics in model_fn itself, or give functions that make them, such as "
    "their classes."
)


def loaded_weights(
    model_fn: Callable[[], tff.learning.models.VariableModel],
    model: tff.learning.models.VariableModel,
) -> dict[int, np.ndarray]:
    """Returns the values of the weights that a model function sets, by their position.

    Args:
      model_fn: The function. It is called once more, outside of graphs, if it sets
        weights.
      model: The model that it built in a graph that is the current one.

    Returns:
      The values by the position in the flattened `ModelWeights`; nothing of the weights
      that begin with what their initializers give.

    Raises:
      ValueError: If the model's variables are those of another model or of metrics,
        made outside of `model_fn`, or `model_fn` sets weights and cannot be called
        outside of graphs.
    """
    weights = _weights(model)
    check_made_inside(map(_handle, weights))
    of_metrics = map(_handle, tf.nest.flatten(model.local_variables))
    check_made_inside(of_metrics, "a metric", _METRICS_REMEDY)
    positions = [place for place, each in enumerate(weights) if is_set_in_graph(each)]
    if not positions:
        return {}
    try:
        values = eagerly(lambda: [np.asarray(v) for v in _weights(model_fn())])
    except Exception as error:
        explain(error)
        raise ValueError(
            "model_fn sets weights of its model, which are read by a call outside of "
            f"TFF's graphs, and there it fails ({checks.shown(str(error))}). Leave the "
            "loading out of model_fn, and give run_training(..., initial_weights=...)."
        ) from error
    return {place: values[place] for place in positions}


def is_set_in_graph(variable: Any) -> bool:
    """Returns whether an operation of a graph assigns to a variable of it.

    Its initializer aside.

    Args:
      variable: A `tf.Variable`.
    """
    handle = _handle(variable)
    return tf.is_symbolic_tensor(handle) and any(
        operation.type == "AssignVariableOp" and operation is not variable.initializer
        for operation in handle.consumers()
    )


def _handle(variable: Any) -> Any:
    return getattr(variable, "handle", None)


def _weights(model: tff.learning.models.VariableModel) -> list[Any]:
    return tf.nest.flatten(tff.learning.models.ModelWeights.from_model(model))
