"""Tasks, once they are loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow_federated as tff

from tff_drift import checks, summaries
from tff_drift.simulation import ClientDatasets, build_evaluation, callbacks

ModelFn = Callable[[], tff.learning.models.VariableModel]

# Of an option that has many values, such as the classes.
_MOST_SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Task:
    """Clients, a model, a loss and metrics: all that an algorithm needs.

    Attributes:
      name: The task's name in `tasks.names()`.
      description: One sentence on the data and the model.
      train: The clients' training examples.
      test: Examples held out, split over clients too.
      validation: Training examples of clients that do not train, to choose learning
        rates by; `None` if the task has none. Where clients have test examples of
        their own, theirs stay in `test`.
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

    def __repr__(self) -> str:
        return summaries.text(*self._summary())

    def _repr_html_(self) -> str:
        return summaries.html(*self._summary())

    def _summary(self) -> tuple[str, dict[str, str]]:
        """Returns a title, and a description of the task by field."""
        which = "higher" if self.higher_is_better else "lower"
        parts = {"train": self.train, "test": self.test, "validation": self.validation}
        clients = {
            name: f"{len(part):,} clients, {checks.shown(part.client_ids[0])} to "
            f"{checks.shown(part.client_ids[-1])}"
            for name, part in parts.items()
            if part is not None
        }
        options = (f"{name}={_shown(value)}" for name, value in self.options.items())
        fields = {
            "about": self.description,
            **clients,
            "metric": f"{self.accuracy_metric}, {which} is better",
            "seed": str(self.seed),
            "options": ", ".join(options),
        }
        return f"Task {checks.shown(self.name)}", fields

    def evaluation(
        self, *, rounds_per_evaluation: int = 10, max_clients: int | None = None
    ) -> callbacks.PeriodicEvaluation:
        """Returns the callback that evaluates a run on the test clients.

        Args:
          rounds_per_evaluation: As in
            `tff_drift.simulation.callbacks.PeriodicEvaluation`.
          max_clients: As in `tff_drift.simulation.build_evaluation`.

        Raises:
          TypeError: If a number is not an integer.
          ValueError: If a number is below 1.
        """
        # Before the evaluation is built, which takes seconds.
        checks.check_integer("rounds_per_evaluation", rounds_per_evaluation)
        evaluate = build_evaluation(
            self.model_fn,
            self.test,
            accuracy_metric=self.accuracy_metric,
            max_clients=max_clients,
            seed=self.seed,
        )
        return callbacks.PeriodicEvaluation(
            evaluate, rounds_per_evaluation=rounds_per_evaluation
        )


def _shown(value: Any) -> str:
    """Returns an option's value, and how many there are if it is many."""
    if isinstance(value, tuple) and len(value) > _MOST_SHOWN:
        first = ", ".join(map(checks.shown, value[:_MOST_SHOWN]))
        return f"({first}, ... of {len(value):,})"
    return checks.shown(value)


class Clients(NamedTuple):
    """The clients of a task.

    Attributes:
      train: The clients' training examples.
      test: Examples held out, split over clients too.
      validation: Training examples of clients that do not train, or `None`.
    """

    train: ClientDatasets
    test: ClientDatasets
    validation: ClientDatasets | None = None


def batching(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those options that are arguments of `ClientDatasets`."""
    names = ("batch_size", "epochs", "max_examples", "last_batch")
    return {name: options[name] for name in names if name in options}
