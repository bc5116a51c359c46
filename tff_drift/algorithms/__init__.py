"""Federated learning methods, each a builder of a TFF `LearningProcess`."""

from tff_drift.algorithms.adabest import build_adabest
from tff_drift.algorithms.central import build_central
from tff_drift.algorithms.composition import (
    CLIENT_STATES,
    LATEST_MODEL,
    ComposedLearningProcess,
    StatefulLearningProcess,
    compose,
)
from tff_drift.algorithms.fed_adagrad import build_fed_adagrad
from tff_drift.algorithms.fed_adam import build_fed_adam
from tff_drift.algorithms.fed_avg import build_fed_avg
from tff_drift.algorithms.fed_avgm import build_fed_avgm
from tff_drift.algorithms.fed_cm import build_fed_cm
from tff_drift.algorithms.fed_dc import build_fed_dc
from tff_drift.algorithms.fed_dyn import build_fed_dyn
from tff_drift.algorithms.fed_exp import build_fed_exp
from tff_drift.algorithms.fed_lamb import build_fed_lamb
from tff_drift.algorithms.fed_lars import build_fed_lars
from tff_drift.algorithms.fed_meta import build_fed_meta
from tff_drift.algorithms.fed_meta_uga import build_fed_meta_uga
from tff_drift.algorithms.fed_nova import build_fed_nova
from tff_drift.algorithms.fed_prox import build_fed_prox
from tff_drift.algorithms.fed_sgd import build_fed_sgd
from tff_drift.algorithms.fed_share import build_fed_share
from tff_drift.algorithms.fed_yogi import build_fed_yogi
from tff_drift.algorithms.meta_step import add_meta_step
from tff_drift.algorithms.mime import build_mime
from tff_drift.algorithms.mime_lite import build_mime_lite
from tff_drift.algorithms.normalized_fed_avg import build_normalized_fed_avg
from tff_drift.algorithms.options import (
    ProcessOptions,
    StatefulOptions,
    TrainingOptions,
)
from tff_drift.algorithms.scaffnew import build_scaffnew
from tff_drift.algorithms.scaffold import build_scaffold
from tff_drift.algorithms.scaffold_m import build_scaffold_m
from tff_drift.algorithms.scaffold_momentum import build_scaffold_momentum
from tff_drift.algorithms.uga import build_uga
from tff_drift.method_specs import (
    Arithmetic,
    Cost,
    Method,
    Option,
    methods,
    register,
)

__all__ = [
    "CLIENT_STATES",
    "LATEST_MODEL",
    "Arithmetic",
    "ComposedLearningProcess",
    "Cost",
    "Method",
    "Option",
    "ProcessOptions",
    "StatefulLearningProcess",
    "StatefulOptions",
    "TrainingOptions",
    "add_meta_step",
    "build_adabest",
    "build_central",
    "build_fed_adagrad",
    "build_fed_adam",
    "build_fed_avg",
    "build_fed_avgm",
    "build_fed_cm",
    "build_fed_dc",
    "build_fed_dyn",
    "build_fed_exp",
    "build_fed_lamb",
    "build_fed_lars",
    "build_fed_meta",
    "build_fed_meta_uga",
    "build_fed_nova",
    "build_fed_prox",
    "build_fed_sgd",
    "build_fed_share",
    "build_fed_yogi",
    "build_mime",
    "build_mime_lite",
    "build_normalized_fed_avg",
    "build_scaffnew",
    "build_scaffold",
    "build_scaffold_m",
    "build_scaffold_momentum",
    "build_uga",
    "compose",
    "methods",
    "register",
]
