"""Server steps as `tff.learning.optimizers.Optimizer`s, and rate schedules.

Plain SGD and heavy-ball momentum are TFF's own,
`tff.learning.optimizers.build_sgdm`: m <- momentum m + delta, then
x <- x - learning_rate m.
"""

from tff_drift.optimizers.adagrad import build_adagrad as build_adagrad
from tff_drift.optimizers.adam import build_adam as build_adam
from tff_drift.optimizers.conversion import OptimizerOrRate as OptimizerOrRate
from tff_drift.optimizers.conversion import as_optimizer as as_optimizer
from tff_drift.optimizers.conversion import check_dtypes as check_dtypes
from tff_drift.optimizers.lamb import build_lamb as build_lamb
from tff_drift.optimizers.lars import build_lars as build_lars
from tff_drift.optimizers.normalized_sgd import (
    build_normalized_sgd as build_normalized_sgd,
)
from tff_drift.optimizers.scheduled import build_scheduled as build_scheduled
from tff_drift.optimizers.schedules import CheckedSchedule as CheckedSchedule
from tff_drift.optimizers.schedules import Schedule as Schedule
from tff_drift.optimizers.schedules import as_schedule as as_schedule
from tff_drift.optimizers.schedules import cohort_scaling as cohort_scaling
from tff_drift.optimizers.schedules import constant as constant
from tff_drift.optimizers.schedules import exponential as exponential
from tff_drift.optimizers.schedules import inverse_sqrt as inverse_sqrt
from tff_drift.optimizers.schedules import per_round_factor as per_round_factor
from tff_drift.optimizers.schedules import product as product
from tff_drift.optimizers.schedules import warm_up as warm_up
from tff_drift.optimizers.yogi import build_yogi as build_yogi
