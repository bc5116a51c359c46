"""AdaBest's β over the rounds: by a schedule, at plateaus, or automatically."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift import checks, optimizers
from tff_drift.algorithms.server_steps import Cohort

AUTO = "auto"
# When β is multiplied by its decay.
PLATEAU, EVERY_ROUND = "plateau", "every_round"
# With β = 1, h would never forget; the paper's choice at full participation.
AUTO_MAXIMUM = 0.98
# Weight of the past in the running means behind the automatic choice.
_AUTO_DECAY = 0.9
# ‖h‖ has not plateaued while it falls by at least this share of its minimum.
_PLATEAU_THRESHOLD = 0.01


class BetaRule(NamedTuple):
    """The rule by which β is chosen in every round.

    Attributes:
      value: β, or its largest value where it is chosen automatically.
      automatic: Whether it is chosen from the variance of the pseudo-gradients.
      schedule: Multiplies β, as a function of the round number; None for none.
      decay: Multiplies β whenever ‖h‖ has plateaued; 1 for never.
      patience: Rounds without a new minimum of ‖h‖ that make a plateau.
    """

    value: float
    automatic: bool
    schedule: optimizers.CheckedSchedule | None
    decay: float
    patience: int


def build_beta_rule(
    beta: float | str,
    schedule: optimizers.Schedule | str,
    decay: float,
    patience: int,
) -> BetaRule:
    """Checks the arguments that describe β.

    Args:
      beta: A number in [0, 1], or 'auto'.
      schedule: 'plateau' or 'every_round', when `decay` multiplies β; or a function
        of the round number that multiplies β besides its decay at plateaus.
      decay: The factor, in (0, 1].
      patience: Rounds that make a plateau, at least 1.

    Returns:
      The rule.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range.
    """
    automatic = isinstance(beta, str)
    if automatic:
        checks.check_one_of("beta", beta, (AUTO,))
        beta = AUTO_MAXIMUM
    checks.check_probability("beta", beta)
    checks.check_fraction("beta_decay", decay)
    checks.check_integer("plateau_patience", patience)
    if isinstance(schedule, str):
        checks.check_one_of("beta_schedule", schedule, (PLATEAU, EVERY_ROUND))
        if schedule == EVERY_ROUND:
            each_round = optimizers.as_schedule(optimizers.per_round_factor(decay))
            return BetaRule(float(beta), automatic, each_round, 1.0, patience)
        return BetaRule(float(beta), automatic, None, decay, patience)
    multiplies = optimizers.as_schedule(schedule, "beta_schedule")
    return BetaRule(float(beta), automatic, multiplies, decay, patience)


def initial_beta_state(rule: BetaRule) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns what the rule remembers, before the first round.

    Args:
      rule: The rule.

    Returns:
      Scalars by name: β itself, a settable hyperparameter, and running figures.
    """
    return collections.OrderedDict(
        beta=tf.constant(rule.value, tf.float32),
        factor=tf.constant(1.0),
        smallest_norm=tf.constant(float("inf")),
        rounds_since=tf.constant(0, tf.int32),
        noise=tf.constant(0.0),
        total=tf.constant(0.0),
    )


def choose_beta(
    rule: BetaRule, state: Any, cohort: Cohort, squared_norm: tf.Tensor
) -> tuple[tf.Tensor, collections.OrderedDict[str, tf.Tensor]]:
    """Chooses β for a round.

    The automatic choice lets h remember as many rounds as it can without the model
    straying by more than one client's update. With d = θ̄ - θ̄_before, a round is

    ```
    d <- β d - ḡ,    h = -β d
    ```

    so that h averages the mean pseudo-gradients ḡ of the past with exponential weights,
    and is as random as the plain average of R rounds for β = (R - 1) / (R + 1): it
    remembers R rounds. What they have in common is what h is for. What differs from
    cohort to cohort has a variance of V/M in each and of R V/M in their sum, by which
    the model strays. Clients tolerate a model that strays by one client's update: it is
    where a cohort of a single client leaves it. So R is the largest for which R V/M is
    at most the mean square of an update. With g_i the clients' pseudo-gradients,

    ```
    V = M/(M-1) (mean ‖g_i‖² - ‖ḡ‖²)       variance among the clients
    noise <- 0.9 noise + 0.1 V/M           E‖ḡ - E ḡ‖²
    total <- 0.9 total + 0.1 mean ‖g_i‖²   E‖g_i‖²
    R = total / noise
    β = min(0.98, (R - 1) / (R + 1))
    ```

    With weights by examples the means have them, and M is (Σ w_i)² / Σ w_i².

    Where clients have nothing in common, R is M: β is 0.33, 0.67 and 0.82 for 2, 5 and
    10 clients, and 0.98 for 100. Where they agree it is 0.98. With a single client the
    variance is unknown and the round counts as noise: β falls to 0, and the server's
    step is FedAvg's.

    Args:
      rule: The rule.
      state: What it remembers.
      cohort: The cohort's figures.
      squared_norm: ‖ḡ‖².

    Returns:
      β and the new state, of which the plateau is not judged yet.
    """
    new_state = collections.OrderedDict(state)
    beta = state["beta"]
    if rule.automatic:
        squared_norm *= cohort.mean_scale**2
        excess = tf.maximum(cohort.mean_squared_drift - squared_norm, 0.0)
        noise = tf.where(
            cohort.effective_clients > 1.5,
            tf.math.divide_no_nan(excess, cohort.effective_clients - 1.0),
            squared_norm,
        )
        for name, value in (("noise", noise), ("total", cohort.mean_squared_drift)):
            new_state[name] = _AUTO_DECAY * state[name] + (1.0 - _AUTO_DECAY) * value
        # 1/R, 0 where no client moved.
        share = tf.math.divide_no_nan(new_state["noise"], new_state["total"])
        beta = tf.minimum(beta, tf.maximum(0.0, (1.0 - share) / (1.0 + share)))
    beta *= state["factor"]
    if rule.schedule is not None:
        beta *= tf.cast(rule.schedule(cohort.round_number), tf.float32)
    return beta, new_state


def judge_plateau(
    rule: BetaRule, state: Any, h_norm: tf.Tensor
) -> collections.OrderedDict[str, tf.Tensor]:
    """Multiplies β by `rule.decay` once ‖h‖ has plateaued, and starts anew.

    Args:
      rule: The rule.
      state: What it remembers.
      h_norm: ‖h‖ after the round.

    Returns:
      The new state.
    """
    new_state = collections.OrderedDict(state)
    if rule.decay == 1:
        return new_state
    smaller = h_norm < (1.0 - _PLATEAU_THRESHOLD) * state["smallest_norm"]
    rounds_since = tf.where(smaller, 0, state["rounds_since"] + 1)
    plateau = rounds_since >= rule.patience
    new_state["smallest_norm"] = tf.where(
        tf.logical_or(smaller, plateau), h_norm, state["smallest_norm"]
    )
    new_state["rounds_since"] = tf.where(plateau, 0, rounds_since)
    new_state["factor"] = tf.where(
        plateau, state["factor"] * rule.decay, state["factor"]
    )
    return new_state
