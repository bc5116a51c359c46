"""Models of Keras 2 (`tf.keras`) as Keras' own `fit` trains them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks
from tff_drift.models import (
    example_weights,
    first_trace,
    keras2_arguments,
    keras2_labels,
    keras2_metrics,
    metric_labels,
    metric_names,
)
from tff_drift.models.constraints import check_unconstrained
from tff_drift.models.normalizations import normalizing_by_weights
from tff_drift.models.outputs import by_output, named_outputs, weights_by_output
from tff_drift.models.weight_places import HasKerasWeights

# The module of TFF's models around Keras 2 models.
_OF_TFF = tff.learning.models.from_keras_model.__module__
# What TFF has each model count.
_COUNTERS = (
    tff.learning.metrics.NumExamplesCounter,
    tff.learning.metrics.NumBatchesCounter,
)


def from_keras2(
    keras_model: tf.keras.Model,
    loss: Any,
    input_spec: Any,
    metrics: Any = None,
    *,
    loss_weights: Any = None,
    class_weight: Mapping[int, float] | None = None,
    weighted_metrics: Any = None,
) -> tff.learning.models.VariableModel:
    """Makes a model of TFF of a model of Keras 2, with weights of examples.

    `tff.learning.models.from_keras_model` with what Keras' `fit` has besides:

    ```python
    train = ClientDatasets.from_arrays({"ann": (x, y, sample_weight)}, batch_size=10)

    def model_fn():
        return tff_drift.models.from_keras2(
            build_keras_model(), loss, train.element_spec, class_weight={0: 1, 1: 20}
        )
    ```

    As in `fit`, the loss of an example is multiplied by its weight and the sum divided
    by the number of examples, not by the sum of the weights. `num_examples`, by which
    clients count in the mean, is the number of examples too.

    Args:
      keras_model: A functional or sequential `tf.keras.Model`. Whether and how it was
        compiled does not matter.
      loss: A `tf.keras.losses.Loss`, of several outputs that of each, or a list in
        their order or a mapping from their names. Outputs that are a mapping have no
        order.
      input_spec: The `tf.TensorSpec` structure of a batch, such as
        `train.element_spec`: `(x, y)`, or `(x, y, sample_weight)` with a weight for
        each example, or for each of its steps; or a mapping with these names, and
        perhaps `client_weight`, which is for a builder's `client_weighting`.
      metrics: A list of `tf.keras.metrics.Metric`s, or of functions that make one. As
        in `fit`, weights do not count in them.
      loss_weights: The weights of the outputs' losses, in their order or by name.
      class_weight: The weights of the examples of each class, in training alone, as in
        `fit`; classes that are left out weigh 1.
      weighted_metrics: As `metrics`, with the weights. One with the name of a metric in
        `metrics` is reported as `weighted_<name>`, as in `fit`.

    Returns:
      A `tff.learning.models.VariableModel`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If the arguments do not fit each other or the model, or the model has
        constraints of its trainable weights; the message says which.
    """
    for each in tf.nest.flatten([keras_model, loss, metrics, weighted_metrics]):
        if checks.is_of_keras3(each):
            raise keras2_arguments.keras3_refused("tff_drift.models.from_keras2", each)
    keras2_arguments.check_built("keras_model", keras_model)
    keras2_arguments.check_loss(loss)
    keras2_arguments.check_metrics("metrics", metrics)
    keras2_arguments.check_metrics("weighted_metrics", weighted_metrics)
    keras2_arguments.check_input_spec(input_spec)
    batch = example_weights.split(input_spec)
    example_weights.check_class_weight(class_weight, batch.labels)
    outputs = keras2_arguments.outputs_by_name(keras_model)
    if len(outputs) > 1 and isinstance(loss, tf.keras.losses.Loss):
        loss = dict.fromkeys(outputs, loss)
    if isinstance(loss, Mapping) or (outputs and isinstance(loss, list)):
        loss = list(by_output("loss", loss, outputs).values())
    if loss_weights is not None and not isinstance(loss, list):
        loss = [loss]
    if isinstance(loss_weights, Mapping) or (outputs and loss_weights is not None):
        loss_weights = by_output("loss_weights", loss_weights, outputs).values()
    if loss_weights is not None:
        loss_weights = [float(each) for each in loss_weights]
    weighted = list(weighted_metrics or ())
    given = [*(metrics or ()), *weighted]
    with keras2_arguments.taken_as_not_compiled(keras_model):
        wrapped = tff.learning.models.from_keras_model(
            keras_model,
            loss,
            (batch.inputs, batch.labels),
            loss_weights=loss_weights,
            metrics=given or None,
        )
    model = _Keras2Model(
        wrapped,
        input_spec,
        class_weight,
        keras2_metrics.name_weighted(wrapped, given, len(weighted)),
    )
    if class_weight is not None:
        output = keras2_arguments.output_of(keras_model)
        first_output, *_ = tf.nest.flatten(output)
        example_weights.check_one_label(batch.labels, first_output)
        example_weights.check_classes(
            class_weight, first_output, tf.nest.flatten(loss)[0]
        )
    return model


def check_batches(model: tff.learning.models.VariableModel) -> None:
    """Raises if a model of Keras 2, if it is one, cannot take its batches.

    Args:
      model: What `from_keras2` or `as_in_fit` returned.

    Raises:
      TypeError: If strings are cast to numbers.
      ValueError: If the model, its loss or a metric cannot take the batches.
    """
    if isinstance(model, _Keras2Model):
        losses = model._model._loss_fns
        outputs = keras2_arguments.output_of(model._keras_model)
        if outputs is None:
            return
        metrics, weighted = model._model.get_metrics(), model._weighted_metrics
        keras2_metrics.check_counts(metrics, weighted, model._labels, outputs)
        first_trace.check_batches_of_keras2(
            model.forward_pass, model.input_spec, losses, outputs
        )


def as_in_fit(
    model: tff.learning.models.VariableModel,
) -> tff.learning.models.VariableModel:
    """Returns a model that trains as in `fit`, if it is TFF's of a Keras 2 model.

    Args:
      model: Any model.

    Raises:
      ValueError: If the Keras model has no weights yet or constraints of those that
        train, two metrics have one name, one has that of a count which it is not, a
        metric cannot be made ready to count, or a loss of Keras is one of several
        outputs.
    """
    if type(model).__module__ != _OF_TFF:
        return model
    keras2_arguments.check_built("keras_model", model._keras_model)
    keras2_arguments.check_losses_of_outputs(model._keras_model, model._loss_fns)
    return _Keras2Model(model, model.input_spec)


class _Keras2Model(tff.learning.models.VariableModel, HasKerasWeights):
    """TFF's model of a Keras 2 model, with the forward pass of Keras' `fit`.

    TFF calls the Keras model as a function of its own. Across that border the mask of
    the predictions does not reach loss and metrics, and losses that layers add belong
    to another graph.

    TFF's own lines, and these, are traced as they are written: Keras has AutoGraph
    convert what a user writes in layers, losses and metrics.

    Args:
      model: TFF's model.
      input_spec: The `tf.TensorSpec` structure of a batch, perhaps with weights.
      class_weight: See `from_keras2`.
      weighted_metrics: The metrics of the model in which weights count.

    Raises:
      ValueError: If the model has constraints of its trainable weights, two metrics
        have one name, one has that of a count which it is not, or a metric cannot be
        made ready to count.
    """

    def __init__(
        self,
        model: Any,
        input_spec: Any,
        class_weight: Mapping[int, float] | None = None,
        weighted_metrics: Sequence[Any] = (),
    ) -> None:
        check_unconstrained(model._keras_model, model.trainable_variables)
        metrics = model.get_metrics()
        names = [metric.name for metric in metrics]
        metric_names.check_names(names, dict(zip(names, metrics, strict=True)))
        self._model, self._input_spec = model, input_spec
        self._keras_model = model._keras_model
        self.losses_and_metrics = [*model._loss_fns, *metrics]
        self._class_weight = class_weight
        self._weighted_metrics = frozenset(weighted_metrics)
        self._names = list(keras2_arguments.outputs_by_name(self._keras_model))
        self._labels = example_weights.split(input_spec).labels
        self._late = {
            metric.name: self._made_ready(metric)
            for metric in metrics
            if keras2_metrics.is_late(metric)
        }

    def _made_ready(self, metric: Any) -> Any:
        """Has a metric make the variables that it makes at its first batch.

        Returns:
          The metric.
        """
        output = keras2_arguments.output_of(self._keras_model)
        if output is None:
            raise ValueError(
                f"the metric {checks.shown(metric.name)} makes its variables at its "
                "first batch, and the model does not tell its outputs. Give the model "
                "a tf.keras.Input, or make a metric with all its variables."
            )
        labels, outputs = metric_labels.zeros_of((self._labels, output))
        try:
            metric.update_state(keras2_labels.as_column(labels, outputs), outputs)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the metric {checks.shown(metric.name)} makes its variables at its "
                f"first batch, and cannot count labels of {checks.shown(self._labels)} "
                f"and outputs of the model ({checks.shown(str(error))}). Give it "
                "labels of the form that it takes, such as one-hot ones or floats; "
                "make a metric of your own with all its variables."
            ) from error
        if tf.executing_eagerly():
            keras2_metrics.reset(metric)
        return metric

    @property
    def trainable_variables(self) -> Any:
        return self._model.trainable_variables

    @property
    def non_trainable_variables(self) -> Any:
        return self._model.non_trainable_variables

    @property
    def local_variables(self) -> Any:
        return self._model.local_variables

    @property
    def input_spec(self) -> Any:
        return self._input_spec

    @autograph.traced_as_written
    def predict_on_batch(self, x: Any, training: bool = True) -> Any:
        return self._call(x, training)

    def _call(self, x: Any, training: bool) -> Any:
        with normalizing_by_weights(self._keras_model):
            return self._keras_model(x, training=training)

    @autograph.traced_as_written
    def forward_pass(
        self, batch_input: Any, training: bool = True
    ) -> tff.learning.models.BatchOutput:
        inputs, labels, weights = example_weights.split(batch_input)
        if training and self._class_weight is not None:
            weights = example_weights.with_class_weights(
                weights, labels, self._class_weight
            )
        # Of calls before, such as the one on placeholders that built the model.
        for layer in self._keras_model._flatten_layers():
            layer._losses.clear()
        predictions = self._call(inputs, training)
        loss = self._loss(labels, predictions, weights)
        for metric in self._model.get_metrics():
            self._update(metric, labels, predictions, loss, weights)
        return tff.learning.models.BatchOutput(
            loss=tf.add_n(
                [
                    loss,
                    *(tf.cast(each, loss.dtype) for each in self._keras_model.losses),
                ]
            ),
            predictions=predictions,
            num_examples=_num_rows(tf.nest.flatten(inputs)[0]),
        )

    def _loss(self, labels: Any, predictions: Any, weights: Any) -> tf.Tensor:
        """Returns the loss of a batch, without those that layers add."""
        losses, factors = self._model._loss_fns, self._model._loss_weights
        if len(losses) == 1:
            loss = keras2_labels.loss_of(losses[0], labels, predictions, weights)
            return loss if factors == [1.0] else factors[0] * loss
        outputs = named_outputs(predictions, self._names)
        named = by_output("the labels of input_spec", labels, outputs)
        shared = weights_by_output(weights, outputs)
        values = [
            factor
            * keras2_labels.loss_of(loss, named[name], outputs[name], shared[name])
            for name, loss, factor in zip(self._names, losses, factors, strict=True)
        ]
        # The dtype in which all of them can be: outputs may be of several.
        dtype = np.result_type(*(each.dtype.as_numpy_dtype for each in values))
        return tf.add_n([tf.cast(each, dtype) for each in values])

    def _update(
        self, metric: Any, labels: Any, predictions: Any, loss: Any, weights: Any
    ) -> None:
        if type(metric).__module__ == _OF_TFF:  # TFF's own `loss`.
            size = tf.shape(tf.nest.flatten(predictions)[0])[0]
            tf.keras.metrics.Mean.update_state(metric, loss, size)
            return
        if type(metric) in _COUNTERS:
            # Called on the class: in a graph, Keras makes a function of each.
            type(metric).update_state(metric, labels, predictions)
            return
        mask = getattr(predictions, "_keras_mask", None)
        if metric not in self._weighted_metrics:
            weights, labels = mask, keras2_labels.as_column(labels, predictions)
        else:
            labels = keras2_labels.like(labels, predictions)
            weights = weights if mask is None else keras2_labels.masked(weights, mask)
            if weights is not None:
                weights = keras2_labels.weights_like(weights, predictions)
        arguments = example_weights.as_argument(weights)
        if arguments and not keras2_metrics.takes_weights(metric):
            raise ValueError(
                f"the metric {checks.shown(metric.name)} cannot leave out the steps "
                "that a mask hides: update_state of its class has no sample_weight. "
                "Give it one, as metrics of Keras have, or build the layer without "
                "mask."
            )
        metric.update_state(y_true=labels, y_pred=predictions, **arguments)

    @autograph.as_written
    def reset_metrics(self) -> None:
        for metric in self._model.get_metrics():
            keras2_metrics.reset(metric)

    @autograph.as_written
    def report_local_unfinalized_metrics(self) -> Any:
        return collections.OrderedDict(
            (metric.name, [variable.read_value() for variable in metric.variables])
            for metric in self._model.get_metrics()
        )

    def metric_finalizers(self) -> Any:
        metrics = {metric.name: metric for metric in self._model.get_metrics()}
        return collections.OrderedDict(
            (name, self._finalizer(metrics[name], finalizer))
            for name, finalizer in self._model.metric_finalizers().items()
        )

    def _finalizer(self, metric: Any, of_tff: Any) -> Callable[..., Any]:
        if metric.name in self._late:
            return autograph.traced_as_written(self._late_finalizer(metric.name))
        if type(metric).result is tf.keras.metrics.Mean.result:
            return keras2_metrics.finalizer_of_sums(metric)
        return autograph.traced_as_written(of_tff.python_function)

    def _late_finalizer(self, name: str) -> Callable[[Sequence[tf.Tensor]], Any]:
        """Returns a metric's value as a function of those of its variables."""
        make = self._model._metric_constructors.get(name)
        metric = self._late[name]

        def finalize(values: Sequence[tf.Tensor]) -> Any:
            # TFF calls it in other graphs than that of the model.
            with tf.init_scope():
                new = make() if make else type(metric).from_config(metric.get_config())
                self._made_ready(new)
            for variable, value in zip(new.variables, values, strict=True):
                variable.assign(value)
            return new.result()

        return finalize


def _num_rows(leaf: Any) -> Any:
    return leaf.nrows() if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf)[0]
