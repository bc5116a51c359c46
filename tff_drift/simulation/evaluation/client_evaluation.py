"""Evaluation of a model on test clients."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tree

from tff_drift import checks, signatures
from tff_drift.execution.round_runner import current_runner
from tff_drift.models import ModelFn
from tff_drift.simulation.data import label_errors, not_finite
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.data.sampling import build_uniform_sampling
from tff_drift.simulation.evaluation.model_evaluator import ModelEvaluator, added
from tff_drift.simulation.evaluation.sessions import in_parallel

PERCENTILES = (5, 25, 50, 75, 95)

# `model weights -> metrics by name`.
Evaluation = Callable[[Any], "collections.OrderedDict[str, Any]"]


def client_statistics(name: str, values: Sequence[float]) -> dict[str, float]:
    """Returns the mean and the percentiles of a metric over clients.

    Args:
      name: The metric's name.
      values: The metric of each client, at least one.

    Returns:
      `<name>_client_mean`, in which every client counts the same, and
      `<name>_client_p5` to `<name>_client_p95`, the percentiles 5, 25, 50, 75
      and 95 with linear interpolation.
    """
    clients = np.asarray(values, np.float64)
    percentiles = np.percentile(clients, PERCENTILES)
    return {
        f"{name}_client_mean": float(np.mean(clients)),
        **{
            f"{name}_client_p{percent}": float(value)
            for percent, value in zip(PERCENTILES, percentiles, strict=True)
        },
    }


class _Measurement:
    """Sums a model's metrics over the examples of each client.

    Attributes:
      evaluator: The model.
    """

    def __init__(self, model_fn: ModelFn, element_spec: Any, batch_size: int) -> None:
        self.evaluator = ModelEvaluator(model_fn, element_spec)
        self._batch_size = batch_size

    def __call__(
        self, clients: Iterable[tuple[ClientDatasets, str]], model_weights: Any
    ) -> Iterator[list[np.ndarray]]:
        """Yields the unfinalized metrics of each client, given with what has it."""
        self.evaluator.assign(model_weights)
        yield from in_parallel(self._measure, clients)

    def _measure(self, client: tuple[ClientDatasets, str]) -> list[np.ndarray]:
        datasets, client_id = client
        batches = datasets.evaluation_batches(client_id, self._batch_size)
        with label_errors.naming_bad_labels(datasets, [client_id]):
            return self.evaluator.unfinalized_metrics(batches)


def evaluated_clients(
    test: ClientDatasets, max_clients: int | None, seed: int
) -> ClientDatasets:
    """Returns the clients that `build_evaluation` evaluates on, given the same."""
    if max_clients is None:
        return test
    checks.check_integer("max_clients", max_clients)
    size = min(max_clients, len(test))
    return test.subset(build_uniform_sampling(test.client_ids, size, seed)(0))


@signatures.suggesting_names(test_data="test", metric="accuracy_metric")
def build_evaluation(
    model_fn: ModelFn,
    test: ClientDatasets,
    *,
    accuracy_metric: str | None = "auto",
    batch_size: int = 256,
    max_clients: int | None = None,
    seed: int = 0,
) -> Evaluation:
    """Builds the evaluation of a model on test clients.

    The metrics are the model's own, over the examples of all test clients (sums
    over clients, then finalized, as in federated evaluation), and the spread of
    the headline metric over clients, as in Figures 5 and 6 of Charles et al. (2021),
    On Large-Cohort Training for Federated Learning. https://arxiv.org/abs/2106.07820

    The model is built once and used with `training=False`. The evaluation runs in this
    process, of as many clients at a time as there are processors if the program has
    TensorFlow keep each operation to one thread; under the execution context on Ray,
    clients are evaluated where their data is, with the same metrics to the last bit. A
    warning names the clients whose metrics are not finite, once.

    Args:
      model_fn: A function that builds a `tff.learning.models.VariableModel`, or a
        `tff.learning.models.FunctionalModel`.
      test: The test clients.
      accuracy_metric: The model's headline metric, whose mean and percentiles
        over clients are reported; `None` reports none. "auto", the default, is the
        metric `accuracy` if the model has it as a number, otherwise none.
      batch_size: The number of examples in a batch; it changes speed alone, up
        to the rounding of sums.
      max_clients: Evaluate on this many test clients, sampled once; `None`, the
        default, evaluates on all.
      seed: The seed of that sample.

    Returns:
      A function of a `tff.learning.models.ModelWeights` of arrays that returns an
      `OrderedDict`: the model's metrics under their names, then
      `<accuracy_metric>_client_mean` and `<accuracy_metric>_client_p5`, `_p25`,
      `_p50`, `_p75` and `_p95`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `accuracy_metric` is not one of the model's metrics or is one that
        is no number, as `tf.keras.metrics.Precision([0.3, 0.7])` is not, or a number is
        out of its range.
    """
    checks.check_instance("test", test, ClientDatasets)
    checks.check_integer("batch_size", batch_size)
    evaluated = evaluated_clients(test, max_clients, seed)
    client_ids = evaluated.client_ids
    build = functools.partial(_Measurement, model_fn, test.element_spec, batch_size)
    measurement = build()
    evaluator = measurement.evaluator
    clients = test.fitting("test", evaluator.input_spec)
    if accuracy_metric == "auto":
        accuracy_metric = "accuracy" if "accuracy" in evaluator.number_names else None
    if accuracy_metric is not None:
        names = (*evaluator.number_names, None)
        checks.check_one_of("accuracy_metric", accuracy_metric, names)
    headline = () if accuracy_metric is None else (accuracy_metric,)

    def measure(model_weights: Any) -> Iterable[list[np.ndarray]]:
        # Weights of another model are refused here, before they are sent.
        evaluator.assign(model_weights)
        runner = current_runner()
        found = runner.map_clients(build, clients, client_ids, model_weights)
        if found is None:
            pairs = [(clients, each) for each in client_ids]
            return measurement(pairs, model_weights)
        return found

    has_told = False

    def tell(broken: Sequence[str], model_weights: Any) -> None:
        nonlocal has_told
        # Training reports a model that is not finite.
        if has_told or not not_finite.is_finite(tree.flatten(model_weights)):
            return
        has_told = True
        not_finite.warn_of_sums(clients, broken, len(client_ids))

    def evaluate(model_weights: Any) -> collections.OrderedDict[str, Any]:
        totals: list[np.ndarray] = []
        of_clients: list[float] = []
        broken: list[str] = []
        for client_id, unfinalized in zip(
            client_ids, measure(model_weights), strict=True
        ):
            if not not_finite.is_finite(unfinalized):
                broken.append(client_id)
            totals = added(totals, unfinalized)
            for value in evaluator.finalize(unfinalized, headline).values():
                of_clients.append(np.asarray(value).item())
        if broken:
            tell(broken, model_weights)
        metrics = collections.OrderedDict(evaluator.finalize(totals))
        for name in headline:
            metrics.update(client_statistics(name, of_clients))
        return metrics

    # What its metrics depend on, for callbacks.
    settings = {"accuracy_metric": accuracy_metric, **evaluated.digest()}
    evaluate.settings = settings  # type: ignore[attr-defined]
    return evaluate
