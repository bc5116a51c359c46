"""A Keras 3 model as a function of its weights, an input and a seed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from tff_drift import checks
from tff_drift.layers import step_seed
from tff_drift.models import shared_values
from tff_drift.models.constraints import check_unconstrained
from tff_drift.models.normalizations import normalizing_by_weights
from tff_drift.models.outside import check_made_inside
from tff_drift.tensors import eagerly

T = TypeVar("T")

# What to do about layers that are adapted where models are built.
ADAPT_OUTSIDE = (
    "TFF builds models in graphs, in which nothing is computed yet. Adapt it outside, "
    "where mean = layer.adapt_mean.numpy(), variance = layer.adapt_variance.numpy() or "
    "vocabulary = layer.get_vocabulary() is what it learned, and make it in model_fn "
    "as Normalization(mean=mean, variance=variance) or with vocabulary=vocabulary."
)
# Keras casts a seed to 32 bits, of which one is the sign.
_SEED_BITS = 0x7FFFFFFF


def import_keras3() -> Any:
    """Returns the module `keras`.

    Raises:
      ImportError: If it is missing, or is Keras 2.
      ValueError: If it computes with another backend than TensorFlow.
    """
    import keras

    if not keras.__version__.startswith("3."):
        raise ImportError(
            f"Models of Keras 3 need Keras 3, and keras is {keras.__version__}. It "
            "comes with TensorFlow 2.16 and newer, on Python 3.12 and 3.13. Models of "
            "Keras 2 go through tff.learning.models.from_keras_model."
        )
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            f"keras computes with {checks.shown(backend)}, and TFF with TensorFlow. "
            "Set the environment variable KERAS_BACKEND=tensorflow before keras is "
            "imported."
        )
    return keras


def where_made(variables: Sequence[Any], function: Callable[[], T]) -> T:
    """Returns what a function returns where Keras' variables can be read.

    Args:
      variables: The variables: of the present graph, or of none.
      function: A function without arguments.
    """
    return function() if any(map(_is_in_graph, variables)) else eagerly(function)


class ModelOutput(NamedTuple):
    """The results of a call of a model.

    Attributes:
      predictions: The outputs, a structure of tensors.
      set: The new values of the non-trainable weights that the call sets, by their
        position; those of frozen layers are never among them.
      losses: The losses that layers add, scalars.
    """

    predictions: Any
    set: Mapping[int, tf.Tensor]
    losses: Sequence[tf.Tensor]


def split_variables(model: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Returns trainable weights, other weights, and the states of seed generators.

    Args:
      model: A built `keras.Model`.
    """
    weights = {id(variable) for variable in model.weights}
    others = list(model.non_trainable_variables)
    return (
        list(model.trainable_variables),
        [variable for variable in others if id(variable) in weights],
        [variable for variable in others if id(variable) not in weights],
    )


def unbuilt_layers(model: Any) -> list[str]:
    """Returns the names of layers that are not built, the model among them.

    Keras marks a class of a user's as built by its `build`, whose layers may not be.

    Args:
      model: A `keras.Model`.
    """
    return [layer.name for layer in model._flatten_layers() if not layer.built]


