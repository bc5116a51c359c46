"""The base of all optimizers here: state, validation, one step per tensor."""

from __future__ import annotations

import abc
import collections
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks

LEARNING_RATE = tff.learning.optimizers.LEARNING_RATE_KEY
# The number of the step, from 1, among the hyperparameters of those that count steps.
STEP = "step"

Float: TypeAlias = float | tf.Tensor
# Of one tensor's step: the names of the hyperparameters to their values, as
# scalars of the dtype that the step is computed in.
Hparams = Mapping[str, tf.Tensor]


def check_learning_rate(learning_rate: Float) -> None:
    """Raises unless `learning_rate` is finite and at least 0, where it is known.

    A `tf.Tensor` passes: TFF's scheduled client work builds the optimizer inside
    a computation, with a learning rate that is known only when it runs.

    Args:
      learning_rate: The learning rate to check.

    Raises:
      TypeError: If `learning_rate` is neither a real number nor a tensor.
      ValueError: If `learning_rate` is a number below 0 or not finite.
    """
    if not tf.is_tensor(learning_rate):
        checks.check_non_negative(LEARNING_RATE, learning_rate)


def prepare_gradients(weights: Any, gradients: Any) -> Any:
    """Returns `gradients` as dense tensors that match `weights`.

    Args:
      weights: A structure of tensors.
      gradients: A structure of tensors or `tf.IndexedSlices`, one per weight.

    Returns:
      The gradients, with every `tf.IndexedSlices` turned into a tensor.

    Raises:
      ValueError: If a gradient is `None`, or if structures, shapes or dtypes of
        weights and gradients differ.
    """
    gradients = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
    for i, gradient in enumerate(tf.nest.flatten(gradients)):
        if gradient is None:
            raise ValueError(
                f"gradients must hold a tensor for every weight, found None at "
                f"position {i} of the flattened structure. A weight that the loss "
                "does not depend on has gradient tf.zeros_like(weight)."
            )
    tff.learning.optimizers.check_weights_gradients_match(weights, gradients)
    return gradients


def _signature(structure: Any) -> Any:
    return tf.nest.map_structure(lambda t: (t.dtype.name, t.shape.as_list()), structure)


def _check_state_matches(name: str, value: Any, weights: Any) -> None:
    found, expected = _signature(value), _signature(weights)
    if found != expected:
        raise ValueError(
            f"The optimizer's state and the weights must match: {checks.shown(name)} "
            f"holds {checks.shortened(found)}, the weights are "
            f"{checks.shortened(expected)}. Call initialize with the specs of these "
            "weights."
        )


def _as_float32(value: Float) -> Any:
    return tf.cast(value, tf.float32) if tf.is_tensor(value) else np.float32(value)


class TensorwiseOptimizer(tff.learning.optimizers.Optimizer, abc.ABC):
    """An optimizer whose step treats every weight tensor on its own.

    The state is an OrderedDict: the hyperparameters under their names, as
    float32 scalars, then the slots (the moments), each with the structure,
    shapes and dtypes of the weights. A subclass names both and writes `step`.
    """

    # Whether steps depend on their number, which the state then holds after the
    # hyperparameters, as `int32`.
    counts_steps = False

    def __init__(
        self, hparams: Mapping[str, Float], slots: Mapping[str, float]
    ) -> None:
        """Initializes the optimizer.

        Args:
          hparams: The names of the hyperparameters to their values.
          slots: The names of the slots to the value that all their entries
            start with.
        """
        # TensorFlow has no place for an integer of 70 bits.
        self._hparams, self._slots = (
            {name: float(v) if isinstance(v, int) else v for name, v in given.items()}
            for given in (hparams, slots)
        )

    @abc.abstractmethod
    def step(
        self, hparams: Hparams, x: tf.Tensor, delta: tf.Tensor, *slots: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Returns one weight tensor and its slots after a step.

        Args:
          hparams: The hyperparameters.
          x: The weight tensor.
          delta: Its gradient, on the server the pseudo_gradient.
          *slots: The slots of this tensor.

        Returns:
          The new weight tensor, followed by the new slots.
        """

    def initialize(self, specs: Any) -> collections.OrderedDict[str, Any]:
        """Returns the state before the first step, for weights of `specs`."""
        # Numbers stay numbers: TFF's client works broadcast them, and take no tensors.
        state = collections.OrderedDict(
            (name, _as_float32(value)) for name, value in self._hparams.items()
        )
        if self.counts_steps:
            state[STEP] = tf.constant(0, tf.int32)
        for name, initial in self._slots.items():
            state[name] = tf.nest.map_structure(
                lambda spec, value=initial: tf.fill(
                    spec.shape, tf.cast(value, spec.dtype)
                ),
                specs,
            )
        return state

    def next(
        self, state: Mapping[str, Any], weights: Any, gradients: Any
    ) -> tuple[collections.OrderedDict[str, Any], Any]:
        """Returns state and weights after a step on every weight tensor."""
        gradients = prepare_gradients(weights, gradients)
        for name in self._slots:
            _check_state_matches(name, state[name], weights)
        hparams = self.get_hparams(state)
        if self.counts_steps:
            hparams[STEP] = state[STEP] + 1

        tensors = zip(
            *map(
                tf.nest.flatten,
                [weights, gradients, *(state[name] for name in self._slots)],
            ),
            strict=True,
        )
        steps = [self._step(hparams, *of_one) for of_one in tensors]
        new_weights, *new_slots = (
            tf.nest.pack_sequence_as(weights, [step[i] for step in steps])
            for i in range(1 + len(self._slots))
        )
        hparams.update(zip(self._slots, new_slots, strict=True))
        return hparams, new_weights

    def _step(
        self, hparams: Hparams, x: tf.Tensor, *others: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Takes a step in float32 at least: of eight bits 0.999 would be 1."""
        dtype = tf.float32 if x.dtype.size < tf.float32.size else x.dtype
        hparams = {name: tf.cast(value, dtype) for name, value in hparams.items()}
        new = self.step(hparams, *(tf.cast(tensor, dtype) for tensor in (x, *others)))
        return tuple(tf.cast(tensor, x.dtype) for tensor in new)

    def get_hparams(
        self, state: Mapping[str, Any]
    ) -> collections.OrderedDict[str, Any]:
        """Returns the hyperparameters in `state`."""
        return collections.OrderedDict((name, state[name]) for name in self._hparams)

    def set_hparams(
        self, state: Mapping[str, Any], hparams: Mapping[str, Any]
    ) -> collections.OrderedDict[str, Any]:
        """Returns `state` with the hyperparameters that `hparams` names set.

        Args:
          state: The state.
          hparams: The names of hyperparameters, all or some, to their new values.

        Returns:
          The new state.

        Raises:
          ValueError: If `hparams` names what is not a hyperparameter.
        """
        unknown = [name for name in hparams if name not in self._hparams]
        if unknown:
            raise ValueError(
                f"hparams must be among {list(self._hparams)}, found {unknown}."
            )
        new_state = collections.OrderedDict(state)
        for name, value in hparams.items():
            new_state[name] = tf.cast(value, tf.float32)
        return new_state
