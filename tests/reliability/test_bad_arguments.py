"""Every argument of methods and their parts with every kind of bad value.

A bad value gets one line, raised by this library, that names the argument. See also
`test_bad_arguments_of_runs.py`, and `tests/tasks/test_bad_arguments.py` for data.
"""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.reliability import bad_values
from tests.reliability.bad_values import (
    ANY,
    COUNT,
    FLAG,
    FUNCTION,
    INTEGER,
    MODEL,
    NUMBER,
    OPTIONAL,
    POSITIVE,
    SMALL,
    TEXT,
)
from tests.soak import program
from tff_drift import aggregators, algorithms, client_works, compat, optimizers

_MODEL = program.linear_regression()
_UNIFORM = tff.learning.ClientWeighting.UNIFORM


class _Later:
    """A good value that is only made when a test needs it: it takes time."""

    def __init__(self, make):
        self.make = make


_SPEC = _Later(lambda: client_works.build_model_spec(_MODEL))
_BATCHES = _Later(lambda: tf.data.Dataset.from_tensors((tf.ones([2, 3]), tf.ones([2]))))
_FED_AVG = _Later(lambda: program.build("fed_avg"))
_SGD = _Later(lambda: client_works.LocalSgd(0.1))

_RATE = [*POSITIVE, lambda: 0.1, tf.keras.optimizers.SGD]
_STEPS = [*POSITIVE, tf.keras.optimizers.SGD, lambda: 0.1]
# The last one is 1 in float32.
_DECAY = [*NUMBER, 1.0, 1 - 1e-9]
_SCHEDULE = [*FUNCTION, lambda round_number: None, lambda round_number: -1.0]
_CLIENTS = {"model_fn": _MODEL, "client_optimizer_fn": 0.1}
_SERVER = {"server_learning_rate": _RATE[:-2]}
_META = {
    "meta_data": [object(), None, "a", [], _MODEL],
    "meta_learning_rate": NUMBER,
    "meta_epochs": COUNT,
    "meta_batch_size": OPTIONAL,
}
_SHARED = {
    "client_weight_decay": NUMBER,
    "gradient_clipping_norm": [value for value in POSITIVE if value is not None],
    "client_rate_schedule": _SCHEDULE,
    "server_rate_schedule": _SCHEDULE,
    "model_distributor": SMALL,
    "model_aggregator": SMALL,
    "metrics_aggregator": [*SMALL, int],
    "client_weighting": [*SMALL, None],
    "loop_implementation": SMALL,
    "unknown": [1],
}
_ADAPTIVE = {
    "beta_1": _DECAY,
    "tau": [*NUMBER, 0],
    "initial_accumulator": NUMBER,
}


def _product(schedules):
    return optimizers.product(schedules)


def _check_batches(batches, data_type):
    client_works.check_batches("batches", batches, data_type or _SPEC.make().data_type)


