"""Metrics of Keras 2 in a model of TFF."""

from __future__ import annotations

import collections
import functools
import inspect
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import autograph
from tff_drift.models import keras2_labels, metric_labels


def name_weighted(model: Any, makers: Sequence[Any], number: int) -> list[Any]:
    """Names the weighted metrics of a model of TFF apart from its other ones.

    As in Keras' `fit`, a weighted metric that has the name of another one is
    `weighted_<name>`.

    Args:
      model: The model, of TFF's `from_keras_model`.
      makers: What the model was given as metrics: metrics or functions that make one.
      number: How many of them, the last ones, are weighted.

    Returns:
      The weighted metrics.
    """
    metrics = model.get_metrics()
    first = len(makers) - number
    plain, weighted = metrics[:first], metrics[first : len(makers)]
    names = {metric.name for metric in plain}
    for metric in weighted:
        if metric.name in names:
            metric._name = f"weighted_{metric.name}"
    if model._metric_constructors and weighted:
        # By names, of which one was there twice.
        own = [metric.name for metric in metrics[len(makers) :]]
        named = {name: model._metric_constructors[name] for name in own}
        given = [metric.name for metric in (*plain, *weighted)]
        model._metric_constructors = collections.OrderedDict(
            [*zip(given, makers, strict=True), *named.items()]
        )
    return weighted


def check_counts(
    metrics: Sequence[Any], weighted: Collection[Any], labels: Any, outputs: Any
) -> None:
    """Raises if a metric of Keras cannot count labels of another form than outputs.

    Args:
      metrics: The metrics of a model.
      weighted: Those in which weights count.
      labels: The `tf.TensorSpec` structure of the labels.
      outputs: The outputs, a structure of anything with a shape and a dtype.

    Raises:
      ValueError: If one cannot; the message names it.
    """
    for metric in metrics:
        is_weighted = metric in weighted
        argument = "weighted_metrics" if is_weighted else "metrics"
        count = functools.partial(_count, metric, is_weighted)
        metric_labels.check_counts(argument, metric, labels, outputs, count)


def _count(metric: Any, is_weighted: bool, labels: Any, outputs: Any) -> None:
    form = keras2_labels.like if is_weighted else keras2_labels.as_column
    metric.update_state(form(labels, outputs), outputs)


def finalizer_of_sums(metric: Any) -> Callable[..., Any]:
    """Returns the value of a sum or a mean of Keras as a function of its variables'.

    By Keras' own line, without a metric built anew for its variables.
    """
    calculate, reduction = type(metric).result, metric.reduction
    places = {
        name: place
        for place, variable in enumerate(metric.variables)
        for name in ("total", "count")
        if variable is getattr(metric, name, None)
    }

    @autograph.as_written
    def finalize(values: Sequence[tf.Tensor]) -> Any:
        sums = {name: values[place] for name, place in places.items()}
        return calculate(types.SimpleNamespace(reduction=reduction, **sums))

    return finalize


def reset(metric: Any) -> None:
    """Has a metric forget what it has seen; in the graphs of TFF, too.

    The metrics of intersection over union set their sums in a session of Keras.
    """
    if type(metric).reset_state is not tf.keras.metrics.IoU.reset_state:
        metric.reset_state()
        return
    for variable in metric.variables:
        variable.assign(tf.zeros_like(variable))


def is_late(metric: Any) -> bool:
    """Returns whether a metric makes variables at its first batch."""
    is_built = metric.built and getattr(metric, "_built", True)
    return not is_built or not metric.variables


def takes_weights(metric: Any) -> bool:
    """Returns whether a metric can count examples by weights."""
    function = tf.__internal__.decorator.unwrap(type(metric).update_state)[1]
    parameters = inspect.signature(function).parameters.values()
    return any(
        each.name == "sample_weight" or each.kind is each.VAR_KEYWORD
        for each in parameters
    )
