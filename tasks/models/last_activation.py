"""The activation with which a net of Keras ends, as its graph tells."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.tensors import eagerly

_ACTIVATIONS = {"Softmax": "softmax", "Sigmoid": "sigmoid"}
# Operations that hand values on, in another shape or type perhaps.
_HANDING_ON = (
    "Cast",
    "EnsureShape",
    "ExpandDims",
    "Identity",
    "Reshape",
    "Squeeze",
    "StopGradient",
)
# Operations whose results are as squashed as all that they take.
_MIXING = (
    "AddV2",
    "ClipByValue",
    "ConcatV2",
    "GatherV2",
    "Maximum",
    "Mean",
    "Minimum",
    "Mul",
    "Pack",
    "RealDiv",
    "Slice",
    "StridedSlice",
    "Sub",
)


@dataclasses.dataclass(frozen=True)
class LastActivation:
    """The activation of a net's outputs.

    Attributes:
      name: "softmax" or "sigmoid".
      is_undone: Whether the cross-entropies of Keras take what came before it, as they
        do where nothing follows it.
    """

    name: str
    is_undone: bool


def last_activation(model: Any, spec: tf.TensorSpec) -> LastActivation | None:
    """Returns the activation of a net's outputs, if it is one that squashes them.

    Args:
      model: A model of Keras 2 or 3 with one output, made in the current graph, or
        eagerly.
      spec: A batch of its inputs.
    """
    weights = model.weights if checks.is_of_keras3(model) else []
    if weights and not any(
        tf.is_symbolic_tensor(each.value.handle) for each in weights
    ):
        return eagerly(lambda: _in_graph_of_function(model, spec))
    return _traced(model, spec)


def _in_graph_of_function(model: Any, spec: tf.TensorSpec) -> LastActivation | None:
    """Such a graph takes variables from outside of it."""
    with tf.__internal__.FuncGraph("net").as_default():
        return _traced(model, spec)


def _traced(model: Any, spec: tf.TensorSpec) -> LastActivation | None:
    inputs = tf.compat.v1.placeholder(spec.dtype, spec.shape)
    # Dropout is no part of what is handed on: it is there in training alone.
    name = _activation_before(model(inputs, training=False))
    if name is None:
        return None
    trained = model(inputs, training=True)
    is_undone = hasattr(trained, "_keras_logits") or trained.op.type == "Softmax"
    return LastActivation(name, is_undone)


def _activation_before(values: tf.Tensor) -> str | None:
    """Returns the activation that all of some values were made of, besides constants.

    An average of several nets' probabilities, a slice of them or what clips them is no
    more a logit than they are; what else follows, such as their logarithm, may be.
    """
    operation = values.op
    if operation.type in _ACTIVATIONS:
        return _ACTIVATIONS[operation.type]
    if operation.type in _HANDING_ON:
        return _activation_before(operation.inputs[0])
    if operation.type not in _MIXING:
        return None
    varying = (each for each in operation.inputs if tf.get_static_value(each) is None)
    names = list(map(_activation_before, varying))
    return names[0] if names and all(names) else None
