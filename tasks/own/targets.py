"""The target of a task on a user's own data: a class, or a number."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tasks import definitions
from tasks.models import classification, regression
from tasks.models.last_activation import LastActivation
from tasks.own import class_numbers
from tasks.sources import example_checks
from tff_drift import casts, checks

CLASS = "class"
NUMBER = "number"

# What to do with labels that are no numbers.
NUMBER_REMEDY = (
    f"Leave target={NUMBER!r} out (--task=own_data) to predict classes, or turn the "
    "labels into numbers, as pandas.to_numeric does."
)
# More classes than these, with fewer examples each, are rather numbers or codes: then
# the user has to say which.
_MANY_CLASSES = 100
_EXAMPLES_PER_CLASS = 10


class Target(Protocol):
    """The target that is predicted for an example."""

    @property
    def outputs(self) -> int:
        """The outputs that a model needs for it."""

    @property
    def accuracy_metric(self) -> str:
        """The name of the headline metric."""

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger headline metric is better."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The target as a task's options describe it."""

    def weighted(self, class_weight: Mapping[Any, float] | None) -> Target:
        """Returns it with weights of classes; raises a `ValueError` if it has none."""

    def encode(self, labels: np.ndarray, where: str) -> np.ndarray:
        """Returns labels as the loss takes them; raises a `DataError` if it cannot."""

    def check_outputs(self, shape: tuple[int | None, ...]) -> None:
        """Raises a `ValueError` unless a net's outputs may have a shape."""

    def check_activation(self, found: LastActivation) -> None:
        """Raises a `ValueError` unless a net may end in an activation."""

    def model_fn(
        self, build_keras_model: Callable[[], Any], input_spec: Any
    ) -> definitions.ModelFn:
        """Returns a model function with the loss and the metrics."""

    def __str__(self) -> str:
        """Returns it in words, after the number of clients."""


@dataclasses.dataclass(frozen=True)
class Classes:
    """One of some classes, by cross-entropy.

    Attributes:
      values: The classes in the order of their numbers.
      weights: The weights of classes in training, by their numbers; `None` if all
        weigh 1.
    """

    values: Sequence[Any]
    weights: Mapping[int, float] | None = None
    accuracy_metric = "accuracy"
    higher_is_better = True

    @property
    def outputs(self) -> int:
        """One for each class."""
        return len(self.values)

    @property
    def options(self) -> Mapping[str, Any]:
        """The target, the classes and their weights."""
        weights = None
        if self.weights is not None:
            weights = {self.values[k]: each for k, each in self.weights.items()}
        return {
            "target": CLASS,
            "classes": tuple(self.values),
            "class_weight": weights,
        }

    def weighted(self, class_weight: Mapping[Any, float] | None) -> Classes:
        """Returns the same classes with weights.

        Args:
          class_weight: The weights by classes as labels name them; those that are left
            out weigh 1.

        Raises:
          ValueError: If it names what is none of the classes, or one twice.
        """
        if class_weight is None:
            return self
        names: dict[int, Any] = {}
        weights: dict[int, float] = {}
        by_value = {value: number for number, value in enumerate(self.values)}
        by_text = {str(value): number for value, number in by_value.items()}
        for name, weight in class_weight.items():
            # On the command line a class is text; floats may be numbers of classes.
            number = by_text.get(str(name), by_value.get(_as_read(name)))
            if number is None:
                raise ValueError(
                    f"class_weight names {checks.shown(name)}, but the classes are "
                    f"{checks.listed(map(repr, by_text))}. Name some of these."
                )
            if number in names:
                raise ValueError(
                    f"class_weight names the class {checks.shown(self.values[number])} "
                    f"twice, {checks.shown(names[number])} and {checks.shown(name)}. "
                    "Leave one of them."
                )
            names[number], weights[number] = name, weight
        return dataclasses.replace(self, weights=weights)

    def encode(self, labels: np.ndarray, where: str) -> np.ndarray:
        """Returns the numbers of classes, `int32`."""
        return class_numbers.number_labels(labels, self._numbers, where)

    @functools.cached_property
    def _numbers(self) -> range | Mapping[Any, int]:
        """The numbers of the classes, made once for all clients."""
        if isinstance(self.values, range):
            return self.values
        return {value: number for number, value in enumerate(self.values)}

    def check_outputs(self, shape: tuple[int | None, ...]) -> None:
        """Raises unless there is an output for each class."""
        if len(shape) != 2 or (shape[1] or self.outputs) < self.outputs:
            raise ValueError(
                "build_keras_model builds a net whose outputs have the shape "
                f"{shape}, but the labels name {self.outputs} classes, from 0 to "
                f"{self.outputs - 1}. Give it an output for each: (None, "
                f"{self.outputs})."
            )

    def check_activation(self, found: LastActivation) -> None:
        """Raises if the loss would take what an activation made for what it takes."""
        if not found.is_undone:
            raise ValueError(
                f"build_keras_model builds a net whose outputs come from {found.name}, "
                "with something after it, and the loss takes outputs without an "
                f"activation. Leave {found.name} out: accuracy stays the same."
            )

    def model_fn(
        self, build_keras_model: Callable[[], Any], input_spec: Any
    ) -> definitions.ModelFn:
        """Returns a model function with cross-entropy and accuracy."""
        return classification.build_model_fn(
            build_keras_model, input_spec, self.weights
        )

    def __str__(self) -> str:
        return f"{len(self.values):,} classes"


