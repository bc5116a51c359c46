"""Weights of examples: a third component of batches, and weights of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift import checks

# The array of a batch with the weight of its client, the same for all its examples.
CLIENT_WEIGHT = "client_weight"
# What else of a client's arrays counts in training, by its name.
WEIGHTS = ("sample_weight", CLIENT_WEIGHT)
_NAMES = ("x", "y", "sample_weight")


class Batch(NamedTuple):
    """The components of a batch, values or their types.

    Attributes:
      inputs: The inputs, a structure.
      labels: The labels, a structure.
      weights: The weights of the examples, a structure, or `None`.
    """

    inputs: Any
    labels: Any
    weights: Any = None


def split(batch: Any) -> Batch:
    """Returns the components of a batch, or of its type.

    Args:
      batch: A sequence `(x, y)` or `(x, y, sample_weight)`, or a mapping with these
        names, and `client_weight` perhaps, which is none of the model's.

    Raises:
      ValueError: If it is something else.
    """
    if isinstance(batch, Mapping):
        if set(_NAMES[:2]) <= set(batch) <= {*_NAMES, CLIENT_WEIGHT}:
            return Batch(*(batch[name] for name in _NAMES if name in batch))
        found: Any = list(batch)
    elif isinstance(batch, (list, tuple)) and len(batch) in (2, 3):
        return Batch(*batch)
    else:
        found = batch
    raise ValueError(
        "input_spec must be the tf.TensorSpec structure of a batch: (x, y), inputs and "
        "labels, or (x, y, sample_weight), or a mapping with these names, found "
        f"{checks.shown(found)}. The datasets' element_spec has that form."
    )


def as_argument(weights: Any) -> dict[str, Any]:
    """Returns the argument `sample_weight`, as Keras and TFF name it, if there is one.

    Args:
      weights: The weights, or `None`.
    """
    return {} if weights is None else {"sample_weight": weights}


def check_class_weight(class_weight: Any, label_spec: Any) -> None:
    """Raises unless classes can have the weights given.

    Args:
      class_weight: A number for each class, or `None`.
      label_spec: The `tf.TensorSpec` structure of the labels.

    Raises:
      TypeError: If it is not a mapping of integers to numbers.
      ValueError: If a class or its weight is negative, or an example has several
        labels.
    """
    if class_weight is None:
        return
    what = "a mapping of classes to numbers, such as {0: 1.0, 1: 20.0}"
    checks.check_instance("class_weight", class_weight, Mapping, what)
    if not class_weight:
        raise ValueError("class_weight is empty. Leave it out, or weigh a class.")
    for number, weight in class_weight.items():
        checks.check_integer("each key of class_weight", number, at_least=0)
        checks.check_non_negative(f"class_weight[{number}]", weight)
    shape = getattr(label_spec, "shape", None)
    if shape is None or shape.rank not in (1, 2):
        raise _several_labels(label_spec)


def _several_labels(label_spec: Any) -> ValueError:
    return ValueError(
        "class_weight needs one label for each example, found labels of "
        f"{checks.shown(label_spec)}. Give weights of examples as a third component of "
        "batches, (x, y, sample_weight)."
    )


def check_one_label(label_spec: Any, output_spec: Any) -> None:
    """Raises unless labels are numbers of classes, or have an output for each class.

    Args:
      label_spec: The `tf.TensorSpec` of the labels, of a rank that
        `check_class_weight` lets pass.
      output_spec: The model's output, anything with a `shape`.

    Raises:
      ValueError: If they are not.
    """
    shape, output = label_spec.shape, getattr(output_spec, "shape", None)
    if shape.rank == 1 or shape[1] == 1:
        return
    if output is None or len(output) != 2:
        raise _several_labels(label_spec)


def check_classes(class_weight: Mapping[int, float], output: Any, loss: Any) -> None:
    """Raises if a class is weighed that a model's output cannot be.

    Of a regression any label may be a class, of cross-entropy those of the outputs.

    Args:
      class_weight: The weights.
      output: The model's output, anything with a `shape`.
      loss: Its loss, of Keras 2 or 3.

    Raises:
      ValueError: If one is.
    """
    number = (getattr(output, "shape", None) or (None,))[-1]
    kind = type(loss).__name__
    if number == 1 and kind in ("BinaryCrossentropy", "BinaryFocalCrossentropy"):
        number = 2
    elif kind not in ("SparseCategoricalCrossentropy", "CategoricalCrossentropy"):
        return
    if number is not None and max(class_weight) >= number:
        raise ValueError(
            f"class_weight weighs the class {max(class_weight)}, but the model's "
            f"output has {number} classes, from 0 to {number - 1}. Weigh these, or "
            "give the model an output for each class."
        )


def with_class_weights(
    weights: Any, labels: Any, class_weight: Mapping[int, float]
) -> tf.Tensor:
    """Returns the weights of examples times those of their classes, as Keras' `fit`.

    Args:
      weights: The weights of the examples, or `None`.
      labels: One number for each example, or a row with the largest at its class.
      class_weight: The weights; classes that it leaves out weigh 1.
    """
    if labels.shape.rank == 2 and labels.shape[1] != 1:
        classes = tf.argmax(labels, axis=1)
    else:
        classes = tf.reshape(labels, [-1])
        if classes.dtype.is_floating:
            classes = tf.round(classes)
    number = max(class_weight) + 1
    table = [float(class_weight.get(each, 1.0)) for each in range(number)]
    classes = tf.cast(classes, tf.int64)
    # Of a class beyond the table, as Keras 3 does, the weight is 1, and so it is of a
    # label below zero, such as -1 of a hinge loss.
    beyond = tf.constant(number, tf.int64)
    is_beyond = (classes < 0) | (classes > beyond)
    of_classes = tf.gather(
        tf.constant([*table, 1.0]), tf.where(is_beyond, beyond, classes)
    )
    if weights is None:
        return of_classes
    if not weights.dtype.is_floating:  # In which a class cannot weigh a half.
        weights = tf.cast(weights, of_classes.dtype)
    of_classes = tf.cast(of_classes, weights.dtype)
    extra = [1] * (weights.shape.rank - 1)
    return weights * tf.reshape(of_classes, [-1, *extra])
