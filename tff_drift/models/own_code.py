"""Refuses code of users that works in Keras' `fit`, but not in TFF's graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks
from tff_drift.models.comparisons import OF_KERAS, refused_comparisons
from tff_drift.models.first_trace import nodes_of
from tff_drift.models.weight_places import HasKerasWeights

_LIBRARIES = {"tensorflow", "tensorflow_federated", "tff_drift", "keras", "tf_keras"}
_PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")


def check_own_code(model: tff.learning.models.VariableModel) -> None:
    """Raises if a user's code in a model does what it does not in TFF's graphs.

    A model of Keras' own parts alone is not traced.

    Args:
      model: The model, as it is trained.

    Raises:
      ValueError: If tensors are compared by `==`, a variable is trained that is no
        weight of the model, or Python is called; the message says where and what.
    """
    if not any(map(_may_be_own, _parts(model))):
        return
    forward_pass = autograph.of_user(model.forward_pass)
    used = check_traced(forward_pass, model.input_spec, training=True)
    _check_variables(model, used)
    check_traced(lambda: _finalized(model))


def check_traced(
    function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Sequence[tf.Variable]:
    """Raises if a function compares tensors by `==`, or calls Python, in a graph.

    What else fails in it is raised, and explained, where it is used.

    Args:
      function: The function, traced as it is.
      *args: Its arguments, or specifications of these.
      **kwargs: The same by name.

    Returns:
      The variables that it uses; none if it fails.

    Raises:
      ValueError: If it does; the message says what to write.
    """
    trace = None
    with refused_comparisons(), contextlib.suppress(Exception):
        traced = tf.function(function, autograph=False)
        trace = traced.get_concrete_function(*args, **kwargs)
    if trace is None:
        return ()
    if any(node.op in _PYTHON for node in nodes_of(trace)):
        raise ValueError(
            "model_fn: the model calls Python in tf.py_function or tf.numpy_function, "
            "and TFF runs it where that function is not. Write it with TensorFlow's "
            "operations, or apply it to the data."
        )
    return trace.graph.variables


def _parts(model: tff.learning.models.VariableModel) -> list[Any]:
    if not isinstance(model, HasKerasWeights):
        return [model]
    return [*model._keras_model._flatten_layers(), *model.losses_and_metrics]


def _may_be_own(part: Any) -> bool:
    """Returns whether a layer, a loss, a metric or a model may run a user's code.

    It may be of a user's class, or have a function of a user's, such as an activation.
    """
    functions = filter(callable, (type(part), part, *vars(part).values()))
    modules = {str(getattr(each, "__module__", None)) for each in functions}
    roots = {each.partition(".")[0] for each in modules}
    return not roots <= _LIBRARIES or type(part).__name__ in OF_KERAS.values()


def _finalized(model: tff.learning.models.VariableModel) -> list[Any]:
    values = model.report_local_unfinalized_metrics()
    finalizers = model.metric_finalizers()
    return [finalize(values[name]) for name, finalize in finalizers.items()]


def _check_variables(
    model: tff.learning.models.VariableModel, used: Sequence[tf.Variable]
) -> None:
    """Raises if the forward pass trains what is no weight of the model.

    Keras does not look for weights in a `tf.Module` in TFF's graphs.
    """
    # Those of frozen layers, which are not trained, may say that they are trainable.
    weights = model.trainable_variables, model.non_trainable_variables
    known = tf.nest.flatten((*weights, model.local_variables))
    of_model = set(map(id, known))
    for variable in used:
        if variable.trainable and id(variable) not in of_model:
            raise ValueError(
                "model_fn: the forward pass uses the trainable variable "
                f"{checks.shown(variable.name)}, which is not among the model's "
                "weights: clients would neither train nor send it. Give it to a layer, "
                "as an attribute or by add_weight, in place of a tf.Module."
            )
