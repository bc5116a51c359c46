"""Metrics as functions of their states, which are sums that clients add up."""

from __future__ import annotations

import abc
import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift import checks
from tff_drift.models import metric_labels, metric_names
from tff_drift.models.example_weights import as_argument
from tff_drift.models.keras_internals import class_name, may_be_automatic
from tff_drift.models.outputs import by_output, named_outputs, weights_by_output
from tff_drift.models.stateless import import_keras3, where_made
from tff_drift.tensors import eagerly

_METRICS = (
    "a list of metrics of Keras 3, such as keras.metrics.SparseCategoricalAccuracy(), "
    "or of functions that return one, or for several outputs a mapping from their "
    "names to such lists"
)


class Seen(NamedTuple):
    """The inputs of a metric for a batch.

    Attributes:
      labels: The labels.
      predictions: What the model returns.
      loss: The loss of the batch, without the losses that layers add.
      num_examples: Scalar `int64`.
      weights: The weights of the examples, or `None`.
    """

    labels: Any
    predictions: Any
    loss: tf.Tensor
    num_examples: tf.Tensor
    weights: Any = None


class MetricState(abc.ABC):
    """A metric whose state is a tuple of tensors.

    Attributes:
      name: The name under which it is reported.
    """

    name: str

    @abc.abstractmethod
    def initial(self) -> Sequence[Any]:
        """Returns the state of a metric that has seen nothing."""

    @abc.abstractmethod
    def update(self, state: Sequence[tf.Tensor], seen: Seen) -> Sequence[Any]:
        """Returns the state after a batch."""

    @abc.abstractmethod
    def result(self, state: Sequence[tf.Tensor]) -> Any:
        """Returns the metric's value."""


class _MeanLoss(MetricState):
    """The mean loss over examples."""

    name = "loss"

    def initial(self) -> Sequence[Any]:
        return [tf.zeros([]), tf.zeros([])]

    def update(self, state: Sequence[tf.Tensor], seen: Seen) -> Sequence[Any]:
        weight = tf.cast(seen.num_examples, tf.float32)
        return [state[0] + tf.cast(seen.loss, tf.float32) * weight, state[1] + weight]

    def result(self, state: Sequence[tf.Tensor]) -> Any:
        return tf.math.divide_no_nan(state[0], state[1])


class _Count(MetricState):
    """The number of examples or of batches."""

    def __init__(self, name: str, of_batch: Callable[[Seen], Any]) -> None:
        self.name, self._of_batch = name, of_batch

    def initial(self) -> Sequence[Any]:
        return [tf.zeros([], tf.int64)]

    def update(self, state: Sequence[tf.Tensor], seen: Seen) -> Sequence[Any]:
        return [state[0] + self._of_batch(seen)]

    def result(self, state: Sequence[tf.Tensor]) -> Any:
        return state[0]


class _KerasMetric(MetricState):
    """A `keras.Metric`, of all outputs or of one."""

    def __init__(
        self,
        name: str,
        metric: Any,
        output: str | None,
        names: Sequence[str],
        is_weighted: bool,
    ) -> None:
        self.name = name if output is None else f"{output}_{name}"
        self.metric, self._output, self._names = metric, output, names
        self._is_weighted = is_weighted

    @property
    def argument(self) -> str:
        """The argument that has the metric."""
        return "weighted_metrics" if self._is_weighted else "metrics"

    def arguments(self, labels: Any, predictions: Any) -> tuple[Any, Any]:
        if self._output is None:
            return labels, predictions
        outputs = named_outputs(predictions, self._names)
        labels = by_output("the labels of input_spec", labels, outputs)
        return labels[self._output], outputs[self._output]

    def initial(self) -> Sequence[Any]:
        return self.metric.stateless_reset_state()

    def update(self, state: Sequence[tf.Tensor], seen: Seen) -> Sequence[Any]:
        arguments = self.arguments(seen.labels, seen.predictions)
        weights = as_argument(self._weights_of(seen))
        return self.metric.stateless_update_state(list(state), *arguments, **weights)

    def _weights_of(self, seen: Seen) -> Any:
        if not self._is_weighted or self._output is None:
            return seen.weights if self._is_weighted else None
        outputs = named_outputs(seen.predictions, self._names)
        return weights_by_output(seen.weights, outputs)[self._output]

    def result(self, state: Sequence[tf.Tensor]) -> Any:
        mapping = list(zip(self.metric.variables, state, strict=True))
        with import_keras3().StatelessScope(state_mapping=mapping):
            # A variable, which some metrics return, has its value in the scope alone.
            return tf.nest.map_structure(tf.convert_to_tensor, self.metric.result())


