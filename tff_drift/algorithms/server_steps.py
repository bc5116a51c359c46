"""The server's half of a method."""

from __future__ import annotations

import abc
import collections
import copy
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks, optimizers, returned
from tff_drift.optimizers.scheduled import pass_round
from tff_drift.tensors import Tensors

ServerState = collections.OrderedDict[str, Any]
_SERVER_OPTIMIZER = "server_optimizer_fn"


class Cohort(NamedTuple):
    """Statistics of the cohort at the server, `float32` scalars except `mean_steps`.

    Means are over the clients that count, and of what they did, before anything was
    clipped. They have the weights w_i of the updates, so that they can be set against
    the mean pseudo-gradient; `mean_examples` alone is plain.

    Attributes:
      num_clients: M, the clients of the cohort whose update was finite.
      total_weight: Σ w_i of the cohort: M where all have the same weight.
      effective_clients: (Σ w_i)² / Σ w_i², of how many clients of equal weight the mean
        is as random: M where all have the same weight.
      mean_steps: Mean of K_i, the local steps, in the dtype of the weights.
      mean_examples: Mean of the examples trained on, epochs included: the plain mean.
      mean_squared_drift: Mean of ‖g_i‖², g_i being what a client computed to send: for
        most methods its pseudo-gradient θ - θ_i.
      learning_rate: η, the clients' step size in this round; None if their
        optimizer has none.
      round_number: The round, from 0.
      message: The mean of the clients' messages, with the weights of their updates;
        `()` where they send none, or a control variate sums them.
      client_hparams: The clients' hyperparameters in this round, by name.
      mean_scale: By what the mean pseudo-gradient is multiplied to be that of the M
        clients: 1, but with an unweighted aggregator, in whose mean clients that do
        not count are as zeros, the size of the whole cohort over M.
    """

    num_clients: tf.Tensor
    total_weight: tf.Tensor
    effective_clients: tf.Tensor
    mean_steps: tf.Tensor
    mean_examples: tf.Tensor
    mean_squared_drift: tf.Tensor
    learning_rate: tf.Tensor | None
    round_number: tf.Tensor
    message: Any = ()
    client_hparams: Mapping[str, Any] = types.MappingProxyType({})
    mean_scale: tf.Tensor | float = 1.0


class ServerResult(NamedTuple):
    """The result of a server step.

    Attributes:
      state: The server's new state.
      trainable: The cloud model θ, which the next cohort receives.
      measurements: Scalars to report, by their names.
    """

    state: ServerState
    trainable: Tensors
    measurements: collections.OrderedDict[str, tf.Tensor]


class ServerStep(abc.ABC):
    """A server step with a state, from the cohort's mean pseudo-gradient."""

    @abc.abstractmethod
    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns the state before the first round, at the initial model."""

    @abc.abstractmethod
    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the step.

        Args:
          state: The server's state.
          trainable: The cloud model θ that the cohort received.
          pseudo_gradient: ḡ = θ - θ̄, the mean of the cohort's pseudo-gradients.
          cohort: The cohort's figures.
        """

    def scheduled(self, schedule: optimizers.Schedule) -> ServerStep:
        """Returns the step at a scheduled learning rate.

        Args:
          schedule: Multiplies the rate, as a function of the round number.

        Raises:
          ValueError: If the step has no rate, as here.
        """
        raise ValueError(
            "server_rate_schedule must be None for a method whose server step has no "
            f"learning rate, found {checks.shown(schedule)}. Leave it out."
        )

    def check_aggregator(self, model_aggregator: Any) -> None:
        """Raises a `ValueError` unless the step goes with it, as here with any.

        Args:
          model_aggregator: How updates are aggregated, see `ProcessOptions`.
        """
        del model_aggregator

    def pass_round(self, state: ServerState) -> ServerState:
        """Returns the state after a round in which no step counts.

        It is `state` but for what follows the round number.
        """
        return state

    # Whether the state holds a control variate of the server's.
    has_control_variate = False

    def control_variate(self, state: ServerState) -> Tensors:
        """Returns the server's control variate, in the shapes of the weights."""
        raise NotImplementedError("The state holds no control variate.")

    def message(self, state: ServerState) -> Any:
        """Returns what clients receive besides the model: nothing."""
        del state
        return ()

    def aggregate_model(self, state: ServerState, trainable: Tensors) -> Tensors:
        """Returns θ̄, the mean of the clients' models: here the cloud model."""
        del state
        return trainable

    def replace_model(self, state: ServerState, trainable: Tensors) -> ServerState:
        """Returns the state after the model was set from outside."""
        del trainable
        return state

    def get_hparams(self, state: ServerState) -> collections.OrderedDict[str, Any]:
        """Returns the hyperparameters in the state."""
        del state
        return collections.OrderedDict()

    def set_hparams(self, state: ServerState, hparams: Any) -> ServerState:
        """Returns the state with other hyperparameters."""
        del hparams
        return state