@dataclasses.dataclass(frozen=True)
class Number:
    """A number, by the squared error."""

    outputs = 1
    accuracy_metric = regression.HEADLINE
    higher_is_better = False

    @property
    def options(self) -> Mapping[str, Any]:
        """The target, which has no classes."""
        return {"target": NUMBER, "classes": (), "class_weight": None}

    def weighted(self, class_weight: Mapping[Any, float] | None) -> Number:
        """Returns the number, which has no classes to weigh."""
        if class_weight is not None:
            raise ValueError(
                f"class_weight is {checks.shown(class_weight)}, but a number is "
                "predicted. Leave it out, or give target='class'."
            )
        return self

    def encode(self, labels: np.ndarray, where: str) -> np.ndarray:
        """Returns the numbers as `float32`, in which an integer has to be itself."""
        return example_checks.to_float32(_as_numbers(labels, where), where)

    def check_outputs(self, shape: tuple[int | None, ...]) -> None:
        """Raises unless there is one output."""
        if len(shape) > 2 or any(size not in (None, 1) for size in shape[1:]):
            raise ValueError(
                "build_keras_model builds a net whose outputs have the shape "
                f"{shape}, but a number is predicted. Give it one output, (None, 1), "
                f"or target={CLASS!r} if the labels are classes."
            )

    def check_activation(self, found: LastActivation) -> None:
        """Raises if all numbers that are predicted would be 1."""
        if found.name == "softmax":
            raise ValueError(
                "build_keras_model builds a net whose one output comes from softmax, "
                "and that is always 1. Leave it out, or give "
                f"target={CLASS!r} if the labels are classes."
            )

    def model_fn(
        self, build_keras_model: Callable[[], Any], input_spec: Any
    ) -> definitions.ModelFn:
        """Returns a model function with the squared error and the absolute one."""
        return regression.build_model_fn(build_keras_model, input_spec)

    def __str__(self) -> str:
        return "a number to predict"


def check_target(target: Any, num_classes: Any) -> None:
    """Raises unless two arguments can say what is predicted.

    Args:
      target: The argument; `None` leaves it to the labels.
      num_classes: The argument; `None` too.

    Raises:
      TypeError: If `num_classes` is not an integer.
      ValueError: If a value is none of those allowed, or classes of numbers are asked
        for.
    """
    known = isinstance(target, str) and target in (CLASS, NUMBER)
    if target is not None and not known:
        raise ValueError(
            f"target must be {CLASS!r} or {NUMBER!r}, found {checks.shown(target)}: it "
            "says what kind of thing is predicted. Name the column by label, or leave "
            "target out to go by the labels."
        )
    class_numbers.check_num_classes(num_classes)
    if target == NUMBER and num_classes is not None:
        raise ValueError(
            f"num_classes is {checks.shown(num_classes)}, but target={NUMBER!r} has no "
            "classes. Leave one of them out."
        )


