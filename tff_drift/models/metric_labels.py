"""Whether metrics of Keras count the labels and outputs of a model.

TensorFlow compares shapes that are known. In batches of any size some misfits are told
by the first batch alone, in the midst of training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_drift import checks

_MISFIT = (TypeError, ValueError, IndexError, tf.errors.OpError)
# They take any labels, or what a function of the user's takes.
_OTHERS = ("Mean", "MeanMetricWrapper", "Metric", "Sum")


def zeros_of(specs: Any) -> Any:
    """Returns a batch of one example of zeros.

    Args:
      specs: A structure of anything with a shape and a dtype.
    """
    return tf.nest.map_structure(
        lambda spec: tf.zeros([size or 1 for size in spec.shape], spec.dtype), specs
    )


def check_counts(
    argument: str, metric: Any, labels: Any, outputs: Any, count: Callable[..., Any]
) -> None:
    """Raises if a metric of Keras cannot count labels of another form than outputs.

    Args:
      argument: The argument that has it, `metrics` or `weighted_metrics`.
      metric: The metric, perhaps of the user's own class, which may take any labels.
      labels: The labels' specification.
      outputs: That of the outputs: anything with a shape and a dtype.
      count: Has the metric count two tensors, labels and outputs.

    Raises:
      ValueError: If it cannot, or would take several outputs for one.
    """
    _check_outputs(argument, metric, outputs)
    if not is_checked(metric, labels, outputs):
        return
    # More rows than outputs, so that none is taken for the other.
    rows = labels.shape[0] or outputs.shape[-1] + 1
    specs = [
        tf.TensorSpec([rows, *each.shape[1:]], each.dtype) for each in (labels, outputs)
    ]
    try:
        tf.function(count, autograph=False).get_concrete_function(*specs)
    except _MISFIT as error:
        raise misfit(argument, metric, labels, outputs) from error


def _check_outputs(argument: str, metric: Any, outputs: Any) -> None:
    """Raises if a metric of Keras would count several outputs as one tensor."""
    shapes = {tuple(each.shape) for each in tf.nest.flatten(outputs)}
    is_keras3 = checks.is_of_keras3(metric)
    # TFF's metrics of Keras 2 count outputs of one shape as more examples.
    if len(tf.nest.flatten(outputs)) < 2 or (len(shapes) < 2 and not is_keras3):
        return
    if not _is_of_keras(metric):
        return
    remedy = (
        f"Give a mapping of the outputs' names, {argument}={{'<output>': [...]}}."
        if is_keras3
        else "Give a metric of your own, whose update_state picks an output."
    )
    raise ValueError(
        f"{argument} has {type(metric).__name__} {checks.shown(metric.name)} of all "
        f"outputs of the model, which a metric of Keras takes for one. {remedy}"
    )


def is_checked(metric: Any, labels: Any, outputs: Any) -> bool:
    """Returns whether a metric is one of Keras', of labels not like the outputs.

    Args:
      metric: The metric.
      labels: The labels' specification.
      outputs: That of the outputs.
    """
    is_sparse = type(metric).__name__.startswith("Sparse")
    return _is_of_keras(metric) and not is_sparse and _differ(labels, outputs)


def misfit(argument: str, metric: Any, labels: Any, outputs: Any) -> ValueError:
    """Returns the error of a metric that cannot count labels and outputs.

    Args:
      argument: The argument that has it.
      metric: The metric.
      labels: The labels' specification.
      outputs: That of the outputs.
    """
    shapes = [tuple(each.shape) for each in (labels, outputs)]
    return ValueError(
        f"{argument} has {type(metric).__name__} {checks.shown(metric.name)}, which "
        f"cannot count labels of shape {shapes[0]} and outputs of shape {shapes[1]}. "
        "Give a metric that takes numbers of classes, such as "
        "SparseCategoricalAccuracy, or labels like the outputs, such as one-hot ones."
    )


def _is_of_keras(metric: Any) -> bool:
    """Whether a metric is one of Keras', of labels as Keras wants them."""
    package = type(metric).__module__.partition(".")[0]
    return package in ("keras", "tf_keras") and type(metric).__name__ not in _OTHERS


def _differ(labels: Any, outputs: Any) -> bool:
    """Whether there are several outputs, and not as many labels, of each example."""
    if tf.nest.is_nested(labels) or tf.nest.is_nested(outputs):
        return False
    wanted, found = tf.TensorShape(labels.shape), tf.TensorShape(outputs.shape)
    if found.rank != 2 or wanted.rank not in (1, 2) or labels.dtype == tf.string:
        return False
    return (found[1] or 1) > 1 and wanted[1:] != found[1:]
