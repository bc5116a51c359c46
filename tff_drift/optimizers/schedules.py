"""Schedules: functions of the round that multiply a base learning rate.

A schedule takes `round_number`, a Python integer or a scalar integer tensor,
0 in the first round, and returns the factor by which the base learning rate is
multiplied in that round, as a scalar float32 tensor. It has no unit, so that one
schedule serves client and server rates alike. The functions here build the
schedules of the papers; `as_schedule` makes one of any function.

All arithmetic is done in float64 and rounded to float32 at the end: 0.998 to the
power of several thousand is exact to float32.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_drift import checks, tensors

# What multiplies a learning rate, as a function of the round number, from 0.
Schedule = Callable[[int | tf.Tensor], float | tf.Tensor]


def _round(round_number: int | tf.Tensor) -> tf.Tensor:
    return tf.cast(round_number, tf.float64)


def constant() -> Schedule:
    """Builds the schedule that is 1 in every round.

    Returns:
      A schedule.
    """

    def schedule(round_number: int | tf.Tensor) -> tf.Tensor:
        del round_number
        return tf.constant(1.0, tf.float32)

    return schedule


def exponential(
    decay_rate: float, decay_rounds: int, staircase: bool = True
) -> Schedule:
    """Builds an exponential decay: decay_rate ^ (round_number / decay_rounds).

    With `staircase` the exponent is rounded down, so that the rate falls at once
    by `decay_rate` every `decay_rounds` rounds. This is the shape of the schedule
    EXPDECAY of the client rate in Reddi et al. (2021), Adaptive Federated
    Optimization, Table 11: https://arxiv.org/abs/2003.00295

    Args:
      decay_rate: The factor per `decay_rounds` rounds, above 0 and at most 1. At
        1 the schedule is `constant()`.
      decay_rounds: The number of rounds per factor, at least 1.
      staircase: Whether the decay happens in steps rather than continuously.

    Returns:
      A schedule.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """
    checks.check_fraction("decay_rate", decay_rate)
    checks.check_integer("decay_rounds", decay_rounds)
    checks.check_flag("staircase", staircase)

    def schedule(round_number: int | tf.Tensor) -> tf.Tensor:
        exponent = _round(round_number) / decay_rounds
        if staircase:
            exponent = tf.floor(exponent)
        base = tf.constant(decay_rate, tf.float64)
        return tf.cast(tf.pow(base, exponent), tf.float32)

    return schedule


def per_round_factor(factor: float) -> Schedule:
    """Builds a geometric decay: factor ^ round_number.

    Used for the client rate with 0.998 by Varno et al. (2022), AdaBest,
    https://arxiv.org/abs/2204.13170, and with 0.992 by Yao et al. (2019),
    Federated Learning with Unbiased Gradient Aggregation and Controllable Meta
    Updating, https://arxiv.org/abs/1910.08234

    Args:
      factor: The factor per round, above 0 and at most 1. At 1 the schedule is
        `constant()`.

    Returns:
      A schedule.

    Raises:
      TypeError: If `factor` is not a number.
      ValueError: If `factor` is out of its range.
    """
    checks.check_fraction("factor", factor)
    return exponential(factor, 1)


def inverse_sqrt(decay_rounds: int = 1) -> Schedule:
    """Builds an inverse square root: 1 / sqrt(1 + round_number / decay_rounds).

    With `decay_rounds` 1, the n-th round has the factor 1 / sqrt(n).

    Args:
      decay_rounds: The time scale in rounds, at least 1: after three times as
        many the rate has halved.

    Returns:
      A schedule.

    Raises:
      TypeError: If `decay_rounds` is not an integer.
      ValueError: If `decay_rounds` is below 1.
    """
    checks.check_integer("decay_rounds", decay_rounds)

    def schedule(round_number: int | tf.Tensor) -> tf.Tensor:
        growth = 1 + _round(round_number) / decay_rounds
        return tf.cast(1 / tf.sqrt(growth), tf.float32)

    return schedule


def warm_up(rounds: int = 100, start: float = 0.0) -> Schedule:
    """Builds a linear warm-up from `start` in round 0 to 1 in round `rounds`.

    After Goyal et al. (2017), Accurate, Large Minibatch SGD,
    https://arxiv.org/abs/1706.02677. With the default `start` the factor of
    round 0 is 0: in that round the model does not move.

    Args:
      rounds: The number of rounds until the factor is 1, at least 0. At 0 the
        schedule is `constant()`.
      start: The factor of round 0, between 0 and 1.

    Returns:
      A schedule.

    Raises:
      TypeError: If an argument is not a number.
      ValueError: If an argument is out of its range.
    """
    checks.check_integer("rounds", rounds, at_least=0)
    checks.check_probability("start", start)
    return _ramp(start, 1.0, rounds)


def cohort_scaling(
    cohort_size: int,
    reference_cohort_size: int,
    rule: str = "sqrt",
    warm_up_rounds: int = 0,
    warm_up_from: str = "reference",
) -> Schedule:
    """Builds the scaling of a server rate that was tuned for another cohort size.

    Charles et al. (2021), On Large-Cohort Training for Federated Learning,
    section 5.1. https://arxiv.org/abs/2106.07820 A server rate eta_s tuned for
    cohorts of M = `reference_cohort_size` becomes, for M' = `cohort_size`,

    ```
    sqrt(M' / M) eta_s    with rule 'sqrt'
    (M' / M) eta_s        with rule 'linear'
    ```

    The paper warms up over 100 rounds: section 5.1 from the unscaled eta_s
    (`warm_up_from='reference'`), appendix B.7 from 0 (`'zero'`, where round 0 does
    not move the model). The factor is linear in between and reaches its full value in
    round `warm_up_rounds`. With equal cohort sizes and no warm-up from 0 the
    schedule is `constant()`.

    Args:
      cohort_size: The number of clients per round, at least 1.
      reference_cohort_size: The number of clients per round that the rate was
        tuned for, at least 1. The paper scales up only; a larger reference scales
        down by the same rule.
      rule: 'sqrt' or 'linear'. The paper finds linear scaling too aggressive.
      warm_up_rounds: The number of rounds until the full factor, at least 0; 0
        means no warm-up.
      warm_up_from: 'reference' or 'zero': the rate of round 0 if there is a
        warm-up.

    Returns:
      A schedule.

    Raises:
      TypeError: If a size or a number of rounds is not an integer.
      ValueError: If an argument is out of its range, or `rule` or
        `warm_up_from` is unknown.
    """
    checks.check_integer("cohort_size", cohort_size)
    checks.check_integer("reference_cohort_size", reference_cohort_size)
    checks.check_one_of("rule", rule, ("sqrt", "linear"))
    checks.check_integer("warm_up_rounds", warm_up_rounds, at_least=0)
    checks.check_one_of("warm_up_from", warm_up_from, ("reference", "zero"))
    ratio = cohort_size / reference_cohort_size
    scale = math.sqrt(ratio) if rule == "sqrt" else ratio
    return _ramp(1.0 if warm_up_from == "reference" else 0.0, scale, warm_up_rounds)


def product(*schedules: Schedule) -> Schedule:
    """Builds the product of schedules, such as a warm-up times a decay.

    Args:
      *schedules: The factors. Of none, the product is `constant()`.

    Returns:
      A schedule.

    Raises:
      TypeError: If an argument is not a function.
      ValueError: If `as_schedule` refuses an argument.
    """
    factors = [as_schedule(schedule, "schedules") for schedule in schedules]

    def schedule(round_number: int | tf.Tensor) -> tf.Tensor:
        values = [factor(round_number) for factor in factors]
        return tf.reduce_prod(tf.cast(values, tf.float32))

    return schedule


class CheckedSchedule:
    """A schedule made by `as_schedule`."""

    def __init__(self, checked: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self._checked = checked

    def __call__(self, round_number: int | tf.Tensor) -> tf.Tensor:
        """Returns the factor of a round, a scalar float32 tensor."""
        return self._checked(tf.cast(round_number, tf.int32))

    def digest(self) -> str:
        """Returns a hash of the factors in the rounds up to 100,000, of later ones few.

        They are rounded to five digits, which do not depend on the machine.
        """
        factors = []
        round_number = 0
        while round_number < 100_000:
            try:
                factors.append(f"{float(self(round_number)):.5g}")
            except tf.errors.OpError:
                factors.append("not finite")
            round_number += 1 + round_number // 100
        return hashlib.sha256("\n".join(factors).encode()).hexdigest()


def as_schedule(function: Any, name: str = "schedule") -> CheckedSchedule:
    """Makes a checked schedule of any function of the round.

    The function may be written with Python's `if` and arithmetic or with
    TensorFlow; it is traced once by `tf.function`. It is tried here, and its
    result is checked again in every round.

    Args:
      function: Takes `round_number`, a scalar float32 tensor that counts from 0,
        and returns a finite scalar of at least 0.
      name: The argument's name, for messages.

    Returns:
      A schedule: it accepts an integer or a scalar integer tensor and returns a
      scalar float32 tensor. Where the function's result is not finite or below 0, it
      raises `tf.errors.InvalidArgumentError` with `name` in the message.

    Raises:
      TypeError: If `function` is not callable.
      ValueError: If `function` fails on a tensor or uses tensors or variables made
        outside it, or if its result for round 0 is not a finite scalar of at
        least 0.
    """
    checks.check_callable(name, function, "a function of round_number")

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def checked(round_number: tf.Tensor) -> tf.Tensor:
        # As a float, so that plain arithmetic such as 0.5**round_number works:
        # TensorFlow does not mix integer tensors with Python floats.
        factor = tf.cast(function(tf.cast(round_number, tf.float32)), tf.float32)
        # A negative rate would train uphill. NaN, since no other check is stacked.
        factor = tf.where(factor >= 0, factor, math.nan)
        return tf.debugging.check_numerics(
            factor, f"{name} must be finite and at least 0"
        )

    def refusal(why: str) -> ValueError:
        return ValueError(
            f"{name} must map round_number, a scalar float32 tensor, by tf operations "
            f"to a finite number of at least 0, found that {checks.shown(function)} "
            f"{why}"
        )

    schedule = CheckedSchedule(checked)
    try:
        traced = tensors.eagerly(checked.get_concrete_function)
    except Exception as error:  # Whatever the user's function may raise.
        raise refusal(f"fails: {_last_line(error)}") from error
    if traced.output_shapes.rank != 0:
        raise refusal(f"returns the shape {traced.output_shapes}.")
    if traced.captured_inputs:
        # TFF serialises the function, and no tensor of this process with it.
        raise refusal("uses tensors or variables made outside it. Make them inside.")
    try:
        tensors.eagerly(lambda: float(schedule(0)))
    except tf.errors.InvalidArgumentError as error:
        raise refusal("does not in round 0.") from error
    return schedule


def _last_line(error: Exception) -> str:
    """The line of an error that says what it is; TensorFlow's follows a traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__


def _ramp(start: float, end: float, rounds: int) -> Schedule:
    """Interpolates linearly from `start` in round 0 to `end` in round `rounds`."""

    def schedule(round_number: int | tf.Tensor) -> tf.Tensor:
        # At least one, so that a ramp over no rounds divides by no zero.
        progress = tf.minimum(_round(round_number) / max(rounds, 1), 1.0)
        if rounds == 0:
            progress = tf.ones_like(progress)
        return tf.cast(start + (end - start) * progress, tf.float32)

    return schedule
