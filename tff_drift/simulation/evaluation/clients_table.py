"""A model on each client, before and after it is trained there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import tree
from absl import logging

from tff_drift import checks, signatures
from tff_drift.models import ModelFn
from tff_drift.simulation.data import label_errors, not_finite
from tff_drift.simulation.data.client_datasets import ClientDatasets
from tff_drift.simulation.evaluation.local_training import LocalTraining
from tff_drift.simulation.evaluation.model_evaluator import ModelEvaluator
from tff_drift.simulation.evaluation.sessions import in_parallel

if TYPE_CHECKING:
    import matplotlib.axes

BEFORE, AFTER = "_before", "_after"
# What models count of themselves.
_COUNTS = ("num_examples", "num_batches")


@signatures.suggesting_names(
    test_data="test",
    train_data="train",
    clients="test",
    client_learning_rate="client_optimizer_fn",
    learning_rate="client_optimizer_fn",
)
def evaluate_clients(
    model_fn: ModelFn,
    model_weights: Any,
    test: ClientDatasets,
    *,
    train: ClientDatasets | None = None,
    client_optimizer_fn: Any = None,
    batch_size: int = 256,
) -> pd.DataFrame:
    """Evaluates a model on each client, before and after local training there.

    This is personalization by fine-tuning: each client trains the same global model on
    its own examples, as in one round of FedAvg, and keeps what comes out, the moving
    averages of BatchNormalization among it. Wang et al.
    (2019), Federated Evaluation of On-device Personalization,
    https://arxiv.org/abs/1910.10252, measure what each client gains by it.

    Local training runs under the execution context that is set, client after client.

    Args:
      model_fn: A function that builds a `tff.learning.models.VariableModel`, or a
        `tff.learning.models.FunctionalModel`.
      model_weights: The global model, such as `TrainingResult.model_weights`.
      test: The clients and the examples that they are evaluated on.
      train: The examples that the same clients train on, in its batches and epochs;
        they should have none in common with those of `test`. `None`, the default,
        evaluates before training only.
      client_optimizer_fn: The optimizer of the local training, or its learning rate;
        needed with `train`.
      batch_size: The number of examples in a batch of the evaluation; it changes speed
        alone, up to the rounding of sums.

    Returns:
      A table with a row for each client of `test`, in their order, by `client`:
      `examples`, what it was evaluated on; `<metric>_before` for each of the model's
      metrics; and, with `train`, `trained_examples`, its examples of one epoch, and
      `<metric>_after`. A client whose training diverges, so that its weights are not
      finite, keeps the global model, as in FedAvg; a warning names such clients, and
      those on whose examples of `test` the sums of a finite global model are not.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If a client of `test` is not in `train`, `train` is given without
        `client_optimizer_fn` or the other way round, a number is out of its range, the
        weights or the examples are not those of the model, or a metric of the model is
        no number, as `tf.keras.metrics.Precision([0.3, 0.7])` is not.
    """
    checks.check_instance("test", test, ClientDatasets)
    checks.check_integer("batch_size", batch_size)
    _check_training(test, train, client_optimizer_fn)
    evaluator = ModelEvaluator(model_fn, test.element_spec)
    clients = test.fitting("test", evaluator.input_spec)
    names = [name for name in evaluator.metric_names if name not in _COUNTS]

    broken: set[str] = set()

    def measure(client_id: str, suffix: str) -> dict[str, float]:
        batches = clients.evaluation_batches(client_id, batch_size)
        with label_errors.naming_bad_labels(clients, [client_id]):
            unfinalized = evaluator.unfinalized_metrics(batches)
        if not not_finite.is_finite(unfinalized):
            broken.add(client_id)
        found = evaluator.finalize(unfinalized, names)
        return {f"{name}{suffix}": _number(name, found[name]) for name in names}

    rows: dict[str, dict[str, Any]] = {}
    evaluator.assign(model_weights)
    before = in_parallel(lambda each: measure(each, BEFORE), test.client_ids)
    for client_id, measured in zip(test.client_ids, before, strict=True):
        rows[client_id] = {"examples": test.num_examples(client_id), **measured}
    if broken and not_finite.is_finite(tree.flatten(model_weights)):
        in_order = [each for each in rows if each in broken]
        not_finite.warn_of_sums(clients, in_order, len(rows))
    if train is not None:
        personalize = LocalTraining(model_fn, model_weights, train, client_optimizer_fn)
        diverged: list[str] = []
        for client_id, row in rows.items():
            row["trained_examples"] = train.num_examples(client_id)
            personal_weights, is_finite = personalize(client_id)
            evaluator.assign(personal_weights)
            row.update(measure(client_id, AFTER))
            if not is_finite:
                diverged.append(client_id)
        _warn_of_diverged(train, diverged)
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "client"
    return table


def _number(name: str, value: Any) -> float:
    """Returns a metric, if it is a number."""
    # An F1 score of two classes is an array of one.
    if not isinstance(value, (np.generic, np.ndarray)) or np.size(value) != 1:
        shape = f"of shape {value.shape}" if isinstance(value, np.ndarray) else "nested"
        raise ValueError(
            f"model_fn has the metric {checks.shown(name)}, which is {shape}, and no "
            "number. Build the model without it, or with a metric for each number."
        )
    return float(np.asarray(value).item())


def _check_training(
    test: ClientDatasets, train: ClientDatasets | None, client_optimizer_fn: Any
) -> None:
    if (train is None) != (client_optimizer_fn is None):
        lacks = "train" if train is None else "client_optimizer_fn"
        raise ValueError(
            f"{lacks} is None. Give train and client_optimizer_fn to train on each "
            "client, neither to evaluate the model as it is."
        )
    if train is None:
        return
    checks.check_instance("train", train, ClientDatasets)
    known = set(train.client_ids)
    missing = [client for client in test.client_ids if client not in known]
    if missing:
        raise ValueError(
            f"train lacks {len(missing)} clients of test, such as "
            f"{checks.shown(missing[0])}. Give test.subset(train.client_ids)."
        )


def _warn_of_diverged(train: ClientDatasets, client_ids: Sequence[str]) -> None:
    if client_ids:
        logging.warning(
            "The local training of %d clients, such as %s, diverged: they keep the "
            "global model. %s.",
            len(client_ids),
            checks.shown(client_ids[0]),
            not_finite.remedy(train, client_ids, "Take a smaller client_optimizer_fn"),
        )


def plot_clients(
    table: pd.DataFrame, metric: str = "accuracy", ax: Any = None
) -> matplotlib.axes.Axes:
    """Draws a metric of each client after local training against that before it.

    A point is a client. On the line nothing has changed; above it the metric is higher
    after local training.

    Args:
      table: What `evaluate_clients` returned, with `train`.
      metric: The metric's name.
      ax: The `matplotlib.axes.Axes` to draw into; by default new ones.

    Returns:
      The axes.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If it lacks the metric before or after training.
    """
    checks.check_instance("table", table, pd.DataFrame)
    checks.check_text("metric", metric)
    if ax is not None and not hasattr(ax, "scatter"):
        raise TypeError(f"ax must be a matplotlib.axes.Axes, found {checks.shown(ax)}.")
    for name in (metric + BEFORE, metric + AFTER):
        if name not in table:
            raise ValueError(
                f"table has no column {checks.shown(name)}, but {checks.listed(table)}."
                " Name another metric, or give evaluate_clients `train`."
            )
    if ax is None:
        # Slow to import, and of no use to programs that draw nothing.
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=(4.5, 4.5)).subplots()
    before, after = table[metric + BEFORE], table[metric + AFTER]
    values = [value for value in (*before, *after) if math.isfinite(value)]
    ends = [min(values, default=0.0), max(values, default=1.0)]
    ax.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
    ax.scatter(before, after, s=20, alpha=0.6)
    title = f"{len(table)} clients, {(after > before).mean():.0%} above the line"
    across, up = (f"{metric} {when} local training" for when in ("before", "after"))
    ax.set(xlabel=across, ylabel=up, title=title)
    return ax
