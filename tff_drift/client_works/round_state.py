"""The server-side state of client work: the round and the hyperparameters."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import compat, returned
from tff_drift.client_works.local_work import ClientWork
from tff_drift.optimizers import schedules

RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class RoundState(NamedTuple):
    """Computations on `S = <round_number=int32, hparams=H>`.

    Attributes:
      initialize: `( -> S)`.
      advance: `(S -> S)`, to the next round.
      learning_rate: `(S -> float32)`, the local step size of the round; None for
        work without one.
      hparams_of_round: A Python function of `S` to the hyperparameters in force,
        the schedule applied, for use inside a TensorFlow computation.
      rate_schedule: The schedule; None for a constant rate.
    """

    initialize: compat.Computation
    advance: compat.Computation
    learning_rate: compat.Computation | None
    hparams_of_round: Callable[[Any], Any]
    rate_schedule: schedules.CheckedSchedule | None

    @property
    def type_signature(self) -> compat.StructType:
        """The type `S`."""
        return self.initialize.type_signature.result


def build_round_state(
    work: ClientWork, rate_schedule: schedules.Schedule | None
) -> RoundState:
    """Builds the state's computations.

    Args:
      work: The client's half of the method, which names the hyperparameters.
      rate_schedule: Multiplies the local learning rate, as a function of the
        round number; None for a constant rate.

    Returns:
      A `RoundState`.

    Raises:
      TypeError: If `rate_schedule` is neither None nor callable.
      ValueError: If there is a schedule and no learning rate for it.
    """
    with tf.Graph().as_default():
        has_rate = RATE in returned.result_of(work, "initial_hparams")
    schedule = None
    if rate_schedule is not None:
        if not has_rate:
            raise ValueError(
                "client_rate_schedule needs a client optimizer with a learning rate "
                "among its hyperparameters; this one has none. Leave the schedule out."
            )
        schedule = schedules.as_schedule(rate_schedule, "client_rate_schedule")
    hparams_of_round = _apply_schedule(schedule)

    @compat.tf_computation
    def initialize() -> Any:
        return collections.OrderedDict(
            round_number=tf.constant(0, tf.int32), hparams=work.initial_hparams()
        )

    state_type = initialize.type_signature.result

    @compat.tf_computation(state_type)
    def advance(state: Any) -> Any:
        return collections.OrderedDict(state, round_number=state["round_number"] + 1)

    learning_rate = None
    if has_rate:
        learning_rate = compat.tf_computation(
            lambda state: hparams_of_round(state)[RATE], state_type
        )
    return RoundState(initialize, advance, learning_rate, hparams_of_round, schedule)


def _apply_schedule(
    schedule: schedules.CheckedSchedule | None,
) -> Callable[[Any], Any]:
    if schedule is None:
        return lambda state: state["hparams"]

    def scheduled(state: Any) -> Any:
        hparams = collections.OrderedDict(state["hparams"])
        factor = tf.cast(schedule(state["round_number"]), tf.float32)
        # As an integer a rate could take no fraction.
        hparams[RATE] = tf.cast(hparams[RATE], tf.float32) * factor
        return hparams

    return scheduled
