"""An optimizer whose learning rate follows a schedule."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks
from tff_drift.optimizers import schedules
from tff_drift.optimizers.conversion import as_optimizer
from tff_drift.optimizers.tensorwise import LEARNING_RATE


class _Scheduled(tff.learning.optimizers.Optimizer):
    """See `build_scheduled`."""

    def __init__(
        self,
        optimizer: tff.learning.optimizers.Optimizer,
        schedule: schedules.Schedule,
    ) -> None:
        self._optimizer = optimizer
        self._schedule = schedule

    def initialize(self, specs: Any) -> collections.OrderedDict[str, Any]:
        inner = autograph.of_user(self._optimizer.initialize)(specs)
        if not isinstance(inner, Mapping) or LEARNING_RATE not in inner:
            raise ValueError(
                f"optimizer must keep {LEARNING_RATE!r} in its state to be scheduled, "
                f"found {checks.shown(self._optimizer)} with the state {inner}. To "
                "join several schedules, schedule the optimizer once with their "
                "product."
            )
        if isinstance(inner[LEARNING_RATE], int):
            # As an integer tensor the rate could take no fraction.
            inner = _with_rate(inner, float(inner[LEARNING_RATE]))
        return collections.OrderedDict(
            round_number=tf.constant(0, tf.int32), optimizer=inner
        )

    def next(
        self, state: Mapping[str, Any], weights: Any, gradients: Any
    ) -> tuple[collections.OrderedDict[str, Any], Any]:
        round_number, inner = state["round_number"], state["optimizer"]
        base_rate = inner[LEARNING_RATE]
        factor = self._schedule(round_number)
        rate = base_rate * tf.cast(factor, tf.convert_to_tensor(base_rate).dtype)
        inner, weights = autograph.of_user(self._optimizer.next)(
            _with_rate(inner, rate), weights, gradients
        )
        new_state = collections.OrderedDict(
            round_number=round_number + 1, optimizer=_with_rate(inner, base_rate)
        )
        return new_state, weights

    def get_hparams(
        self, state: Mapping[str, Any]
    ) -> collections.OrderedDict[str, Any]:
        return self._optimizer.get_hparams(state["optimizer"])

    def set_hparams(
        self, state: Mapping[str, Any], hparams: Mapping[str, Any]
    ) -> collections.OrderedDict[str, Any]:
        return collections.OrderedDict(
            round_number=state["round_number"],
            optimizer=autograph.of_user(self._optimizer.set_hparams)(
                state["optimizer"], hparams
            ),
        )


def pass_round(optimizer: tff.learning.optimizers.Optimizer, state: Any) -> Any:
    """Returns an optimizer's state after a round of the server without a step.

    Args:
      optimizer: The server's optimizer.
      state: Its state.

    Returns:
      That of `build_scheduled` at the next round, any other as it is.
    """
    if not isinstance(optimizer, _Scheduled):
        return state
    return collections.OrderedDict(state, round_number=state["round_number"] + 1)


def _with_rate(
    state: Mapping[str, Any], rate: Any
) -> collections.OrderedDict[str, Any]:
    new_state = collections.OrderedDict(state)
    new_state[LEARNING_RATE] = rate
    return new_state


def build_scheduled(
    optimizer: tff.learning.optimizers.Optimizer, schedule: schedules.Schedule
) -> tff.learning.optimizers.Optimizer:
    """Builds an optimizer that takes `optimizer`'s steps at a scheduled rate.

    The learning rate of the step from `round_number` is

    ```
    learning_rate schedule(round_number)
    ```

    where `learning_rate` is `optimizer`'s own, the base rate. The state is

    ```
    <round_number=int32,optimizer=S>
    ```

    for S the state of `optimizer`, which holds the base rate. `round_number`
    counts the steps taken, from 0. At the server of a process of this package it
    counts the rounds, those too in which the server takes no step. TFF's own
    processes keep the whole state where their finalizer rejects an update: such a
    round is not counted there, neither here nor by
    `tff.learning.optimizers.schedule_learning_rate`, which counts steps
    everywhere. `get_hparams` and `set_hparams` show and set the hyperparameters of
    `optimizer`, the base rate among them, as that one does not. With
    `schedules.constant()` every step is `optimizer`'s.

    Args:
      optimizer: An optimizer whose state is a dictionary that holds its rate
        under `tff.learning.optimizers.LEARNING_RATE_KEY` and whose step leaves
        it unchanged, such as any of TFF's or of this package that is not itself
        scheduled. `initialize` raises a `ValueError` if there is no such rate.
      schedule: A function from `round_number` to the factor of the learning
        rate; see `as_schedule` for what is accepted.

    Returns:
      A `tff.learning.optimizers.Optimizer`.

    Raises:
      TypeError: If `optimizer` is not a `tff.learning.optimizers.Optimizer` or
        `schedule` is not a function.
      ValueError: If `as_schedule` refuses `schedule`.
    """
    checks.check_instance("optimizer", optimizer, tff.learning.optimizers.Optimizer)
    return _Scheduled(
        as_optimizer("optimizer", optimizer), schedules.as_schedule(schedule)
    )
