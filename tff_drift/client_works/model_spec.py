"""The description of a model from which processes are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat
from tff_drift.client_works.local_models import LocalModel, build_local_model
from tff_drift.models import (
    ModelFn,
    build_variable_model,
    check_model_fn,
    loaded_weights,
    metric_names,
    value_files,
)
from tff_drift.models.functional import check_functional_model, leaves_placeholders
from tff_drift.models.keras2 import as_in_fit
from tff_drift.models.weight_places import WeightPlaces, find_weight_places

_TRAINABLE = (tf.float16, tf.float32, tf.float64)


class ModelSpec(NamedTuple):
    """The description of a model from which processes are built.

    Attributes:
      build: Builds a `LocalModel`, from scratch, in the current graph.
      initial_weights: `( -> ModelWeights)`, a no-arg TFF computation.
      weights_type: The TFF type of the model's weights.
      data_type: The TFF type of a client's dataset, a sequence of batches.
      weight_places: See `find_weight_places`; `None` if they are not known.
      metric_finalizers: As `tff.learning.metrics.sum_then_finalize` takes them.
      loop_implementation: The loop over a client's batches that this kind of
        model runs in.
    """

    build: Callable[[], LocalModel]
    initial_weights: compat.Computation
    weights_type: compat.StructType
    data_type: compat.SequenceType
    weight_places: WeightPlaces | None
    metric_finalizers: Any
    loop_implementation: tff.learning.LoopImplementation


def build_model_spec(model_fn: ModelFn) -> ModelSpec:
    """Inspects a model.

    Args:
      model_fn: A no-arg function that builds a new
        `tff.learning.models.VariableModel` at every call, or a
        `tff.learning.models.FunctionalModel`.

    Returns:
      A `ModelSpec`.

    Raises:
      TypeError: If `model_fn` is neither, or clients cannot train weights of its
        dtypes; the message says what to pass.
      ValueError: If functions run eagerly, nothing trains, it uses a model that was
        made outside of it, TFF cannot take a metric's name, or masks or constraints of
        a functional model would be lost.
    """
    check_model_fn(model_fn)
    if isinstance(model_fn, tff.learning.models.FunctionalModel):
        spec = _functional_model_spec(model_fn)
    else:
        spec = _variable_model_spec(model_fn)
    trainable = spec.weights_type.trainable
    if not tf.nest.flatten(compat.type_to_tf_tensor_specs(trainable)):
        raise ValueError(
            "model_fn: the model has no trainable weights. Set trainable = True for "
            "what clients are to train."
        )
    _check_dtypes(trainable)
    return spec


def _check_dtypes(trainable: compat.Type) -> None:
    """Raises unless TFF can average weights of a type."""
    if compat.is_structure_of_floats(trainable):
        return
    specs = tf.nest.flatten(compat.type_to_tf_tensor_specs(trainable))
    dtypes = {spec.dtype for spec in specs}
    wrong = sorted(each.name for each in dtypes if each not in _TRAINABLE)
    raise TypeError(
        "model_fn: the model's trainable weights must be of float32, float64 or "
        f"float16, which TFF averages, found {checks.listed(wrong)}. Give layers "
        'dtype="float32", or, to compute in bfloat16, the policy "mixed_bfloat16", '
        "whose weights are float32."
    )


def _variable_model_spec(
    model_fn: Callable[[], tff.learning.models.VariableModel],
) -> ModelSpec:
    described: list[tuple[Any, Any, WeightPlaces | None]] = []

    @compat.tf_computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        # Describing this model spares a call that would build another.
        model = build_variable_model(model_fn)
        described.append(
            (model.input_spec, model.metric_finalizers(), find_weight_places(model))
        )
        weights = tff.learning.models.ModelWeights.from_model(model)
        flat = tf.nest.flatten(weights)
        for place, value in loaded_weights(model_fn, model).items():
            flat[place] = value_files.constant(value)
        return tf.nest.pack_sequence_as(weights, flat)

    ((input_spec, finalizers, weight_places),) = described
    metric_names.check_are_names(finalizers)

    def build() -> LocalModel:
        with value_files.left_out():
            return build_local_model(as_in_fit(model_fn()))

    return ModelSpec(
        build=build,
        initial_weights=initial_weights,
        weights_type=initial_weights.type_signature.result,
        data_type=compat.SequenceType(compat.tensorflow_to_type(input_spec)),
        weight_places=weight_places,
        metric_finalizers=finalizers,
        loop_implementation=tff.learning.LoopImplementation.DATASET_REDUCE,
    )


def _functional_model_spec(model: tff.learning.models.FunctionalModel) -> ModelSpec:
    check_functional_model(model)
    with tf.Graph().as_default():
        metrics = model.initialize_metrics_state()
    if isinstance(metrics, Mapping):
        metric_names.check_are_names(metrics)

    @compat.tf_computation
    def initial_weights() -> tff.learning.models.ModelWeights:
        weights = tff.learning.models.ModelWeights(*model.initial_weights)
        return tf.nest.map_structure(value_files.constant, weights)

    return ModelSpec(
        build=lambda: build_local_model(model),
        initial_weights=initial_weights,
        weights_type=initial_weights.type_signature.result,
        data_type=compat.SequenceType(compat.tensorflow_to_type(model.input_spec)),
        weight_places=None,
        metric_finalizers=model.finalize_metrics,
        loop_implementation=(
            tff.learning.LoopImplementation.DATASET_ITERATOR
            if leaves_placeholders(model)
            else tff.learning.LoopImplementation.DATASET_REDUCE
        ),
    )
