"""Aggregation factories, to use as `model_aggregator=` or around one another."""

from tff_drift.aggregators.adaptive_clipping import (
    adaptive_clipping_factory,
    clipping_norm,
)
from tff_drift.aggregators.client_state_collection import (
    ClientStateCollectionFactory,
    collected_type,
)
from tff_drift.aggregators.cohort_measurements import cohort_measurements_factory
from tff_drift.aggregators.control_variate import ControlVariateFactory
from tff_drift.aggregators.reject_non_finite import reject_non_finite_factory

__all__ = [
    "ClientStateCollectionFactory",
    "ControlVariateFactory",
    "adaptive_clipping_factory",
    "clipping_norm",
    "cohort_measurements_factory",
    "collected_type",
    "reject_non_finite_factory",
]
