"""Composes a method's client and server halves into a learning process."""

from tff_drift.algorithms.composition.client import LATEST_MODEL
from tff_drift.algorithms.composition.compose import compose
from tff_drift.algorithms.composition.process import (
    CLIENT_STATES,
    ComposedLearningProcess,
    StatefulLearningProcess,
)

__all__ = [
    "CLIENT_STATES",
    "LATEST_MODEL",
    "ComposedLearningProcess",
    "StatefulLearningProcess",
    "compose",
]
