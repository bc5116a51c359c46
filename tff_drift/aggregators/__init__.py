"""Aggregation factories, to use as `model_aggregator=` or around one another."""

from tff_drift.aggregators.adaptive_clipping import (
    adaptive_clipping_factory as adaptive_clipping_factory,
)
from tff_drift.aggregators.adaptive_clipping import clipping_norm as clipping_norm
from tff_drift.aggregators.cohort_measurements import (
    cohort_measurements_factory as cohort_measurements_factory,
)
from tff_drift.aggregators.reject_non_finite import (
    reject_non_finite_factory as reject_non_finite_factory,
)