def take_step(
    step: ServerStep,
    state: ServerState,
    trainable: Tensors,
    pseudo_gradient: Tensors,
    cohort: Cohort,
) -> ServerResult:
    """Takes a server step that may be a user's.

    Args:
      step: The step.
      state: As for `ServerStep.next`, as the others.
      trainable: Likewise.
      pseudo_gradient: Likewise.
      cohort: Likewise.

    Returns:
      The result of its `next`, of tensors like those that it takes.

    Raises:
      TypeError: If it has others, or is no `ServerResult`.
    """
    result = autograph.of_user(step.next)(state, trainable, pseudo_gradient, cohort)
    returns = f"next of {type(step).__name__} returns"
    remedy = "Return ServerResult(state, trainable, measurements)."
    checks.check_instance(f"What {returns}", result, ServerResult, remedy=remedy)
    what = "a dictionary, empty if there are none"
    checks.check_instance(
        f"The measurements that {returns}", result.measurements, Mapping, what
    )
    return result._replace(
        state=returned.as_like(f"The state that {returns}", result.state, state),
        trainable=returned.as_like(
            f"The trainable that {returns}", result.trainable, trainable
        ),
    )


def aggregate_model(
    step: ServerStep, state: ServerState, trainable: Tensors
) -> Tensors:
    """Returns θ̄ of a server step that may be a user's.

    Args:
      step: The step.
      state: As for `ServerStep.aggregate_model`.
      trainable: Likewise.

    Raises:
      TypeError: If it has other shapes or dtypes than the weights.
    """
    model = autograph.of_user(step.aggregate_model)(state, trainable)
    what = f"The model that aggregate_model of {type(step).__name__} returns"
    return returned.as_like(what, model, trainable)


class CorrectedCloudStep(ServerStep):
    """A step whose cloud model is not the aggregate: it keeps θ̄ as well.

    The state holds θ̄ under 'aggregate_model'.
    """

    def aggregate_model(self, state: ServerState, trainable: Tensors) -> Tensors:
        """Returns θ̄."""
        del trainable
        return tuple(state["aggregate_model"])

    def replace_model(self, state: ServerState, trainable: Tensors) -> ServerState:
        """Returns the state with another aggregate model."""
        return collections.OrderedDict(state, aggregate_model=tuple(trainable))


class OptimizerStep(ServerStep):
    """x <- ServerOpt(x, η_g, Δ): a step of any TFF optimizer.

    Args:
      optimizer: A `tff.learning.optimizers.Optimizer`.
    """

    def __init__(self, optimizer: tff.learning.optimizers.Optimizer) -> None:
        self._optimizer = optimizer

    def scheduled(self, schedule: optimizers.Schedule) -> ServerStep:
        """Returns the step with the optimizer's rate scheduled."""
        scheduled = copy.copy(self)
        scheduled._optimizer = optimizers.build_scheduled(self._optimizer, schedule)
        return scheduled

    def initial_state(self, trainable: Tensors) -> Any:
        """Returns the optimizer's initial state."""
        specs = self._structured(
            tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in trainable
        )
        optimizers.check_dtypes(_SERVER_OPTIMIZER, self._optimizer, specs)
        return self._stored(self._optimizer.initialize(specs))

    def next(
        self, state: Any, trainable: Tensors, pseudo_gradient: Tensors, cohort: Cohort
    ) -> ServerResult:
        """Takes a step of the optimizer."""
        del cohort
        own, weights = self._own(state), self._structured(trainable)
        new_own, moved = autograph.of_user(self._optimizer.next)(
            own, weights, self._structured(pseudo_gradient)
        )
        of_optimizer = f"that next of {_SERVER_OPTIMIZER} returns"
        new_own = returned.as_like(f"The state {of_optimizer}", new_own, own)
        moved = returned.as_like(f"The weights {of_optimizer}", moved, weights)
        return ServerResult(
            self._stored(new_own),
            tuple(tf.nest.flatten(moved)),
            collections.OrderedDict(),
        )

    def pass_round(self, state: Any) -> Any:
        """Returns the state with a schedule of the optimizer at the next round."""
        return self._stored(pass_round(self._optimizer, self._own(state)))

    def get_hparams(self, state: Any) -> collections.OrderedDict[str, Any]:
        """Returns the optimizer's hyperparameters."""
        return self._optimizer.get_hparams(self._own(state))

    def set_hparams(self, state: Any, hparams: Any) -> Any:
        """Returns the state with other hyperparameters of the optimizer."""
        return self._stored(self._optimizer.set_hparams(self._own(state), hparams))

    def _own(self, state: Any) -> Any:
        """Returns the optimizer's state."""
        return state["optimizer"]

    def _stored(self, own: Any) -> Any:
        """Returns the state that has the optimizer's."""
        return collections.OrderedDict(optimizer=own)

    def _structured(self, tensors: Iterable[Any]) -> Any:
        """Returns tensors in the structure in which the optimizer takes them."""
        return tuple(tensors)