def find_target(
    target: str | None,
    num_classes: int | None,
    labels: Sequence[class_numbers.LabelsAt],
    num_examples: int,
) -> Target:
    """Returns what is predicted, by the user's word or by the labels.

    Args:
      target: What the user says; `None` if it is to follow from the labels: numbers
        with fractions are numbers, all others name classes.
      num_classes: The number of classes; `None` takes as many as the labels need.
      labels: The clients' distinct labels, as for `class_numbers.find_classes`.
      num_examples: The number of all examples.

    Raises:
      DataError: If labels are not of the kind wanted, or nobody can say of which they
        are.
    """
    if target is None and num_classes is None:
        class_numbers.check_one_kind(labels)
        if any(_has_fraction(values) for _, values in labels):
            return Number()
        _check_few_classes(labels, num_examples)
    if target == NUMBER:
        return Number()
    return Classes(class_numbers.find_classes(labels, num_classes))


def _has_fraction(labels: np.ndarray) -> bool:
    if labels.dtype.kind == "f":
        finite = labels[np.isfinite(labels)]
        return bool((finite != np.floor(finite)).any())
    return labels.dtype == object and any(
        isinstance(label, numbers.Number) and class_numbers.has_fraction(label)
        for label in labels.tolist()
    )


def _check_few_classes(
    labels: Sequence[class_numbers.LabelsAt], num_examples: int
) -> None:
    """Raises if most examples would be of a class of their own."""
    most = max(_MANY_CLASSES, num_examples // _EXAMPLES_PER_CLASS)
    found: set[Any] = set()
    for where, values in labels:
        found.update(values.tolist())
        if len(found) > most:
            raise example_checks.DataError(
                f"{where}: the labels of {num_examples:,} examples have more than "
                f"{most:,} different values, such as {checks.shown(values.tolist()[0])}"
                f": these may be numbers, or codes. Give target={NUMBER!r} "
                f"(--task=own_numbers) to predict a number, or target={CLASS!r} "
                "(--num_classes) if each is a class."
            )


def _as_numbers(labels: np.ndarray, where: str) -> np.ndarray:
    if labels.dtype.kind == "f":
        return labels
    if labels.dtype.kind in "iu":
        _check_unchanged(casts.changed_values(labels, tf.float32), labels, where)
        return labels
    values = labels.tolist()
    wrong = [example for example, label in enumerate(values) if not _is_number(label)]
    if wrong:
        # One word makes texts of all numbers of its column in a file.
        words = (example for example in wrong if not _reads_as_number(values[example]))
        example = next(words, wrong[0])
        raise example_checks.DataError(
            f"{where}, example {example}: found the label "
            f"{checks.shown(values[example])}, which is no number. {NUMBER_REMEDY}"
        )
    _check_unchanged(np.array([_changes(label) for label in values]), labels, where)
    return labels.astype(np.float64)


def _check_unchanged(
    changed: np.ndarray | None, labels: np.ndarray, where: str
) -> None:
    """Raises if an integer is another one in `float32`."""
    if changed is not None and changed.any():
        example = int(np.argmax(changed))
        raise example_checks.DataError(
            f"{where}, example {example}: found the label {labels[example]}, which is "
            "another integer in float32, and a model predicts that. Divide the labels, "
            "or subtract what all have; or write them as floats if their last digits "
            "do not matter."
        )


@np.errstate(over="ignore")
def _changes(label: Any) -> bool:
    """Whether an object is an integer that `float32` lacks."""
    try:
        return isinstance(label, numbers.Integral) and int(np.float32(label)) != label
    except OverflowError:
        return True


def _as_read(name: Any) -> Any:
    """Returns the number that a text reads as, anything else as it is."""
    return float(name) if _reads_as_number(name) else name


def _is_number(label: Any) -> bool:
    return isinstance(label, numbers.Number) and not isinstance(label, (bool, complex))


def _reads_as_number(label: Any) -> bool:
    if not isinstance(label, str):
        return False
    try:
        float(label)
    except ValueError:
        return False
    return True
