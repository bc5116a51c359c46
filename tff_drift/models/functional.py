"""Checks of TFF's functional models of Keras models, and what these need besides."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks
from tff_drift.layers import step_seed
from tff_drift.models import example_weights
from tff_drift.models.constraints import check_unconstrained
from tff_drift.models.keras2_labels import as_column
from tff_drift.models.loaded_weights import is_set_in_graph
from tff_drift.models.metric_names import check_functional_metrics
from tff_drift.models.own_code import check_traced

# The module of TFF's functional models.
_OF_TFF = tff.learning.models.functional_model_from_keras.__module__
_OF_KERAS = "model_fn is of tff.learning.models.functional_model_from_keras"
_REMEDY = (
    "Give a function that ends with tff_drift.models.from_keras2(keras_model, loss, "
    "input_spec, metrics)"
)


def check_functional_model(model: tff.learning.models.FunctionalModel) -> None:
    """Raises if a functional model would be trained as something else, without a word.

    Args:
      model: The model.

    Raises:
      TypeError: If it has no metrics, as one that TFF has loaded.
      ValueError: If a metric of Keras has the name of a count which it is not, it is
        TFF's of a Keras model that cannot be one, compares tensors by `==`, which in
        TFF's graphs are objects, or calls Python; the message says which.
    """
    if not hasattr(model, "_initialize_metrics_state"):
        raise TypeError(
            "model_fn must be a tff.learning.models.FunctionalModel with a loss and "
            f"metrics, found {checks.shown(model)}, which has none to train with, as "
            "one of load_functional_model. Build the model anew, and begin with the "
            "weights loaded: run_training(initial_weights=ModelWeights("
            "*loaded.initial_weights))."
        )
    check_functional_metrics(model)
    _check_keras_model(model)

    def train_and_count(weights: Any, batch: Any) -> Any:
        output, update_metrics = forward_pass(model, weights, batch)
        state = update_metrics(model.initialize_metrics_state())
        return output.loss, model.finalize_metrics(state)

    with tf.Graph().as_default():
        check_traced(train_and_count, model.initial_weights, model.input_spec)


def forward_pass(
    model: tff.learning.models.FunctionalModel,
    weights: Any,
    batch: Any,
    training: bool = True,
) -> tuple[tff.learning.models.BatchOutput, Callable[[Any], Any]]:
    """Runs a model on a batch.

    Args:
      model: The model.
      weights: Its weights.
      batch: A batch of the type of its `input_spec`.
      training: Whether it is in training.

    Returns:
      The output, and a function that counts it in a state of the metrics.
    """
    inputs, labels, of_examples = example_weights.split(batch)
    weighted = example_weights.as_argument(of_examples)
    predict_on_batch = autograph.of_user(model.predict_on_batch)
    predictions = predict_on_batch(weights, inputs, training=training)
    labels = labels_as_in_fit(model, labels, predictions)
    loss = autograph.of_user(model.loss)(output=predictions, label=labels, **weighted)
    num_examples = tf.shape(tf.nest.flatten(predictions)[0])[0]
    output = tff.learning.models.BatchOutput(
        loss=loss, predictions=predictions, num_examples=num_examples
    )
    return output, functools.partial(
        autograph.of_user(model.update_metrics_state),
        labels=labels,
        batch_output=output,
        **weighted,
    )


def _check_keras_model(model: tff.learning.models.FunctionalModel) -> None:
    """Raises if TFF's functional model of a Keras model cannot do what that does.

    `tff.learning.models.functional_model_from_keras` calls the Keras model as a
    function of its own, across whose border the mask does not reach loss and metrics.
    In it a tensor takes the place of each variable: of the next trainable weight if the
    variable is made trainable, in a frozen layer, too. Nothing can be assigned to it.

    """
    predict = _predict_of_keras(model)
    if predict is None:
        return
    keras_model: Any = inspect.getclosurevars(predict).nonlocals.get("keras_model")
    if not isinstance(keras_model, tf.keras.Model):
        with tf.Graph().as_default():
            keras_model = keras_model()
    check_unconstrained(keras_model, keras_model.trainable_variables)
    for each in keras_model.non_trainable_variables:
        if each.trainable:
            raise ValueError(
                f"{_OF_KERAS}, and the Keras model has a frozen layer, with the weight "
                f"{checks.shown(each.name)}, which TFF does not tell from those that "
                f"are trained. {_REMEDY}."
            )
    for each in keras_model.variables:
        if is_set_in_graph(each):
            raise ValueError(
                f"{_OF_KERAS}, and the function that builds the Keras model sets its "
                f"weight {checks.shown(each.name)}, as set_weights, load_weights and "
                "load_model do, which TFF's functional models cannot. "
                f"{_REMEDY}, or give the Keras model itself in place of the function."
            )
    outputs = getattr(keras_model, "outputs", None) or ()
    if any(getattr(each, "_keras_mask", None) is not None for each in outputs):
        raise ValueError(
            f"{_OF_KERAS}, and the Keras model has a mask for its outputs, as of "
            "Embedding(mask_zero=True) or Masking, which TFF does not give to the "
            f"loss: padding would be trained on. {_REMEDY}, or build the layer without "
            "mask if the loss leaves padding out itself."
        )


def labels_as_in_fit(
    model: tff.learning.models.FunctionalModel, labels: Any, outputs: Any
) -> Any:
    """Returns labels as Keras' `fit` gives them to losses and metrics.

    Args:
      model: The model; labels of one that is not of Keras stay as they are.
      labels: The labels of a batch.
      outputs: The model's outputs.
    """
    if _predict_of_keras(model) is None:
        return labels
    return as_column(labels, outputs)


def _predict_of_keras(model: tff.learning.models.FunctionalModel) -> Any:
    """Returns what calls a Keras model, `None` if TFF has not made the model of one."""
    predict = getattr(model._predict_on_batch_fn, "python_function", None)
    return predict if getattr(predict, "__module__", None) == _OF_TFF else None


def leaves_placeholders(model: tff.learning.models.FunctionalModel) -> bool:
    """Returns whether a call of a model runs operations on an input that is not fed.

    `tff.learning.models.functional_model_from_keras` builds the Keras model anew in
    each call, first on a placeholder. Operations on that are not run, except for those
    with effects, as random and recurrent layers have. TFF's worker then fails inside of
    `dataset.reduce`, and goes through in a loop over an iterator.

    Args:
      model: The model.

    Raises:
      ValueError: If the call of a model of Keras fails.
    """

    def call(weights: Any, inputs: Any) -> Any:
        return model.predict_on_batch(weights, inputs, training=True)

    weights = tf.nest.map_structure(
        lambda value: tf.TensorSpec(np.shape(value), np.asarray(value).dtype),
        tuple(model.initial_weights),
    )
    spec = model.input_spec
    inputs = spec["x"] if hasattr(spec, "keys") else spec[0]
    # Functional models made from Keras models refuse to run outside of graphs.
    with tf.Graph().as_default():
        seed = tf.Variable(tf.zeros([2], tf.int64))
        with step_seed.step_seed(seed):
            try:
                function = tf.function(call).get_concrete_function(weights, inputs)
            except Exception as error:
                if _predict_of_keras(model) is not None:
                    raise _failed_call(error) from error
                # What is wrong with the model is said where it is checked and trained.
                return True
        library = function.graph.as_graph_def().library.function
    return any(map(_needs_a_placeholder, library))


def _failed_call(error: Exception) -> ValueError:
    # AutoGraph puts the lines that an error passed before what it says.
    said = checks.shortened(str(error).rpartition("Error: ")[-1])
    return ValueError(
        f"{_OF_KERAS}, and TFF's call of the Keras model fails "
        f"({type(error).__name__}: {said}). {_REMEDY}, if Keras calls the model on "
        "batches of input_spec."
    )


def _needs_a_placeholder(function: Any) -> bool:
    """Returns whether what a function must run depends on a placeholder in it."""
    nodes = {node.name: node for node in function.node_def}
    waiting, seen = list(function.control_ret.values()), set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        if nodes[name].op == "Placeholder":
            return True
        waiting += [each.lstrip("^").partition(":")[0] for each in nodes[name].input]
    return False
