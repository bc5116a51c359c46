"""Typed sections of a run's settings.

`RunSettings.section` makes them, for the function that needs one. Their fields have the
names of the flags, and `None` where a flag has no meaning for the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientOptimizer:
    """Settings of the clients' optimizer."""

    client_learning_rate: float | None
    client_optimizer: str | None
    client_momentum: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """Settings of the clients' local training, but for its optimizer."""

    client_weight_decay: float | None
    gradient_clipping_norm: float | None
    client_rate_schedule: str | None
    client_rate_decay: float | None
    client_rate_decay_rounds: int | None
    client_rate_staircase: bool | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerTraining:
    """Settings of the server's step."""

    server_learning_rate: float | None
    server_rate_scaling: str | None
    clients_per_round: int
    reference_clients_per_round: int | None
    server_warm_up_rounds: int | None
    server_warm_up_from: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregation:
    """Settings of the aggregation of clients' updates."""

    adaptive_clipping: bool
    clipping_quantile: float | None
    clipping_initial_norm: float | None
    clipping_learning_rate: float | None
    cohort_measurements: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cohorts:
    """Settings of the clients of every round."""

    seed: int
    clients_per_round: int
    cohort_doubling: str | None
    cohort_doubling_at: Any
    max_clients_per_round: int | None
    straggler_clock: bool
    straggler_delay: float | None
    straggler_seconds_per_example: float | None
    straggler_left_out: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Settings of evaluation and of what else takes part in training."""

    seed: int
    max_evaluation_clients: int | None
    evaluated_model: str | None
    rounds_per_evaluation: int
    evaluate_on_training_clients: bool
    measure_mismatch: bool
    tensorboard: bool
    track: Sequence[str] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Execution:
    """Settings of the execution context."""

    execution: str
    clients_per_round: int
    max_concurrent_clients: int | None
    ray_address: str | None
    ray_actors: int | None