def build_metric_states(
    metrics: Any,
    weighted_metrics: Any,
    label_spec: Any,
    output_spec: Callable[[], Any],
    output_names: Sequence[str],
) -> list[MetricState]:
    """Builds what a model reports: the metrics given, `loss` and counts.

    Args:
      metrics: See `from_keras3`.
      weighted_metrics: See `from_keras3`.
      label_spec: The `tf.TensorSpec` structure of the labels.
      output_spec: Returns the outputs' specifications, as the model returns them.
      output_names: What the model calls the outputs of a sequence.

    Returns:
      The metrics; `loss`, `num_examples` and `num_batches` are the last ones.

    Raises:
      TypeError: If a metric is not one of Keras 3.
      ValueError: If two metrics have one name, one has none that TFF takes or that of
        a count which it is not, a name may be Keras' or the user's and that makes a
        difference, or the keys of a mapping are not outputs.
    """
    flat = [
        (output, _made(metric), is_weighted)
        for part, is_weighted in ((metrics, False), (weighted_metrics, True))
        for output, metric in _flat(part, output_spec, output_names)
    ]
    names = _names([(output, metric) for output, metric, _ in flat])
    states = [
        _KerasMetric(name, metric, output, output_names, is_weighted)
        for name, (output, metric, is_weighted) in zip(names, flat, strict=True)
    ]
    metric_names.check_are_names(state.name for state in states)
    for state in states:
        # Some metrics make their variables, or all but one, at their first update.
        if not state.metric.variables or not getattr(state.metric, "_built", True):
            _make_variables(state, label_spec, output_spec())
    of_keras = {state.name: state.metric for state in states}
    names = [*(state.name for state in states), _MeanLoss.name]
    metric_names.check_names(names, of_keras)
    defaults = [
        _Count("num_examples", lambda seen: seen.num_examples),
        _Count("num_batches", lambda seen: 1),
    ]
    counts = [each for each in defaults if each.name not in names]
    return [*states, _MeanLoss(), *counts]


def check_counts(
    states: Sequence[MetricState], label_spec: Any, output_spec: Callable[[], Any]
) -> None:
    """Raises if a metric of Keras cannot count the labels.

    Args:
      states: What `build_metric_states` returned.
      label_spec: The `tf.TensorSpec` structure of the labels.
      output_spec: Returns the outputs' specifications, as the model returns them.

    Raises:
      ValueError: If one cannot; the message names it.
    """
    of_keras = [state for state in states if isinstance(state, _KerasMetric)]
    if not of_keras:
        return
    outputs = output_spec()
    for state in of_keras:
        metric_labels.check_counts(
            state.argument,
            state.metric,
            *state.arguments(label_spec, outputs),
            functools.partial(
                state.metric.stateless_update_state,
                state.metric.stateless_reset_state(),
            ),
        )


def _flat(
    metrics: Any, output_spec: Callable[[], Any], output_names: Sequence[str]
) -> list[tuple[str | None, Any]]:
    """Returns pairs of an output, or `None` for all, and a metric or its maker."""
    if metrics is None:
        return []
    if isinstance(metrics, (list, tuple)):
        return [(None, metric) for metric in metrics]
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be {_METRICS}, found {checks.shown(metrics)}.")
    outputs = named_outputs(output_spec(), output_names)
    unknown = [name for name in metrics if name not in outputs]
    if unknown:
        raise ValueError(
            f"metrics has {checks.shown(unknown[0])}, which is not an output of the "
            f"model; these are {checks.listed(map(repr, outputs))}."
        )
    return [
        (output, metric)
        for output, some in metrics.items()
        for metric in (some if isinstance(some, (list, tuple)) else [some])
    ]


def _names(metrics: Sequence[tuple[str | None, Any]]) -> list[str]:
    """Returns metrics' names, with numbers of their own in place of those of Keras.

    Keras numbers metrics without a name of their own through the whole process. A model
    function may make them, which is called several times, and has to give the same
    names each time.

    Args:
      metrics: Pairs of an output and a metric.

    Raises:
      ValueError: If a metric would get the name that another one has.
    """
    counts: collections.Counter[tuple[str | None, str]] = collections.Counter()
    names = []
    for output, metric in metrics:
        name = metric.name
        kind = class_name(metric)
        if may_be_automatic(name, kind):
            number = counts[output, kind]
            counts[output, kind] += 1
            name = f"{kind}_{number}" if number else kind
        names.append(name)
    for (output, metric), name in zip(metrics, names, strict=True):
        if name == metric.name:
            continue
        own = [other.name for of, other in metrics if of == output]
        kind, of_class = class_name(metric), type(metric).__name__
        is_twice = metric.name != kind and own.count(metric.name) > 1
        if name in own or is_twice:
            raise ValueError(
                f"metrics has names that Keras may have made, or you: {own}. Give each "
                f"{of_class} a name other than {checks.shown(kind)} and a number, such "
                f"as keras.metrics.{of_class}(name='first')."
            )
    return names


def _made(metric: Any) -> Any:
    keras = import_keras3()
    if isinstance(metric, keras.Metric):
        return metric
    made = metric
    if callable(metric) and not isinstance(metric, tf.keras.metrics.Metric):
        # The metric's own variables are never used: none of them in TFF's graphs.
        made = eagerly(metric)
        if isinstance(made, keras.Metric):
            return made
    raise TypeError(f"metrics must be {_METRICS}, found {checks.shown(made)}.")


def _make_variables(state: _KerasMetric, label_spec: Any, output_spec: Any) -> None:
    """Makes a metric create its variables."""

    def update() -> None:
        labels, predictions = metric_labels.zeros_of((label_spec, output_spec))
        state.metric.update_state(*state.arguments(labels, predictions))
        state.metric.reset_state()

    try:
        where_made(state.metric.variables, update)
    except (TypeError, ValueError) as error:
        specs = state.arguments(label_spec, output_spec)
        if metric_labels.is_checked(state.metric, *specs):
            raise metric_labels.misfit(state.argument, state.metric, *specs) from error
        raise
