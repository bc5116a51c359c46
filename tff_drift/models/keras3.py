"""Models of Keras 3 (`import keras`) as models of TFF."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks
from tff_drift.models import example_weights, first_trace, value_files
from tff_drift.models.loaded_weights import is_set_in_graph
from tff_drift.models.metric_states import (
    MetricState,
    Seen,
    build_metric_states,
    check_counts,
)
from tff_drift.models.normalizations import learning_layers
from tff_drift.models.outputs import Objective
from tff_drift.models.stateless import (
    ModelOutput,
    StatelessModel,
    import_keras3,
    outside_values,
    split_variables,
)
from tff_drift.models.weight_places import HasKerasWeights


def from_keras3(
    keras_model: Any,
    loss: Any,
    input_spec: Any,
    metrics: Any = None,
    *,
    loss_weights: Any = None,
    class_weight: Mapping[int, float] | None = None,
    weighted_metrics: Any = None,
) -> tff.learning.models.VariableModel:
    """Makes a model of TFF of a model of Keras 3.

    The counterpart of `tff.learning.models.from_keras_model`, which takes models of
    Keras 2 (`tf.keras`), to be called in a model function:

    ```python
    keras_model = keras.Sequential([keras.layers.Input([5]), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def model_fn():
        return tff_drift.models.from_keras3(keras_model, loss, train.element_spec)
    ```

    The model's weights are where training starts. They stay as they are: see
    `assign_to_keras3`. The Keras model may also be built in the model function itself.

    In training by this library, `keras.layers.Dropout` and whatever else draws from a
    `keras.random.SeedGenerator` is seeded with the round, the step and the batch, see
    `tff_drift.layers.draw_seed`: a run that is resumed continues bit for bit.
    Elsewhere, as in TFF's own algorithms, the seeds are a function of the batch and the
    weights.

    The model reports its metrics, and besides these `loss`, the mean of the loss over
    examples, `num_examples` and `num_batches`. As with `from_keras_model`, losses that
    layers add, such as those of regularizers, are trained on and not in `loss`, and
    what BatchNormalization updates stays on the client.

    Args:
      keras_model: A `keras.Model`: functional, sequential or a subclass. Whether and
        how it was compiled does not matter, nor do a `train_step` and `compute_loss` of
        its own. If it is not built it is, for `input_spec`.
      loss: A `keras.losses.Loss` with a reduction, which makes one number of a batch,
        or a function of labels and predictions, which is treated as in `compile` of
        Keras: labels get the rank of the predictions, both are cast to floats, and the
        mean over what is not masked is taken. Of a model with several outputs a loss is
        that of each, as in `fit`; or give a mapping from their names or, unless they
        are a mapping themselves, a list in their order, of one for each; two outputs
        of one layer are `output_0` and `output_1`. One function alone gets all outputs
        as they are, and its mean is taken.
      input_spec: The `tf.TensorSpec` structure of a batch, such as
        `train.element_spec`: `(x, y)`, or `(x, y, sample_weight)` with a weight for
        each example, or for each of its steps; or a mapping with these names. As in
        `fit`, the loss of an example is multiplied by its weight and the sum divided
        by the number of examples; clients count by that number.
      metrics: A list of `keras.Metric`s, or of functions that return one; of a model
        with several outputs also a mapping from their names to such lists, whose
        metrics are then reported as `<output>_<metric>`. A metric without a name of
        its own, which Keras numbers through the process, is reported without number,
        a second one of its class as `<name>_1`. Names of your own that are a class and
        a number, such as `precision_1`, are kept if Keras has not made that name yet;
        better give others.
      loss_weights: The weights of the outputs' losses, in the form of `loss`; finite,
        by default all 1.
      class_weight: The weights of the examples of each class, in training alone, as in
        `fit`; classes that are left out weigh 1.
      weighted_metrics: As `metrics`, in which the weights count, which as in `fit` they
        do not in `metrics`.

    Returns:
      A `tff.learning.models.VariableModel`.

    Raises:
      ImportError: If `keras` is missing or is Keras 2.
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If Keras computes with another backend than TensorFlow, the model has
        no trainable weights or constraints of them, `input_spec` is not that of inputs
        and labels, or of batches that the model cannot take, losses, weights or metrics
        are not those of the outputs, or two metrics have one name, or names that may be
        Keras' or yours where that makes a difference.
    """
    keras = import_keras3()
    _check_model(keras, keras_model)
    batch = _checked(input_spec)
    example_weights.check_class_weight(class_weight, batch.labels)
    with first_trace.naming_misfit(input_spec):
        model = StatelessModel(keras_model, batch.inputs)
        output_spec = model.output_spec() if class_weight is not None else None
    if class_weight is not None:
        example_weights.check_one_label(batch.labels, output_spec)
        (first_loss, *_) = tf.nest.flatten(loss)
        example_weights.check_classes(class_weight, output_spec, first_loss)
    names = list(getattr(keras_model, "output_names", ()))
    return _Keras3Model(
        model,
        Objective(loss, loss_weights, model.output_spec, names),
        build_metric_states(
            metrics, weighted_metrics, batch.labels, model.output_spec, names
        ),
        input_spec,
        class_weight,
    )


def assign_to_keras3(model_weights: Any, keras_model: Any) -> None:
    """Gives a model of Keras 3 the weights that were trained.

    Afterwards the model predicts, is saved and is exported as any other:

    ```python
    tff_drift.models.assign_to_keras3(result.model_weights, keras_model)
    keras_model.save("model.keras")
    ```

    Set `trainable` of all layers to what it was in training: TFF's weights have no
    names, so that another choice of layers is noticed by the weights' number and shapes
    alone.

    Args:
      model_weights: A `tff.learning.models.ModelWeights`, such as
        `process.get_model_weights` returns.
      keras_model: The `keras.Model` that was trained, or another one of its form,
        built.

    Raises:
      ImportError: If `keras` is missing or is Keras 2.
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If the model is not built, the number or shapes of the trainable or
        of the other weights are not the model's, or Keras computes with another backend
        than TensorFlow.
    """
    keras = import_keras3()
    _check_model(keras, keras_model)
    kind = tff.learning.models.ModelWeights
    remedy = "process.get_model_weights returns one."
    checks.check_instance("model_weights", model_weights, kind, remedy=remedy)
    trainable, non_trainable, _ = split_variables(keras_model)
    parts = {"trainable": trainable, "non_trainable": non_trainable}
    values = {
        part: [np.asarray(v) for v in tf.nest.flatten(getattr(model_weights, part))]
        for part in parts
    }
    for part, variables in parts.items():
        shapes = [value.shape for value in values[part]]
        expected = [tuple(variable.shape) for variable in variables]
        if shapes != expected:
            raise ValueError(
                f"model_weights.{part} has arrays of shapes "
                f"{checks.shortened(shapes)}, but keras_model "
                f"{checks.shown(keras_model.name)} has {part} weights of shapes "
                f"{checks.shortened(expected)}. Give the model that was trained, or "
                "one of its form, and set trainable of its layers as it was in "
                "training."
            )
    for part, variables in parts.items():
        for variable, value in zip(variables, values[part], strict=True):
            variable.assign(value)
    for layer in learning_layers(keras_model):
        layer.finalize_state()


def check_training(model: tff.learning.models.VariableModel) -> None:
    """Raises what is wrong with training a model of Keras 3, if it is one.

    TFF finds it too, and reports it below lines of its own.

    Args:
      model: The model.

    Raises:
      TypeError: If it casts strings to numbers.
      ValueError: If Keras or a metric cannot take such batches, or `from_keras3` says
        so.
      Exception: What a user's code raises.
    """
    if isinstance(model, _Keras3Model):
        check_counts(
            model._metrics,
            example_weights.split(model.input_spec).labels,
            model._model.output_spec,
        )
        with first_trace.naming_misfit(model.input_spec):
            trace = model.forward_pass.get_concrete_function(
                model.input_spec, training=True
            )
        first_trace.check_no_strings_as_numbers(trace, model.input_spec)


def _check_model(keras: Any, model: Any) -> None:
    what = "a keras.Model of Keras 3"
    remedy = "One of Keras 2 goes through tff.learning.models.from_keras_model."
    checks.check_instance("keras_model", model, keras.Model, what, remedy)


def _checked(input_spec: Any) -> example_weights.Batch:
    batch = example_weights.split(input_spec)
    for leaf in tf.nest.flatten(input_spec):
        remedy = "Make batches of dense tensors."
        checks.check_instance("each of input_spec", leaf, tf.TensorSpec, remedy=remedy)
    return batch


class _Keras3Model(tff.learning.models.VariableModel, HasKerasWeights):
    """A Keras 3 model with variables of its own."""

    def __init__(
        self,
        model: StatelessModel,
        objective: Objective,
        metrics: list[MetricState],
        input_spec: Any,
        class_weight: Mapping[int, float] | None,
    ) -> None:
        self._model, self._objective = model, objective
        self._keras_model = model.keras_model
        of_keras = [getattr(metric, "metric", None) for metric in metrics]
        self.losses_and_metrics = [*objective.losses, *filter(None, of_keras)]
        self._metrics, self._input_spec = metrics, input_spec
        self._class_weight = class_weight
        trainable, non_trainable = model.initial_values()
        self._trainable = [tf.Variable(value) for value in map(_tensor, trainable)]
        self._non_trainable = [
            tf.Variable(value, trainable=False) for value in map(_tensor, non_trainable)
        ]
        self._pass_on_what_is_set()
        self._states = [
            [tf.Variable(value, trainable=False) for value in metric.initial()]
            for metric in metrics
        ]

    def _pass_on_what_is_set(self) -> None:
        """Has the variables tell what `loaded_weights` asks of those of Keras."""
        of_keras = [*self._model.trainable, *self._model.non_trainable]
        for variable, origin in zip(
            self._trainable + self._non_trainable, of_keras, strict=True
        ):
            if is_set_in_graph(origin.value):
                variable.assign(origin.value)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        return self._trainable

    @property
    def non_trainable_variables(self) -> list[tf.Variable]:
        return self._non_trainable

    @property
    def local_variables(self) -> list[tf.Variable]:
        return tf.nest.flatten(self._states)

    @property
    def input_spec(self) -> Any:
        return self._input_spec

    def _call(self, inputs: Any, training: bool) -> ModelOutput:
        return self._model(
            _read(self._trainable), _read(self._non_trainable), inputs, training
        )

    # Keras calls models without AutoGraph, too.
    @tf.function(autograph=False)
    def predict_on_batch(self, x: Any, training: bool = True) -> Any:
        with outside_values(self._model.name):
            return self._call(x, training).predictions

    @tf.function(autograph=False)
    def forward_pass(
        self, batch_input: Any, training: bool = True
    ) -> tff.learning.models.BatchOutput:
        with outside_values(self._model.name):
            return self._forward_pass(batch_input, training)

    def _forward_pass(
        self, batch_input: Any, training: bool
    ) -> tff.learning.models.BatchOutput:
        inputs, labels, weights = example_weights.split(batch_input)
        if training and self._class_weight is not None:
            weights = example_weights.with_class_weights(
                weights, labels, self._class_weight
            )
        output = self._call(inputs, training)
        loss = self._objective(labels, output.predictions, weights)
        num_examples = tf.shape(tf.nest.flatten(inputs)[0], tf.int64)[0]
        if training:
            set_now = [self._non_trainable[place] for place in output.set]
            _assign(set_now, output.set.values())
        seen = Seen(labels, output.predictions, loss, num_examples, weights)
        for metric, variables in zip(self._metrics, self._states, strict=True):
            _assign(variables, metric.update(_read(variables), seen))
        return tff.learning.models.BatchOutput(
            loss=tf.add_n(
                [loss, *(tf.cast(each, loss.dtype) for each in output.losses)]
            ),
            predictions=output.predictions,
            num_examples=num_examples,
        )

    @tf.function(autograph=False)
    def report_local_unfinalized_metrics(self) -> Any:
        return collections.OrderedDict(
            (metric.name, _read(variables))
            for metric, variables in zip(self._metrics, self._states, strict=True)
        )

    def metric_finalizers(self) -> Any:
        return collections.OrderedDict(
            (metric.name, tf.function(metric.result, autograph=False))
            for metric in self._metrics
        )

    @tf.function(autograph=False)
    def reset_metrics(self) -> None:
        for metric, variables in zip(self._metrics, self._states, strict=True):
            _assign(variables, metric.initial())


def _tensor(value: Any) -> Any:
    """Returns a value with which a variable begins, of the graph or an array."""
    return value if tf.is_tensor(value) else value_files.constant(value)


def _read(variables: list[tf.Variable]) -> list[tf.Tensor]:
    return [variable.read_value() for variable in variables]


def _assign(variables: list[tf.Variable], values: Any) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(tf.cast(value, variable.dtype))