# Function, good arguments, and bad values of each argument.
_CASES = [
    (
        algorithms.build_fed_avg,
        _CLIENTS,
        {
            "model_fn": MODEL,
            "client_optimizer_fn": _STEPS,
            "server_optimizer_fn": _STEPS,
            **_SHARED,
        },
    ),
    (
        algorithms.build_scaffold,
        {**_CLIENTS, "num_clients": 6},
        {
            "num_clients": COUNT,
            "option": TEXT,
            "total_examples": [*POSITIVE[:4], -1],
            "control_variate_sum_factory": SMALL,
            "evaluated_model": TEXT,
            "averaging_growth": POSITIVE,
            "client_optimizer_fn": _STEPS,
            "model_distributor": SMALL[:1],
            "metrics_aggregator": SMALL[:1],
            "loop_implementation": SMALL[:1],
        },
    ),
    (
        algorithms.build_scaffold_m,
        {"model_fn": _MODEL, "client_learning_rate": 0.1, "num_clients": 6},
        {"client_learning_rate": _RATE, "num_clients": COUNT},
    ),
    (
        algorithms.build_fed_dyn,
        {**_CLIENTS, "num_clients": 6},
        {
            "num_clients": COUNT,
            "mu": NUMBER,
            "mean_examples": [value for value in POSITIVE if value is not None],
            "keep_latest_models": FLAG,
        },
    ),
    (
        algorithms.build_fed_nova,
        _CLIENTS,
        {"client_optimizer_fn": _STEPS, "mu": NUMBER, "message_aggregator": SMALL},
    ),
    (
        algorithms.build_fed_exp,
        _CLIENTS,
        {"epsilon": POSITIVE, "mu": NUMBER, "message_aggregator": SMALL},
    ),
    (
        algorithms.build_fed_cm,
        {"model_fn": _MODEL, "client_learning_rate": 0.1},
        {"client_learning_rate": _RATE, "alpha": [*POSITIVE, 1.5]},
    ),
    (
        algorithms.build_scaffold_momentum,
        {"model_fn": _MODEL, "client_learning_rate": 0.1, "num_clients": 6},
        {"client_learning_rate": _RATE, "num_clients": COUNT, "beta": [*POSITIVE, 1.5]},
    ),
    (
        algorithms.build_fed_dc,
        {"model_fn": _MODEL, "client_learning_rate": 0.1},
        {"client_learning_rate": _RATE, "alpha": NUMBER, "correct_gradients": FLAG},
    ),
    (
        algorithms.build_scaffnew,
        {"model_fn": _MODEL, "client_learning_rate": 0.1, "num_clients": 6},
        {
            "client_learning_rate": _RATE,
            "num_clients": COUNT,
            "probability": [*POSITIVE, 1.5],
        },
    ),
    (
        algorithms.build_mime,
        _CLIENTS,
        {"client_optimizer_fn": _STEPS, "message_aggregator": SMALL},
    ),
    (algorithms.build_mime_lite, _CLIENTS, {"client_optimizer_fn": _STEPS}),
    (
        algorithms.build_adabest,
        _CLIENTS,
        {
            "mu": NUMBER,
            "beta": NUMBER,
            "beta_schedule": _SCHEDULE,
            "beta_decay": POSITIVE,
            "plateau_patience": COUNT,
            "mu_by_examples": [*ANY, None, "no"],
        },
    ),
    (algorithms.build_central, _CLIENTS, {"client_optimizer_fn": _STEPS}),
    (
        algorithms.build_fed_avgm,
        _CLIENTS,
        {**_SERVER, "momentum": _DECAY},
    ),
    *(
        (build, {**_CLIENTS, "server_learning_rate": 0.1}, {**_SERVER, **_ADAPTIVE})
        for build in (
            algorithms.build_fed_adagrad,
            algorithms.build_fed_adam,
            algorithms.build_fed_yogi,
        )
    ),
    (
        algorithms.build_fed_lamb,
        {**_CLIENTS, "server_learning_rate": 0.1},
        {
            **_SERVER,
            **_ADAPTIVE,
            "beta_2": _DECAY,
            "server_weight_decay": NUMBER,
            "epsilon": NUMBER,
        },
    ),
    (
        algorithms.build_fed_lars,
        {**_CLIENTS, "server_learning_rate": 0.1},
        {**_SERVER, "momentum": _DECAY, "server_weight_decay": NUMBER},
    ),
    (
        algorithms.build_normalized_fed_avg,
        {**_CLIENTS, "server_learning_rate": 0.1},
        _SERVER,
    ),
    (algorithms.build_fed_prox, _CLIENTS, {"mu": NUMBER}),
    (
        algorithms.build_fed_sgd,
        {"model_fn": _MODEL, "server_learning_rate": 0.1},
        _SERVER,
    ),
    (
        algorithms.build_fed_share,
        {**_CLIENTS, "shared_data": _BATCHES},
        {"shared_data": [object(), "a", []], "local_epochs": COUNT},
    ),
    (
        algorithms.build_uga,
        {
            "model_fn": _MODEL,
            "client_learning_rate": 0.1,
            "server_optimizer_fn": 1.0,
            "local_epochs": 1,
        },
        {"client_learning_rate": _RATE, "local_epochs": COUNT},
    ),
    (algorithms.build_fed_meta, _CLIENTS, {"meta_data": [object(), None]}),
    (
        algorithms.build_fed_meta_uga,
        {
            "model_fn": _MODEL,
            "client_learning_rate": 0.1,
            "server_optimizer_fn": 1.0,
            "local_epochs": 1,
            "meta_data": _BATCHES,
        },
        {"local_epochs": COUNT},
    ),
    (
        algorithms.add_meta_step,
        {
            "process": _FED_AVG,
            "model_fn": _MODEL,
            "meta_data": _BATCHES,
            "meta_learning_rate": 0.1,
        },
        {"process": SMALL[:2], "meta_rate_schedule": _SCHEDULE, **_META},
    ),
    (algorithms.register, {}, {"method": SMALL}),
    (
        aggregators.adaptive_clipping_factory,
        {},
        {
            "inner_factory": SMALL,
            "initial_clipping_norm": POSITIVE,
            "target_quantile": [*NUMBER, 1.5],
            "learning_rate": NUMBER,
            "indicator_factory": SMALL,
        },
    ),
    (
        aggregators.cohort_measurements_factory,
        {},
        {"inner_factory": SMALL, "sum_factory": SMALL},
    ),
    (
        aggregators.reject_non_finite_factory,
        {},
        {"inner_factory": SMALL, "count_sum_factory": SMALL},
    ),
    (
        aggregators.reject_non_finite_factory().create,
        {"value_type": compat.to_type(np.float32), "weight_type": None},
        {"value_type": [*SMALL, compat.to_type(np.int32)], "weight_type": SMALL},
    ),
    (
        aggregators.ControlVariateFactory,
        {"num_clients": 3},
        {"num_clients": POSITIVE, "sum_factory": SMALL},
    ),
    (
        aggregators.ClientStateCollectionFactory().create,
        {},
        {"value_type": [*SMALL, None, compat.to_type(np.int32)]},
    ),
    (aggregators.collected_type, {}, {"state_type": [*SMALL, None]}),
    (aggregators.clipping_norm, {}, {"state": [*SMALL, None]}),
    *(
        (build, {"learning_rate": 0.1}, {"learning_rate": NUMBER, **_ADAPTIVE})
        for build in (
            optimizers.build_adagrad,
            optimizers.build_adam,
            optimizers.build_lamb,
            optimizers.build_yogi,
        )
    ),
    (
        optimizers.build_lars,
        {"learning_rate": 0.1},
        {
            "learning_rate": NUMBER,
            "momentum": _DECAY,
            "weight_decay": NUMBER,
            "epsilon": NUMBER,
        },
    ),
    (optimizers.build_normalized_sgd, {}, {"learning_rate": NUMBER}),
    (
        optimizers.build_scheduled,
        {"optimizer": optimizers.build_adam(0.1), "schedule": optimizers.constant()},
        {"optimizer": SMALL, "schedule": [*_SCHEDULE, None]},
    ),
    (optimizers.as_optimizer, {"name": "value"}, {"value": _STEPS}),
    (optimizers.as_schedule, {"name": "function"}, {"function": [*_SCHEDULE, None]}),
    (
        optimizers.cohort_scaling,
        {"cohort_size": 10, "reference_cohort_size": 5},
        {
            "cohort_size": COUNT,
            "reference_cohort_size": COUNT,
            "rule": TEXT,
            "warm_up_rounds": INTEGER,
            "warm_up_from": TEXT,
        },
    ),
    (
        optimizers.exponential,
        {"decay_rate": 0.5, "decay_rounds": 3},
        {
            "decay_rate": [*POSITIVE, 1.5],
            "decay_rounds": COUNT,
            "staircase": FLAG,
        },
    ),
    (optimizers.inverse_sqrt, {}, {"decay_rounds": COUNT}),
    (optimizers.per_round_factor, {}, {"factor": [*POSITIVE, 1.5]}),
    (_product, {}, {"schedules": [*_SCHEDULE, None]}),
    (optimizers.warm_up, {}, {"rounds": INTEGER, "start": [*NUMBER, 1.5]}),
    (
        client_works.LocalSgd,
        {"client_optimizer_fn": 0.1},
        {
            "client_optimizer_fn": _STEPS,
            "client_weight_decay": NUMBER,
            "gradient_clipping_norm": _SHARED["gradient_clipping_norm"],
        },
    ),
    (client_works.ProximalSgd, {"client_optimizer_fn": 0.1}, {"mu": NUMBER}),
    (
        client_works.KeepTraceSgd,
        {"client_learning_rate": 0.1, "local_epochs": 1},
        {"client_learning_rate": _RATE, "local_epochs": COUNT},
    ),
    (client_works.build_model_spec, {}, {"model_fn": MODEL}),
    (
        algorithms.compose,
        {"model_fn": _MODEL, "work": _SGD, "server_step": 1.0},
        {
            "model_fn": MODEL,
            "work": [*SMALL, None],
            "metrics_aggregator": _SHARED["metrics_aggregator"],
            "loop_implementation": SMALL,
        },
    ),
    (
        _check_batches,
        {"batches": _BATCHES, "data_type": None},
        {"batches": [*SMALL, None], "data_type": SMALL},
    ),
]


@pytest.mark.parametrize(
    ("function", "good", "argument", "bad"), bad_values.walk(_CASES)
)
def test_a_bad_value_is_named(function, good, argument, bad):
    good = {
        name: value.make() if isinstance(value, _Later) else value
        for name, value in good.items()
    }
    complaints = bad_values.complaints(function, good, argument, bad)
    assert not complaints, "\n".join(complaints)


def test_the_walk_covers_every_builder():
    walked = {getattr(function, "__qualname__", "") for function, *_ in _CASES}
    builders = {
        name
        for package in (algorithms, optimizers, aggregators, client_works)
        for name, value in vars(package).items()
        if inspect.isfunction(value) and name.startswith("build_")
    }
    assert builders <= walked
    bad_values.tell("methods, aggregators, optimizers, local training", _CASES)
