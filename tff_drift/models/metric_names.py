"""Checks of the names of metrics, by some of which TFF and the training loop count."""

from __future__ import annotations

import collections
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks

# What TFF has each model count.
_COUNTS = {"num_examples": "examples", "num_batches": "batches"}
# The module in which TFF makes functions of metrics of Keras 2.
_FUNCTIONAL = tff.learning.metrics.create_functional_metric_fns.__module__
_OF_KERAS = ("keras.", "tf_keras.")
# What TensorFlow's names of inputs may have, except for the first character. It takes a
# backslash there, and refuses it later.
_NAME = re.compile(r"[\w.>/-]*", re.ASCII)


def check_names(names: Sequence[str], metrics: Mapping[str, Any]) -> None:
    """Raises if a metric of a model is lost, or taken for a count, by its name.

    Args:
      names: The names of all metrics, with those that each model has.
      metrics: Those of Keras 2 or 3 by name.

    Raises:
      ValueError: If two have one name, or one has that of a count and counts nothing.
    """
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"metrics must have different names, found {checks.shown(twice[0])} twice. "
            "Give one of them another name."
        )
    for name, what in _COUNTS.items():
        if name in metrics and not _may_count(metrics[name]):
            kind = type(metrics[name]).__name__
            raise ValueError(
                f"the metric {checks.shown(name)} must count {what}, as results do by "
                f"this name, found {kind}. Give it another name: {what} are counted "
                "without it."
            )


def _may_count(metric: Any) -> bool:
    """Returns whether a metric may be a user's count of what it sees.

    None of Keras' own counts examples or batches: `Sum` adds up labels.
    """
    of_class = type(metric)
    ancestors = [each.__name__ for each in of_class.__mro__ if _is_of_keras(each)]
    if "Mean" in ancestors:
        return False
    update = tf.__internal__.decorator.unwrap(of_class.update_state)[1]
    return not _is_of_keras(update)


def _is_of_keras(value: Any) -> bool:
    return value.__module__.startswith(_OF_KERAS)


def check_functional_metrics(model: tff.learning.models.FunctionalModel) -> None:
    """Raises if a functional model's metric of Keras is taken for a count by its name.

    Args:
      model: The model; metrics that are functions of the user's stay as they are.

    Raises:
      ValueError: If one is.
    """
    update: Any = getattr(model._update_metrics_state, "python_function", None)
    if getattr(update, "__module__", None) != _FUNCTIONAL:
        return
    make = inspect.getclosurevars(update).nonlocals.get("metrics_constructor")
    if make is None:
        return
    with tf.Graph().as_default():
        metrics = make()
    if isinstance(metrics, Mapping):
        check_names(list(metrics), metrics)


def check_are_names(names: Iterable[str]) -> None:
    """Raises if TFF cannot name inputs by the names of metrics.

    Args:
      names: The names.

    Raises:
      ValueError: If it cannot.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"the model has a metric named {checks.shown(name)}, and TFF takes "
                "letters of English, digits and _ . - / in names. Give it another one, "
                f"such as {checks.shown(re.sub('[^a-zA-Z0-9]+', '_', name))}."
            )
