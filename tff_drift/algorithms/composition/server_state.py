"""The server state of learning processes, and the computations that read it."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow_federated as tff

from tff_drift import compat

STATE_NAMES = (
    "global_model_weights",
    "distributor",
    "client_work",
    "aggregator",
    "finalizer",
)


class Accessors(NamedTuple):
    """The computations of a `LearningProcess` besides `initialize` and `next`.

    Attributes:
      get_model_weights: `(S -> W)`.
      set_model_weights: `(<S, W> -> S)`.
      get_hparams: `(S -> H)`.
      set_hparams: `(<S, H> -> S)`.
      control_variate: `(S -> float32[n])`; None for methods without one.
    """

    get_model_weights: compat.Computation
    set_model_weights: compat.Computation
    get_hparams: compat.Computation
    set_hparams: compat.Computation
    control_variate: compat.Computation | None = None


def replace(state: Any, **parts: Any) -> tff.learning.templates.LearningAlgorithmState:
    """Returns a server state with some parts replaced, within a computation.

    Args:
      state: The server state.
      **parts: New values for some of `STATE_NAMES`.
    """
    kept = {name: getattr(state, name) for name in STATE_NAMES}
    return tff.learning.templates.LearningAlgorithmState(**{**kept, **parts})
