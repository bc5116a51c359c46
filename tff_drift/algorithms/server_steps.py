"""The server's half of methods with client memory."""

from __future__ import annotations

import abc
import collections
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift.tensors import Tensors

ServerMemory = collections.OrderedDict[str, Any]


class Cohort(NamedTuple):
    """What the server knows of the cohort, `float32` scalars.

    Means are over the clients that count, uniformly.

    Attributes:
      num_clients: M, the clients of the cohort whose update was finite.
      mean_steps: Mean of K_i, the local steps.
      mean_examples: Mean of the examples trained on, epochs included.
      mean_squared_drift: Mean of ‖g_i‖², g_i = θ - θ_i a client's pseudo-gradient.
      learning_rate: η, the clients' step size in this round.
      round_number: The round, from 0.
    """

    num_clients: tf.Tensor
    mean_steps: tf.Tensor
    mean_examples: tf.Tensor
    mean_squared_drift: tf.Tensor
    learning_rate: tf.Tensor
    round_number: tf.Tensor


class ServerResult(NamedTuple):
    """What a server step comes to.

    Attributes:
      memory: The server's new memory.
      trainable: The cloud model θ, which the next cohort receives.
      measurements: Scalars to report, by their names.
    """

    memory: ServerMemory
    trainable: Tensors
    measurements: collections.OrderedDict[str, tf.Tensor]


class ServerStep(abc.ABC):
    """A server step with memory, from the cohort's mean pseudo-gradient."""

    @abc.abstractmethod
    def initial_memory(self, trainable: Tensors) -> ServerMemory:
        """Returns the memory before the first round, at the initial model."""

    @abc.abstractmethod
    def next(
        self,
        memory: ServerMemory,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step.

        Args:
          memory: The server's memory.
          trainable: The cloud model θ that the cohort received.
          pseudo_gradient: ḡ = θ - θ̄, the mean of the cohort's pseudo-gradients.
          cohort: The cohort's figures.
        """

    def message(self, memory: ServerMemory) -> Any:
        """Returns what clients receive besides the model: nothing."""
        del memory
        return ()

    def aggregate_model(self, memory: ServerMemory, trainable: Tensors) -> Tensors:
        """Returns θ̄, the mean of the clients' models: here the cloud model."""
        del memory
        return trainable

    def replace_model(self, memory: ServerMemory, trainable: Tensors) -> ServerMemory:
        """Returns the memory after the model was set from outside."""
        del trainable
        return memory

    def get_hparams(self, memory: ServerMemory) -> collections.OrderedDict[str, Any]:
        """Returns the hyperparameters in the memory."""
        del memory
        return collections.OrderedDict()

    def set_hparams(self, memory: ServerMemory, hparams: Any) -> ServerMemory:
        """Returns the memory with other hyperparameters."""
        del hparams
        return memory


class CorrectedCloudStep(ServerStep):
    """A step whose cloud model is not the aggregate: it remembers θ̄ as well.

    The memory holds θ̄ under 'aggregate_model'.
    """

    def aggregate_model(self, memory: ServerMemory, trainable: Tensors) -> Tensors:
        """Returns θ̄."""
        del trainable
        return tuple(memory["aggregate_model"])

    def replace_model(self, memory: ServerMemory, trainable: Tensors) -> ServerMemory:
        """Returns the memory with another aggregate model."""
        changed = collections.OrderedDict(memory)
        changed["aggregate_model"] = tuple(trainable)
        return changed


class OptimizerStep(ServerStep):
    """x <- ServerOpt(x, η_g, Δ): a step of any TFF optimizer.

    Args:
      optimizer: A `tff.learning.optimizers.Optimizer`.
    """

    def __init__(self, optimizer: tff.learning.optimizers.Optimizer) -> None:
        self._optimizer = optimizer

    def initial_memory(self, trainable: Tensors) -> ServerMemory:
        """Returns the optimizer's initial state."""
        specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in trainable)
        return collections.OrderedDict(optimizer=self._optimizer.initialize(specs))

    def next(
        self,
        memory: ServerMemory,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes a step of the optimizer."""
        del cohort
        state, trainable = self._optimizer.next(
            memory["optimizer"], tuple(trainable), tuple(pseudo_gradient)
        )
        return ServerResult(
            collections.OrderedDict(optimizer=state),
            tuple(trainable),
            collections.OrderedDict(),
        )

    def get_hparams(self, memory: ServerMemory) -> collections.OrderedDict[str, Any]:
        """Returns the optimizer's hyperparameters."""
        return self._optimizer.get_hparams(memory["optimizer"])

    def set_hparams(self, memory: ServerMemory, hparams: Any) -> ServerMemory:
        """Returns the memory with other hyperparameters of the optimizer."""
        state = self._optimizer.set_hparams(memory["optimizer"], hparams)
        return collections.OrderedDict(optimizer=state)


class AveragedStep(ServerStep):
    """Another step, and beside it the running average of the aggregate models.

    θ̂ <- θ̂ + (θ̄ - θ̂) / t, with t the rounds so far: the model that FedDyn's
    published experiments and AdaBest's deploy.

    Args:
      step: The step that trains.
    """

    def __init__(self, step: ServerStep) -> None:
        self._step = step

    def initial_memory(self, trainable: Tensors) -> ServerMemory:
        """Returns the inner memory with an average of no models."""
        return collections.OrderedDict(
            step=self._step.initial_memory(trainable),
            average_model=tuple(trainable),
            averaged=tf.constant(0.0),
        )

    def next(
        self,
        memory: ServerMemory,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the inner step and averages its aggregate model."""
        result = self._step.next(memory["step"], trainable, pseudo_gradient, cohort)
        averaged = memory["averaged"] + 1.0
        aggregate = self._step.aggregate_model(result.memory, result.trainable)
        average = tuple(
            mean + (model - mean) / tf.cast(averaged, model.dtype)
            for mean, model in zip(memory["average_model"], aggregate)
        )
        return result._replace(
            memory=collections.OrderedDict(
                step=result.memory, average_model=average, averaged=averaged
            )
        )

    def message(self, memory: ServerMemory) -> Any:
        """Returns the inner step's message."""
        return self._step.message(memory["step"])

    def aggregate_model(self, memory: ServerMemory, trainable: Tensors) -> Tensors:
        """Returns the inner step's aggregate model."""
        return self._step.aggregate_model(memory["step"], trainable)

    def replace_model(self, memory: ServerMemory, trainable: Tensors) -> ServerMemory:
        """Returns the memory with an average that starts anew."""
        return collections.OrderedDict(
            step=self._step.replace_model(memory["step"], trainable),
            average_model=tuple(trainable),
            averaged=tf.zeros_like(memory["averaged"]),
        )

    def get_hparams(self, memory: ServerMemory) -> collections.OrderedDict[str, Any]:
        """Returns the inner step's hyperparameters."""
        return self._step.get_hparams(memory["step"])

    def set_hparams(self, memory: ServerMemory, hparams: Any) -> ServerMemory:
        """Returns the memory with other hyperparameters of the inner step."""
        changed = collections.OrderedDict(memory)
        changed["step"] = self._step.set_hparams(memory["step"], hparams)
        return changed
