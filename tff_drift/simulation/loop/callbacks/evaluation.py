"""Evaluation every few rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tff_drift import checks, signatures
from tff_drift.simulation.evaluation.client_evaluation import Evaluation
from tff_drift.simulation.loop.callbacks.base import Callback, TrainingRun
from tff_drift.simulation.records import metrics

_PREFIX = "final_train_"
# `run, server state -> model weights`.
Model = Callable[[TrainingRun, Any], Any]


class _Evaluation(Callback):
    """Evaluates a model at some rounds; the arguments are `PeriodicEvaluation`'s."""

    def __init__(self, evaluation: Evaluation, model: Model | None) -> None:
        what = "a function of the model weights, as build_evaluation returns"
        checks.check_callable("evaluation", evaluation, what)
        if model is not None:
            what = "a function of a run and a server state"
            checks.check_callable("model", model, what)
        self._evaluation, self._model = evaluation, model

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings on which metrics depend, as far as they are known."""
        settings: dict[str, Any] = {}
        model = self._model
        if model is not None:
            # Of an object or a partial function, the name is that of its class.
            name = getattr(model, "__qualname__", type(model).__qualname__)
            settings["model"] = getattr(model, "settings", name)
        of_evaluation = getattr(self._evaluation, "settings", None)
        if of_evaluation is not None:
            settings["evaluation"] = dict(of_evaluation)
        return settings

    def before_training(self, run: TrainingRun) -> metrics.MetricsRecord | None:
        """Remembers the run."""
        self._run = run
        return None

    def _columns(self, state: Any, prefix: str) -> metrics.MetricsRecord:
        """Returns the metrics of a state, under names that begin with a prefix."""
        if self._model is None:
            weights = self._run.process.get_model_weights(state)
        else:
            weights = self._model(self._run, state)
        found: Any = self._evaluation(weights)
        what = "a mapping of metrics by name, such as {'accuracy': 0.5}"
        checks.check_instance("what evaluation returns", found, Mapping, what)
        columns = metrics.columns_of("evaluation", found)
        return {prefix + name: value for name, value in columns.items()}


class PeriodicEvaluation(_Evaluation):
    """Evaluates the model before the first round, every few rounds, and in the last.

    The columns are `test_<name>` for each metric, and `seconds_evaluation`. A run may
    have several such callbacks, whose metrics differ in their names: their times are
    added up.
    """

    @signatures.suggesting_names(every="rounds_per_evaluation")
    def __init__(
        self,
        evaluation: Evaluation,
        *,
        rounds_per_evaluation: int = 10,
        model: Model | None = None,
    ) -> None:
        """Initializes the callback.

        Args:
          evaluation: A function of the model weights, as `process.get_model_weights`
            gives them, that returns metrics by name, such as
            `tff_drift.simulation.build_evaluation` returns.
          rounds_per_evaluation: The rounds from one evaluation to the next. The
            initial model and that of the last of `rounds` are always evaluated. Where
            a callback or a signal stops a run before, its model is not, unless it is
            time: a run that goes on later has the rows of one that never stopped.
          model: Returns the weights to evaluate, given the run and a server state; by
            default what `run.process.get_model_weights` gives. A run that is resumed
            knows it by its attribute `settings`, JSON values, or else by its name: that
            of a lambda or of a `functools.partial` says little.

        Raises:
          TypeError: If `evaluation` or `model` is not a function, or
            `rounds_per_evaluation` not an integer.
          ValueError: If `rounds_per_evaluation` is below 1.
        """
        super().__init__(evaluation, model)
        checks.check_integer("rounds_per_evaluation", rounds_per_evaluation)
        self._every = int(rounds_per_evaluation)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The rounds from one evaluation to the next, and what is evaluated on what."""
        return {"rounds_per_evaluation": self._every, **super().settings}

    def before_training(self, run: TrainingRun) -> metrics.MetricsRecord | None:
        """Evaluates the initial model, if the run begins."""
        super().before_training(run)
        return self._evaluate(run.state) if run.rounds_completed == 0 else None

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> metrics.MetricsRecord | None:
        """Evaluates the model, if it is time."""
        del row
        is_due = round_number % self._every == 0 or round_number == self._run.rounds
        return self._evaluate(state) if is_due else None

    def _evaluate(self, state: Any) -> metrics.MetricsRecord:
        start = time.perf_counter()
        columns = self._columns(state, metrics.TEST_PREFIX)
        columns[metrics.SECONDS_EVALUATION] = metrics.seconds_since(start)
        return columns


class FinalEvaluation(_Evaluation):
    """Evaluates the model once, after the last round, on clients of your choice.

    Charles et al. (2021), On Large-Cohort Training for Federated Learning,
    https://arxiv.org/abs/2106.07820, set the accuracy of the final model on the
    training clients beside that on the test clients (Figure 5): what a round's
    training metrics say is of its cohort alone, and of models that move.

    The columns are `<prefix><name>` for each metric, in the row of the last of the
    `rounds` of the run. A run that a callback or a signal stops before has none.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        prefix: str = _PREFIX,
        model: Model | None = None,
    ) -> None:
        """Initializes the callback.

        Args:
          evaluation: As for `PeriodicEvaluation`.
          prefix: What the columns' names begin with.
          model: As for `PeriodicEvaluation`.

        Raises:
          TypeError: If an argument has the wrong type.
        """
        super().__init__(evaluation, model)
        checks.check_instance("prefix", prefix, str, "a string")
        self._prefix = prefix

    @property
    def settings(self) -> Mapping[str, Any]:
        """Those of the evaluation, and the prefix unless it is the usual one."""
        found = super().settings
        # Runs of earlier versions, which did not keep it, mostly have the usual one.
        return found if self._prefix == _PREFIX else {"prefix": self._prefix, **found}

    def after_round(
        self, round_number: int, state: Any, row: Mapping[str, Any]
    ) -> metrics.MetricsRecord | None:
        """Evaluates the model, if the round is the last one."""
        del row
        is_last = round_number == self._run.rounds
        return self._columns(state, self._prefix) if is_last else None
