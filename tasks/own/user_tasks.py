"""What the tasks on a user's own data share: arguments, tests held out, models."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tasks import definitions, seeds
from tasks.models import classification, nets
from tasks.own import class_numbers
from tasks.sources import example_checks
from tff_drift import checks
from tff_drift.simulation import ClientDatasets

Examples = tuple[np.ndarray, np.ndarray]
BuildKerasModel = Callable[[], tf.keras.Model]


class Part(NamedTuple):
    """Clients, and how to read one."""

    client_ids: Iterable[str]
    load: Callable[[str], Examples]


@dataclasses.dataclass(frozen=True)
class Training:
    """The arguments for training that all tasks on a user's own data take.

    Attributes:
      build_keras_model: Builds a net; `None` is softmax regression.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: The number of examples kept of a training client, or `None`.
      seed: The seed of shuffles, of what is held out, and of initial weights.

    Raises:
      TypeError: If one has the wrong type.
      ValueError: If one is out of its range.
    """

    build_keras_model: BuildKerasModel | None
    batch_size: int
    epochs: int
    max_examples: int | None
    seed: int

    def __post_init__(self) -> None:
        if self.build_keras_model is not None:
            checks.check_callable(
                "build_keras_model",
                self.build_keras_model,
                "a function without arguments that builds a Keras model",
            )
        checks.check_integer("batch_size", self.batch_size)
        checks.check_integer("epochs", self.epochs)
        if self.max_examples is not None:
            checks.check_integer("max_examples", self.max_examples)
        checks.check_integer("seed", self.seed, at_least=0)


def check_columns(features: Sequence[Any] | None, **others: Any) -> None:
    """Raises unless arguments name columns, each for one purpose.

    Args:
      features: The argument `features`.
      **others: The arguments `label` and perhaps `client_id`.

    Raises:
      TypeError: If one has the wrong type.
      ValueError: If two are the same, or no feature is named or one twice.
    """
    names: dict[Any, str] = {}
    for argument, name in others.items():
        _take_column(argument, name, names)
    if features is None:
        return
    if isinstance(features, (str, bytes)) or not isinstance(features, Sequence):
        raise TypeError(
            f"features must be a list of columns, found {checks.shown(features)}. "
            "Leave it out to take all others."
        )
    if not features:
        raise ValueError("features is empty. Name a column, or leave it out.")
    for name in features:
        _take_column("features", name, names)


def _take_column(argument: str, name: Any, names: dict[Any, str]) -> None:
    """Adds a column to those that arguments name; raises if it cannot be one."""
    if name is None or not isinstance(name, Hashable):
        raise TypeError(f"{argument} must name columns, found {checks.shown(name)}.")
    if name in names:
        raise ValueError(
            f"{argument} names the column {name!r}, which {names[name]} names already. "
            "Use a column for one purpose, once."
        )
    names[name] = argument


def check_num_classes(num_classes: int | None) -> None:
    """Raises unless an argument can be a number of classes.

    Args:
      num_classes: The argument; `None` is right too.

    Raises:
      TypeError: If it is not an integer.
      ValueError: If it is below 1 or above `class_numbers.MAX_CLASSES`.
    """
    if num_classes is None:
        return
    checks.check_integer("num_classes", num_classes)
    if num_classes > class_numbers.MAX_CLASSES:
        raise ValueError(
            f"num_classes must be at most {class_numbers.MAX_CLASSES}, found "
            f"{num_classes!r}. Number the classes that occur from 0."
        )


def check_test_fraction(test_fraction: float) -> None:
    """Raises unless an argument can be the share of examples that is held out.

    Args:
      test_fraction: The argument.

    Raises:
      TypeError: If it is not a number.
      ValueError: If it is not between 0 and 1, or one of these.
    """
    checks.check_probability("test_fraction", test_fraction)
    if not 0 < test_fraction < 1:
        raise ValueError(
            "test_fraction must be between 0 and 1, found "
            f"{checks.shown(test_fraction)}: both training and tests need examples."
        )


def hold_out(
    part: Part, sizes: Mapping[str, int], fraction: float, seed: int
) -> list[Part]:
    """Splits each client's examples into those to train and those to test on.

    Args:
      part: The clients.
      sizes: The number of examples of each.
      fraction: The share held out of each client with at least two.
      seed: The seed of the draw.

    Returns:
      The clients to train and those to test on.

    Raises:
      DataError: If no client has two examples.
    """
    testing = [owner for owner in part.client_ids if sizes[owner] > 1]
    if not testing:
        raise example_checks.DataError(
            "No client has more than one example, so that none can be held out to test "
            "on. Give examples to test on."
        )

    def load(held_out: bool, owner: str) -> Examples:
        x, y = part.load(owner)
        draw = seeds.generator(seed, f"held-out examples of {owner}")
        order = draw.permutation(len(y))
        count = min(max(1, round(fraction * len(y))), len(y) - 1)
        # In the order of the file, which `max_examples` may refer to.
        rows = np.sort(order[:count] if held_out else order[count:])
        return x[rows], y[rows]

    return [
        Part(part.client_ids, functools.partial(load, False)),
        Part(testing, functools.partial(load, True)),
    ]


def build_task(
    name: str,
    parts: Sequence[Part],
    classes: Sequence[Any],
    training: Training,
) -> definitions.Task:
    """Returns a task of classification.

    Args:
      name: The task's name.
      parts: The clients to train and those to test on.
      classes: The classes in the order of their numbers.
      training: How to train.

    Returns:
      The task.

    Raises:
      TypeError: If `build_keras_model` builds no Keras model.
      ValueError: If its inputs or outputs do not fit the data.
    """
    train_part, test_part = parts
    batching: dict[str, Any] = {
        "batch_size": training.batch_size,
        "epochs": training.epochs,
        "seed": training.seed,
    }
    train = ClientDatasets(
        tuple(train_part.client_ids),
        train_part.load,
        max_examples=training.max_examples,
        **batching,
    )
    test = ClientDatasets(tuple(test_part.client_ids), test_part.load, **batching)
    input_shape = train.element_spec[0].shape[1:]
    if training.build_keras_model is not None:
        _check_model(training.build_keras_model, tuple(input_shape), len(classes))
    return definitions.Task(
        name=name,
        description=f"Your own data: {len(train)} clients, {len(classes)} classes.",
        train=train,
        test=test,
        validation=None,
        model_fn=classification.build_model_fn(
            training.build_keras_model
            or functools.partial(
                _softmax_regression, input_shape, len(classes), training.seed
            ),
            train.element_spec,
        ),
        accuracy_metric="accuracy",
        higher_is_better=True,
        seed=training.seed,
        options={
            "batch_size": train.batching.batch_size,
            "epochs": train.batching.epochs,
            "max_examples": training.max_examples,
            "classes": tuple(classes),
        },
    )


def _check_model(
    build_keras_model: BuildKerasModel, input_shape: tuple[int, ...], num_classes: int
) -> None:
    """Raises unless a user's net takes the inputs and has an output per class."""
    # A graph of its own: what is built here counts for nothing later.
    with tf.Graph().as_default():
        model = build_keras_model()
        if not isinstance(model, tf.keras.Model):
            raise TypeError(
                "build_keras_model must build a Keras model, found "
                f"{checks.shown(model)}."
            )
        shapes = (
            (model.input_shape, model.output_shape) if model.built else (None, None)
        )
    inputs, outputs = shapes
    if isinstance(inputs, tuple) and not tf.TensorShape(inputs[1:]).is_compatible_with(
        input_shape
    ):
        raise ValueError(
            f"build_keras_model builds a net for examples of shape {inputs[1:]}, but "
            f"the data's are of shape {input_shape}. Build it for these."
        )
    if isinstance(outputs, tuple) and (
        len(outputs) != 2 or (outputs[1] or num_classes) < num_classes
    ):
        raise ValueError(
            f"build_keras_model builds a net whose outputs have the shape {outputs}, "
            f"but the labels name {num_classes} classes, from 0 to {num_classes - 1}. "
            f"Give it an output for each: (None, {num_classes})."
        )


def _softmax_regression(
    input_shape: Sequence[int], num_classes: int, seed: int
) -> tf.keras.Model:
    layers = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(num_classes)]
    return nets.build_sequential(input_shape, layers, seed)