class StatelessModel:
    """A Keras 3 model as a function of its weights.

    The model's own variables are neither read nor written when it is called. States of
    seed generators are not weights: a call gets seeds of the local step, or outside of
    client work seeds made of the input and the weights.

    Args:
      model: A `keras.Model`, which is built here as far as it is not yet.
      input_spec: The `tf.TensorSpec` structure of its input.

    Raises:
      ValueError: If the model has no trainable weights, or constraints of them.
    """

    def __init__(self, model: Any, input_spec: Any) -> None:
        self.keras_model, self._input_spec = model, input_spec
        self.name = model.name
        if unbuilt_layers(model):
            self.output_spec()
        self.trainable, self.non_trainable, self._seeds = split_variables(model)
        if not self.trainable:
            raise ValueError(
                f"keras_model {checks.shown(model.name)} has no trainable weights. Set "
                "trainable = True for what clients are to train."
            )
        check_unconstrained(model, self.trainable)

    def output_spec(self) -> Any:
        """Returns the structure of `keras.KerasTensor`s of the model's outputs."""
        keras = import_keras3()
        inputs = tf.nest.map_structure(
            lambda spec: keras.KerasTensor(tuple(spec.shape), spec.dtype.name),
            self._input_spec,
        )
        return where_made(
            self.keras_model.variables,
            lambda: self.keras_model(inputs, training=False),
        )

    def initial_values(self) -> tuple[list[Any], list[Any]]:
        """Returns the values of the trainable and of the other weights, now."""
        shared_values.remember(each.value for each in self.non_trainable)
        return _values(self.trainable), _values(self.non_trainable)

    def __call__(
        self,
        trainable: Sequence[tf.Tensor],
        non_trainable: Sequence[tf.Tensor],
        inputs: Any,
        training: bool,
    ) -> ModelOutput:
        """Calls the model.

        Args:
          trainable: The values of its trainable weights.
          non_trainable: The values of the other weights.
          inputs: Of the structure of `input_spec`.
          training: Whether layers do what they do in training.

        Returns:
          A `ModelOutput`.

        Raises:
          ValueError: If the call sets variables that are not non-trainable weights.
        """
        keras = import_keras3()
        mapping = [
            *zip(self.trainable, trainable, strict=True),
            *zip(self.non_trainable, non_trainable, strict=True),
            *zip(self._seeds, self._seed_values(inputs, trainable), strict=True),
        ]
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            before = dict(scope.state_mapping)
            with normalizing_by_weights(self.keras_model):
                predictions = self.keras_model(inputs, training=training)
            # As in `fit`, what is no scalar counts by its sum.
            losses = [
                each if each.shape.rank == 0 else tf.reduce_sum(each)
                for each in map(tf.convert_to_tensor, self.keras_model.losses)
            ]
        new = {
            key: value
            for key, value in scope.state_mapping.items()
            if value is not before.get(key)
        }
        self._check_what_was_set(set(new))
        places = {id(each): place for place, each in enumerate(self.non_trainable)}
        updates = {places[key]: value for key, value in new.items() if key in places}
        return ModelOutput(predictions, updates, losses)

    def _check_what_was_set(self, variables: set[int]) -> None:
        """Raises if new values would be lost; variables are given by their `id`."""
        beginning = f"keras_model {checks.shown(self.name)} sets, when it is called, "
        for each in self.trainable:
            if id(each) in variables:
                raise ValueError(
                    f"{beginning}its trainable weight {checks.shown(each.path)}, as "
                    "SpectralNormalization does, and clients would not keep that. Set "
                    "only weights that are not trainable."
                )
        if variables - set(map(id, [*self.non_trainable, *self._seeds])):
            raise ValueError(
                f"{beginning}a variable that is not one of its weights, and clients "
                "would "
                "not keep that. Make it with add_weight(trainable=False). A layer that "
                "calls keras.random needs a keras.random.SeedGenerator as an "
                "attribute, and a recurrent layer no stateful=True."
            )

    def _seed_values(self, inputs: Any, trainable: Sequence[tf.Tensor]) -> list[Any]:
        if not self._seeds:
            return []
        seed = step_seed.draw_seed()
        if seed is None:
            seed = step_seed.build_step_seed(0, 0, (inputs, trainable[0]))
        folded = (
            tf.random.experimental.stateless_fold_in(seed, number)
            for number in range(len(self._seeds))
        )
        return [
            tf.cast(value & _SEED_BITS, variable.dtype)
            for variable, value in zip(self._seeds, folded, strict=True)
        ]


@contextlib.contextmanager
def outside_values(name: str) -> Iterator[None]:
    """Makes constants of values from outside of TFF's graph, which it cannot take.

    `keras.regularizers.L1` and a `Normalization` of a given mean, for example, hold
    tensors that are not weights.

    Args:
      name: The name of the Keras model, for the message.

    Yields:
      Nothing; a function is traced inside.

    Raises:
      ValueError: If a table or a variable comes from there.
    """
    with tf.init_scope():
        is_outside_eager = tf.executing_eagerly()
    if is_outside_eager:
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    capture = graph.capture

    has_other = False

    def as_constant(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal has_other
        if not isinstance(tensor, tf.__internal__.EagerTensor):
            return capture(tensor, *args, **kwargs)
        if tensor.dtype in (tf.resource, tf.variant):
            # Raised here, the message would stand in the middle of one of Keras.
            has_other = True
            return capture(tensor, *args, **kwargs)
        with graph.as_default():
            return tf.constant(tensor.numpy())

    graph.capture = as_constant
    try:
        yield
    finally:
        graph.capture = capture
    if has_other:
        raise ValueError(
            f"keras_model {checks.shown(name)}, its loss or a metric has a table or a "
            "variable that was made outside of model_fn and is not a weight, as "
            "lookup layers have. Make model, loss and metrics in model_fn itself."
        )


def _is_in_graph(variable: Any) -> bool:
    """Returns whether a variable was made in a graph, where it has no value yet."""
    return tf.is_symbolic_tensor(variable.value.handle)


def _values(variables: Sequence[Any]) -> list[Any]:
    if any(map(_is_in_graph, variables)):
        check_made_inside(variable.value.handle for variable in variables)
        return [variable.value.initial_value for variable in variables]
    # Unlike `numpy()`, this copies nothing in RAM.
    return eagerly(lambda: [np.asarray(v.value.read_value()) for v in variables])
