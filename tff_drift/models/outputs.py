"""The outputs of a model by name, and the losses of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.models.example_weights import as_argument
from tff_drift.models.keras_internals import function_loss
from tff_drift.models.stateless import import_keras3

_LOSS = (
    "a loss of Keras 3 such as keras.losses.SparseCategoricalCrossentropy("
    "from_logits=True), a function of labels and predictions, or one for each output"
)


class Outputs(dict[str, Any]):
    """The outputs of a model by name.

    Attributes:
      have_order: Whether the model returns them as a sequence. Keras sorts those of a
        mapping by name in some places, and in others not.
    """

    def __init__(self, outputs: Mapping[str, Any], have_order: bool) -> None:
        super().__init__(outputs)
        self.have_order = have_order


def by_output(name: str, values: Any, outputs: Outputs) -> dict[str, Any]:
    """Returns one value for each output of a model.

    Args:
      name: The argument that holds the values, for the message.
      values: A mapping with the outputs' names as keys or, where they have an order, a
        sequence in it. Of one output its value will do.
      outputs: The model's outputs.

    Raises:
      ValueError: If the values are not those of the outputs.
    """
    if isinstance(values, Mapping) and set(values) == set(outputs):
        return {key: values[key] for key in outputs}
    is_sequence = isinstance(values, (list, tuple))
    if len(outputs) == 1 and not is_sequence and not isinstance(values, Mapping):
        return dict.fromkeys(outputs, values)
    if is_sequence and not outputs.have_order:
        form = ", ".join(f"{each!r}: ..." for each in outputs)
        raise ValueError(
            f"{name} must be a mapping where the model's outputs are one, found "
            f"{checks.shown(values)}. Name what belongs to each: {{{form}}}."
        )
    if is_sequence and len(values) == len(outputs):
        return dict(zip(outputs, values, strict=True))
    found = list(values) if isinstance(values, Mapping) else values
    raise ValueError(
        f"{name} must have an entry for each output of the model, which are "
        f"{checks.listed(map(repr, outputs))}, found {checks.shown(found)}."
    )


def named_outputs(predictions: Any, names: Sequence[str]) -> Outputs:
    """Returns the outputs of a model by name.

    Args:
      predictions: What the model returns: a mapping, a sequence, or one tensor.
      names: What the model calls the outputs of a sequence: the names of layers. Where
        there are none, or two outputs are of one layer, outputs are `output_0`,
        `output_1` and so on.
    """
    if isinstance(predictions, Mapping):
        return Outputs(predictions, have_order=False)
    if not isinstance(predictions, (list, tuple)):
        predictions = [predictions]
    if len(set(names)) != len(predictions) or len(names) != len(predictions):
        names = [f"output_{number}" for number in range(len(predictions))]
    return Outputs(dict(zip(names, predictions, strict=True)), have_order=True)


class Objective:
    """The loss of a batch, without the losses that layers add.

    Args:
      loss: A loss, or a mapping or sequence of one for each output. As in `fit`, one of
        Keras is that of each output. Functions become losses of Keras, but for one of
        several outputs, which gets labels and predictions as they are.
      loss_weights: The weights of losses of each output, alike; by default 1.
      output_spec: Returns the outputs' specifications, as the model returns them.
      output_names: What the model calls the outputs of a sequence.

    Raises:
      TypeError: If a loss is not a loss.
      ValueError: If there are weights without losses of each output, or the losses or
        weights are not those of the outputs.
    """

    def __init__(
        self,
        loss: Any,
        loss_weights: Any,
        output_spec: Callable[[], Any],
        output_names: Sequence[str],
    ) -> None:
        self._names, self._losses, self._weights = output_names, loss, {}
        if not isinstance(loss, (Mapping, list, tuple)):
            _check_loss("loss", loss)
            if loss_weights is not None:
                raise ValueError(
                    "loss_weights needs a loss for each output of the model, found "
                    f"{checks.shown(loss)}. Leave loss_weights out, or give a loss for "
                    "each."
                )
            return
        outputs = named_outputs(output_spec(), output_names)
        self._losses = by_output("loss", loss, outputs)
        for name, each in self._losses.items():
            _check_loss(f"loss[{checks.shown(name)}]", each)
            self._losses[name] = _as_keras_loss(each)
        if loss_weights is None:
            loss_weights = dict.fromkeys(outputs, 1.0)
        self._weights = by_output("loss_weights", loss_weights, outputs)
        for name, weight in self._weights.items():
            checks.check_finite(f"loss_weights[{checks.shown(name)}]", weight)

    @property
    def losses(self) -> list[Any]:
        """All losses: objects of Keras, or functions."""
        is_one = not isinstance(self._losses, Mapping)
        return [self._losses] if is_one else list(self._losses.values())

    def __call__(self, labels: Any, predictions: Any, weights: Any = None) -> tf.Tensor:
        """Returns the loss of a batch, a scalar.

        Args:
          labels: The labels.
          predictions: What the model returns.
          weights: The weights of examples: for all outputs, or a structure with those
            for each; `None` for none.

        Raises:
          ValueError: If a loss of Keras has no reduction, or there are weights, and
            they are not of its values, or the loss is a function of all outputs.
        """
        loss = self._losses
        if not isinstance(loss, dict):
            if not tf.nest.is_nested(predictions):
                loss = _as_keras_loss(loss)
                return _scalar("loss", loss, labels, predictions, weights)
            if not isinstance(loss, import_keras3().losses.Loss):
                if weights is not None:
                    raise ValueError(
                        "loss is one for all outputs of the model, and cannot be "
                        "weighted. Give a loss for each output, or batches without "
                        "sample_weight."
                    )
                return _scalar("loss", loss, labels, predictions, weights)
        outputs = named_outputs(predictions, self._names)
        losses = loss if isinstance(loss, dict) else dict.fromkeys(outputs, loss)
        labels = by_output("the labels of input_spec", labels, outputs)
        weights = weights_by_output(weights, outputs)
        terms = [
            self._weights.get(name, 1.0)
            * _scalar(
                f"loss[{checks.shown(name)}]",
                each,
                labels[name],
                outputs[name],
                weights[name],
            )
            for name, each in losses.items()
        ]
        return tf.add_n(terms)


def weights_by_output(weights: Any, outputs: Outputs) -> dict[str, Any]:
    """Returns the weights of examples for each output of a model, as in Keras' `fit`.

    Args:
      weights: Those for all outputs, or a structure with those for each.
      outputs: The model's outputs.
    """
    if tf.nest.is_nested(weights):
        return by_output("the weights of input_spec", weights, outputs)
    return dict.fromkeys(outputs, weights)


def check_masked_labels(
    name: str,
    labels: Any,
    predictions: Any,
    shape_of_values: Callable[[], tf.TensorShape],
) -> None:
    """Raises if Keras would apply the mask of the predictions to other values.

    Of outputs `[n, t, 1]` and labels `[n, t]` its losses take the mean over the steps,
    and the mask is one of steps.

    Args:
      name: The argument that holds the loss.
      labels: The labels of a batch.
      predictions: The output of the model that they are for.
      shape_of_values: Returns the shape of what the loss reduces.

    Raises:
      ValueError: If the labels lack the last dimension, and there is a mask of other
        values than the loss reduces.
    """
    mask = getattr(predictions, "_keras_mask", None)
    if mask is None or not _lack_a_dimension(labels, predictions):
        return
    if shape_of_values().rank != mask.shape.rank:
        raise ValueError(
            f"{name} has labels of shape {labels.shape} and outputs of shape "
            f"{predictions.shape} with a mask, as of Embedding(mask_zero=True), which "
            "Keras cannot apply. Give labels of the outputs' shape, y[..., None]."
        )


def _lack_a_dimension(labels: Any, predictions: Any) -> bool:
    shapes = labels.shape, predictions.shape
    if any(shape.rank is None for shape in shapes):
        return False
    return len(shapes[0]) + 1 == len(shapes[1]) and shapes[1][-1] == 1


def _as_keras_loss(loss: Any) -> Any:
    is_loss = isinstance(loss, import_keras3().losses.Loss)
    return loss if is_loss else function_loss(loss)


def _scalar(
    name: str, loss: Any, labels: Any, predictions: Any, weights: Any
) -> tf.Tensor:
    """Returns the loss of one output or, of a function, the mean of its values.

    Args:
      name: The argument that holds the loss, for messages.
      loss: A loss of Keras, or a function of labels and predictions.
      labels: Its labels.
      predictions: Its predictions.
      weights: The weights of its examples, or `None`.

    Raises:
      ValueError: If a loss of Keras has no reduction, or weights or a mask are not of
        its values.
    """
    base = import_keras3().losses.Loss
    is_of_keras = isinstance(loss, base)
    # A call of one's own may do with weights and masks what it likes.
    if type(loss).__call__ is base.__call__:
        shape = functools.partial(_shape_of_values, loss, labels, predictions)
        check_masked_labels(name, labels, predictions, shape)
        if weights is not None:
            lack_one = _lack_a_dimension(labels, predictions)
            _check_weights(tf.convert_to_tensor(weights).shape, shape(), lack_one)
    value = tf.convert_to_tensor(loss(labels, predictions, **as_argument(weights)))
    if is_of_keras and value.shape.rank:
        raise ValueError(
            f"{name} has reduction={loss.reduction!r} and returns a value for each "
            "example, of which Keras' fit would train on the sum. Give it "
            'reduction="sum_over_batch_size" for their mean, or reduction="sum".'
        )
    return tf.reduce_mean(value)


def _shape_of_values(loss: Any, labels: Any, predictions: Any) -> tf.TensorShape:
    """Returns the shape of what a loss of Keras reduces; nothing else is used of it."""
    labels, predictions = (
        tf.nest.map_structure(lambda each: tf.cast(each, loss.dtype), structure)
        for structure in (labels, predictions)
    )
    return tf.convert_to_tensor(loss.call(labels, predictions)).shape


def _check_weights(
    weights: tf.TensorShape, values: tf.TensorShape, labels_lack_one: bool
) -> None:
    """Raises if Keras would multiply weights with values that are not theirs."""
    if weights.rank is None or values.rank is None or weights.rank == values.rank:
        return
    less, more = sorted((weights, values), key=len)
    # Keras takes a last dimension of 1 away, and one weight is for all.
    if not less.rank or (less.rank + 1 == more.rank and more[-1] == 1):
        return
    if labels_lack_one:
        found = f"the shape {weights} and the loss has values of shape {values}"
        remedy = "give labels of the outputs' shape, y[..., None]"
    elif (weights.rank, values.rank) == (1, 2):
        found = "one weight for each example and the loss one value for each step"
        remedy = "give weights of shape [examples, steps]"
    else:
        found = f"the shape {weights} and the loss has values of shape {values}"
        remedy = "give a weight for each value"
    raise ValueError(f"sample_weight has {found}: {remedy}.")


def _check_loss(name: str, loss: Any) -> None:
    is_keras_2 = isinstance(loss, tf.keras.losses.Loss)
    if is_keras_2 or isinstance(loss, type) or not callable(loss):
        raise TypeError(f"{name} must be {_LOSS}, found {checks.shown(loss)}.")
