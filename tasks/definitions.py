"""What a task is, and what a task says about itself before it is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.simulation import ClientDatasets

ModelFn = Callable[[], tff.learning.models.VariableModel]

_REAL_CHECKS = {
    "positive": checks.check_positive,
    "non_negative": checks.check_non_negative,
    "rate": checks.check_decay,
}


@dataclasses.dataclass(frozen=True)
class Task:
    """Clients, a model, a loss and metrics: all that an algorithm needs.

    Attributes:
      name: The task's name in `tasks.names()`.
      description: One sentence on the data and the model.
      train: The clients' training examples.
      test: Examples held out, split over clients too.
      validation: Examples of clients that neither train nor test, to choose
        learning rates by; `None` if the task has none.
      model_fn: Builds the model with its loss and metrics, from scratch and with
        the same initial weights at every call.
      accuracy_metric: The name of the headline metric among the model's metrics.
      higher_is_better: Whether a larger headline metric is better.
      seed: The seed of partitions, shuffles, draws of clients and initial
        weights.
      options: Every option's value, defaults included.
    """

    name: str
    description: str
    train: ClientDatasets
    test: ClientDatasets
    validation: ClientDatasets | None
    model_fn: ModelFn
    accuracy_metric: str
    higher_is_better: bool
    seed: int
    options: Mapping[str, Any]


class Clients(NamedTuple):
    """The clients of a task.

    Attributes:
      train: The clients' training examples.
      test: Examples held out, split over clients too.
      validation: Examples of clients that neither train nor test, or `None`.
    """

    train: ClientDatasets
    test: ClientDatasets
    validation: ClientDatasets | None = None


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a task.

    Attributes:
      name: The keyword of `tasks.load`.
      kind: "count" (an integer of at least 1), "positive" (a finite number above
        0), "non_negative", "rate" (at least 0 and below 1), "flag" or "choice".
      default: The value if it is not given.
      help: One line on what it does.
      may_be_none: Whether `None` is a value too.
      choices: The values of the kind "choice".
    """

    name: str
    kind: str
    default: Any
    help: str
    may_be_none: bool = False
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> None:
        """Raises unless `value` is a value of this option.

        Args:
          value: The value to check.

        Raises:
          TypeError: If it has the wrong type.
          ValueError: If it is out of range.
        """
        if value is None and self.may_be_none:
            return
        if self.kind == "count":
            checks.check_integer(self.name, value)
        elif self.kind == "choice":
            checks.check_one_of(self.name, value, self.choices)
        elif self.kind == "flag":
            if not isinstance(value, bool):
                raise TypeError(f"{self.name} must be True or False, found {value!r}.")
        else:
            _REAL_CHECKS[self.kind](self.name, value)

    def parse(self, text: str) -> Any:
        """Returns the value that `text` spells, as on a command line.

        Args:
          text: For instance "20", "0.3", "true" or "none".

        Returns:
          The value, checked.

        Raises:
          ValueError: If `text` spells no value of this option.
        """
        lowered = text.strip().lower()
        if lowered == "none" and self.may_be_none:
            return None
        try:
            if self.kind == "choice":
                value: Any = lowered
            elif self.kind == "flag":
                value = {"true": True, "false": False}[lowered]
            elif self.kind == "count":
                value = int(lowered)
            else:
                value = float(lowered)
        except (KeyError, ValueError):
            wanted = {"flag": "true or false", "count": "an integer"}.get(
                self.kind, "a number"
            )
            raise ValueError(f"{self.name} must be {wanted}, found {text!r}.") from None
        self.check(value)
        return value


@dataclasses.dataclass(frozen=True)
class TaskDefinition:
    """A task before it is loaded.

    Attributes:
      name: The task's name.
      description: One sentence on the data and the model.
      options: The task's options, in the order to list them.
      build: Returns the clients and the model function, given `cache_dir`, `seed`
        and a mapping with the value of every option.
      accuracy_metric: The name of the headline metric among the model's metrics.
      higher_is_better: Whether a larger headline metric is better.
    """

    name: str
    description: str
    options: tuple[Option, ...]
    build: Callable[[str | None, int, Mapping[str, Any]], tuple[Clients, ModelFn]]
    accuracy_metric: str = "accuracy"
    higher_is_better: bool = True


def max_examples_option(default: int | None) -> Option:
    """Returns the option for the number of examples kept of a training client."""
    return Option(
        "max_examples",
        "count",
        default,
        "Keep only the first examples of a training client; none keeps all.",
        may_be_none=True,
    )


EPOCHS_OPTION = Option("epochs", "count", 1, "Passes over a client's data per round.")
BATCHING_OPTIONS = (EPOCHS_OPTION, max_examples_option(None))


def batch_size_option(default: int) -> Option:
    """Returns the option for the number of examples in a training batch."""
    return Option("batch_size", "count", default, "Examples in a training batch.")


def batching(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those options that are arguments of `ClientDatasets`."""
    return {name: options[name] for name in ("batch_size", "epochs", "max_examples")}