class PlainOptimizerStep(OptimizerStep):
    """`OptimizerStep`, its state stored as TFF's own processes store it.

    The state is the optimizer's, with the structure of the weights.

    Args:
      optimizer: A `tff.learning.optimizers.Optimizer`.
      like: A structure of the trainable weights' specs.
    """

    def __init__(self, optimizer: tff.learning.optimizers.Optimizer, like: Any) -> None:
        super().__init__(optimizer)
        self._like = like

    def _own(self, state: Any) -> Any:
        return state

    def _stored(self, own: Any) -> Any:
        return own

    def _structured(self, tensors: Iterable[Any]) -> Any:
        return tf.nest.pack_sequence_as(self._like, list(tensors))


class StepAround(ServerStep):
    """A step around another one, whose state is `step` in its own.

    Args:
      step: The inner step.
    """

    def __init__(self, step: ServerStep) -> None:
        self._step = step

    def scheduled(self, schedule: optimizers.Schedule) -> ServerStep:
        """Returns the step with the inner step's rate scheduled."""
        scheduled = copy.copy(self)
        scheduled._step = self._step.scheduled(schedule)
        return scheduled

    def check_aggregator(self, model_aggregator: Any) -> None:
        """Raises a `ValueError` unless the inner step goes with it."""
        self._step.check_aggregator(model_aggregator)

    def next_of_step(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the inner step; the arguments are those of `next`."""
        return take_step(self._step, state["step"], trainable, pseudo_gradient, cohort)

    def pass_round(self, state: ServerState) -> ServerState:
        """Returns the state with that of the inner step after such a round."""
        step = returned.result_of(self._step, "pass_round", state["step"])
        return collections.OrderedDict(state, step=step)

    def get_hparams(self, state: ServerState) -> collections.OrderedDict[str, Any]:
        """Returns the inner step's hyperparameters."""
        return returned.result_of(self._step, "get_hparams", state["step"])

    def set_hparams(self, state: ServerState, hparams: Any) -> ServerState:
        """Returns the state with other hyperparameters of the inner step."""
        step = returned.result_of(self._step, "set_hparams", state["step"], hparams)
        return collections.OrderedDict(state, step=step)


class AveragedStep(StepAround):
    """Another step, and beside it the running average of the aggregate models.

    θ̂ <- θ̂ + (θ̄ - θ̂) / W_r with W_r = W_{r-1} / γ + 1, so that round r weighs γ^r;
    with γ = 1, W_r is the number of rounds so far. Varno et al. (2022), section 4,
    choose the model for inference so, "by averaging client models though the rounds";
    Karimireddy et al. (2020), equations 8 and 13, let later rounds weigh more.

    Args:
      step: The step that trains.
      growth: γ > 0, the weight of a round in that of the round before.
    """

    def __init__(self, step: ServerStep, growth: float = 1.0) -> None:
        super().__init__(step)
        self._growth = growth
        self.has_control_variate = step.has_control_variate

    def control_variate(self, state: ServerState) -> Tensors:
        """Returns the inner step's control variate."""
        return returned.result_of(self._step, "control_variate", state["step"])

    def initial_state(self, trainable: Tensors) -> ServerState:
        """Returns the inner state with an average of no models."""
        return collections.OrderedDict(
            step=returned.result_of(self._step, "initial_state", trainable),
            average_model=tuple(trainable),
            total_weight=tf.constant(0.0),
        )

    def next(
        self,
        state: ServerState,
        trainable: Tensors,
        pseudo_gradient: Tensors,
        cohort: Cohort,
    ) -> ServerResult:
        """Takes the inner step and averages its aggregate model."""
        result = self.next_of_step(state, trainable, pseudo_gradient, cohort)
        total = state["total_weight"] / self._growth + 1.0
        aggregate = aggregate_model(self._step, result.state, result.trainable)
        average = tuple(
            mean + (model - mean) / tf.cast(total, model.dtype)
            for mean, model in zip(state["average_model"], aggregate, strict=True)
        )
        return result._replace(
            state=collections.OrderedDict(
                step=result.state, average_model=average, total_weight=total
            )
        )

    def message(self, state: ServerState) -> Any:
        """Returns the inner step's message."""
        return returned.result_of(self._step, "message", state["step"])

    def aggregate_model(self, state: ServerState, trainable: Tensors) -> Tensors:
        """Returns θ̂."""
        del trainable
        return tuple(state["average_model"])

    def replace_model(self, state: ServerState, trainable: Tensors) -> ServerState:
        """Returns the state with an average that starts anew."""
        return collections.OrderedDict(
            step=returned.result_of(
                self._step, "replace_model", state["step"], trainable
            ),
            average_model=tuple(trainable),
            total_weight=tf.zeros_like(state["total_weight"]),
        )
