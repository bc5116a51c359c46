"""Every argument of the library's public functions with every kind of bad value.

A bad value gets one line, raised by this library, that names the argument. The data's
functions are tried in `tests/tasks/test_bad_arguments.py`.
"""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import bad_values
from tests.bad_values import (
    ANY,
    COUNT,
    FLAG,
    FUNCTION,
    INTEGER,
    NUMBER,
    OPTIONAL,
    PATH,
    POSITIVE,
    TEXT,
)
from tests.reliability import program
from tff_drift import (
    aggregators,
    algorithms,
    client_states,
    client_works,
    compat,
    execution,
    layers,
    optimizers,
    simulation,
)
from tff_drift.simulation import callbacks

_MODEL = program.linear_regression()
_SPEC = client_works.build_model_spec(_MODEL)
_TRAIN = program.client_datasets()
_FED_AVG = program.build("fed_avg")
_SCAFFOLD = program.build("scaffold")
_STATE = {"variate": np.zeros(3, np.float32)}
_BATCHES = tf.data.Dataset.from_tensors((tf.ones([2, 3]), tf.ones([2])))
_UNIFORM = tff.learning.ClientWeighting.UNIFORM

_RATE = [*POSITIVE, lambda: 0.1, tf.keras.optimizers.SGD]
_STEPS = [*bad_values.POSITIVE, tf.keras.optimizers.SGD(), lambda: 0.1]
_SMALL = [object(), "a", 3, lambda *_: None]
_DECAY = [*NUMBER, 1.0]
_SCHEDULE = [*FUNCTION, lambda round_number: None, lambda round_number: -1.0]
_NOT_NEGATIVE = NUMBER
_STORE = [object(), "a", _STATE, []]
_LIST = [object(), None, "a", 0, {1: 2}]
_IDS = [None, object(), "a", b"a", 0, [1], [None]]
_OPTIONAL_FLAG = [object(), "no", 1.5, []]
_CLIENTS = {"model_fn": _MODEL, "client_optimizer_fn": 0.1}
_SERVER = {"server_learning_rate": _RATE[:-2]}
_META = {
    "meta_data": [object(), None, "a", [], _MODEL],
    "meta_learning_rate": NUMBER,
    "meta_epochs": COUNT,
    "meta_batch_size": OPTIONAL,
}
_SHARED = {
    "client_weight_decay": _NOT_NEGATIVE,
    "gradient_clipping_norm": [value for value in POSITIVE if value is not None],
    "client_rate_schedule": _SCHEDULE,
    "server_rate_schedule": _SCHEDULE,
    "model_distributor": _SMALL,
    "model_aggregator": _SMALL,
    "metrics_aggregator": [*_SMALL, int],
    "client_weighting": [*_SMALL, None],
    "loop_implementation": _SMALL,
    "unknown": [1],
}
_ADAPTIVE = {
    "beta_1": _DECAY,
    "tau": [*NUMBER, 0],
    "initial_accumulator": _NOT_NEGATIVE,
}


def _open_and_close(path, initial_state, run_id):
    with client_states.DiskClientStates(path, initial_state, run_id=run_id):
        pass


def _store():
    return client_states.InMemoryClientStates(_STATE)


def _product(schedules):
    return optimizers.product(schedules)


def _train(**arguments):
    return simulation.run_training(**arguments)


# Function, good arguments, and bad values of each argument.
_CASES = [
    (
        algorithms.build_fed_avg,
        _CLIENTS,
        {
            "model_fn": [*FUNCTION, None, lambda: None],
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
            "control_variate_sum_factory": _SMALL,
            "evaluated_model": TEXT,
            "client_optimizer_fn": _STEPS,
            "model_distributor": _SMALL[:1],
            "metrics_aggregator": _SMALL[:1],
            "loop_implementation": _SMALL[:1],
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
        {"num_clients": COUNT, "mu": _NOT_NEGATIVE},
    ),
    (
        algorithms.build_adabest,
        _CLIENTS,
        {
            "mu": _NOT_NEGATIVE,
            "beta": NUMBER,
            "beta_schedule": _SCHEDULE,
            "beta_decay": POSITIVE,
            "plateau_patience": COUNT,
            "mu_by_examples": [*ANY, None, "no"],
        },
    ),
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
            "server_weight_decay": _NOT_NEGATIVE,
            "epsilon": _NOT_NEGATIVE,
        },
    ),
    (
        algorithms.build_fed_lars,
        {**_CLIENTS, "server_learning_rate": 0.1},
        {**_SERVER, "momentum": _DECAY, "server_weight_decay": _NOT_NEGATIVE},
    ),
    (
        algorithms.build_normalized_fed_avg,
        {**_CLIENTS, "server_learning_rate": 0.1},
        _SERVER,
    ),
    (algorithms.build_fed_prox, _CLIENTS, {"mu": _NOT_NEGATIVE}),
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
        {"process": _SMALL[:2], "meta_rate_schedule": _SCHEDULE, **_META},
    ),
    (algorithms.register, {}, {"method": _SMALL}),
    (
        aggregators.adaptive_clipping_factory,
        {},
        {
            "inner_factory": _SMALL,
            "initial_clipping_norm": POSITIVE,
            "target_quantile": [*NUMBER, 1.5],
            "learning_rate": NUMBER,
            "indicator_factory": _SMALL,
        },
    ),
    (
        aggregators.cohort_measurements_factory,
        {},
        {"inner_factory": _SMALL, "sum_factory": _SMALL},
    ),
    (
        aggregators.reject_non_finite_factory,
        {},
        {"inner_factory": _SMALL, "count_sum_factory": _SMALL},
    ),
    (
        aggregators.reject_non_finite_factory().create,
        {"value_type": compat.to_type(np.float32), "weight_type": None},
        {"value_type": [*_SMALL, compat.to_type(np.int32)], "weight_type": _SMALL},
    ),
    (
        aggregators.ControlVariateFactory,
        {"num_clients": 3},
        {"num_clients": POSITIVE, "sum_factory": _SMALL},
    ),
    (
        aggregators.ClientStateCollectionFactory().create,
        {},
        {"value_type": [*_SMALL, None, compat.to_type(np.int32)]},
    ),
    (aggregators.collected_type, {}, {"state_type": [*_SMALL, None]}),
    (aggregators.clipping_norm, {}, {"state": [*_SMALL, None]}),
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
        {"optimizer": _SMALL, "schedule": [*_SCHEDULE, None]},
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
    (client_works.build_model_spec, {}, {"model_fn": [*FUNCTION, None, lambda: None]}),
    (
        client_works.build_client_work,
        {
            "spec": _SPEC,
            "work": client_works.LocalSgd(0.1),
            "client_weighting": _UNIFORM,
        },
        {
            "spec": [*_SMALL, None],
            "work": [*_SMALL, None],
            "metrics_aggregator": _SHARED["metrics_aggregator"],
            "loop_implementation": _SMALL,
        },
    ),
    (
        client_works.check_batches,
        {"name": "batches", "batches": _BATCHES, "data_type": _SPEC.data_type},
        {"batches": [*_SMALL, None, _BATCHES.unbatch()], "data_type": _SMALL},
    ),
    (
        client_states.InMemoryClientStates,
        {},
        {"initial_state": [object(), None, "a", (), {}, {"a": "text"}]},
    ),
    (
        _open_and_close,
        {"path": None, "initial_state": _STATE, "run_id": ""},
        {"path": PATH, "run_id": [*ANY, None, 0]},
    ),
    (_store().gather, {"client_ids": ["a"]}, {"client_ids": _IDS, "copy": FLAG}),
    (
        _store().scatter,
        {"client_ids": ["a"], "states": [_STATE]},
        {
            "client_ids": [*_IDS, ["a", "b"]],
            "states": [object(), None, "a", _STATE, [], [None], [{}], [{"b": 1}]],
            "copy": FLAG,
        },
    ),
    (_store().commit, {}, {"version": INTEGER}),
    (_store().restore, {}, {"version": [*INTEGER, 1]}),
    (_store().prune, {}, {"version": [*INTEGER, 1]}),
    (
        simulation.build_uniform_sampling,
        {"client_ids": ["a", "b"], "cohort_size": 1},
        {
            "client_ids": [None, object(), "a", b"a", 0, {1: 2}],
            "cohort_size": [*COUNT, 3],
            "seed": [*INTEGER, 2**32],
        },
    ),
    (
        simulation.build_uniform_sampling(["a", "b"], 1),
        {},
        {"round_number": INTEGER},
    ),
    (simulation.ClientDataSource, {"train": _TRAIN}, {"train": _LIST, "seed": INTEGER}),
    (
        simulation.ClientDataSource(_TRAIN).select,
        {"round_number": 0, "cohort_size": 1},
        {"round_number": INTEGER, "cohort_size": [*COUNT, 7]},
    ),
    (
        simulation.ClientStatesProgramStateManager,
        {"process": None},
        {"manager": [*_SMALL, None]},
    ),
    (
        simulation.ProcessWithClientStates,
        {"process": _SCAFFOLD},
        {
            "process": [*_SMALL, None, _FED_AVG],
            "client_states": [*_STORE, _store()],
        },
    ),
    (
        simulation.OutputDir,
        {"path": "a"},
        {
            "path": PATH,
            "rounds_per_checkpoint": COUNT,
            "configuration": [object(), None, "a", 0, {1: 2}, {"a": object()}],
        },
    ),
    (
        simulation.build_evaluation,
        {"model_fn": _MODEL, "test": _TRAIN, "accuracy_metric": "num_examples"},
        {
            "model_fn": [*FUNCTION, None, lambda: None],
            "test": _LIST,
            "accuracy_metric": ["accuracy", 0, object()],
            "batch_size": COUNT,
            "max_clients": OPTIONAL,
        },
    ),
    (
        simulation.build_evaluation(_MODEL, _TRAIN, accuracy_metric=None),
        {},
        {"model_weights": [*_SMALL, None]},
    ),
    (
        simulation.control_variate_mismatch,
        {
            "process": _SCAFFOLD,
            "state": None,
            "client_states": _store(),
            "num_clients": 6,
        },
        {"client_states": [*_STORE, None], "num_clients": COUNT},
    ),
    *(
        (
            function,
            {"method": "fed_avg", argument: 3},
            {"method": [*TEXT, "fed_ave"], argument: NUMBER},
        )
        for function, argument in (
            (simulation.client_arithmetic, "num_steps"),
            (simulation.server_arithmetic, "cohort_size"),
        )
    ),
    (simulation.is_timing, {}, {"column": [None, object(), 0, b"a"]}),
    (simulation.without_timing, {}, {"row": [None, object(), 0, "a", []]}),
    (simulation.model_traffic, {}, {"process": [*_SMALL, None]}),
    (simulation.read_rows, {}, {"path": PATH}),
    (
        simulation.unstack_client_states,
        {"initial_client_state": _STATE},
        {"collected": [*_LIST, {}, {"index": [0]}]},
    ),
    (
        _train,
        {"process": _FED_AVG, "train": _TRAIN, "rounds": 1, "cohort_size": 1},
        {
            "process": [*_SMALL, None, int],
            "train": _LIST,
            "rounds": COUNT,
            "cohort_size": [*COUNT, 7],
            "seed": [*INTEGER, 2**32],
            "client_states": [*_STORE, _store()],
            "initial_state": [object(), "a", 0, [], {"a": 1}, _SCAFFOLD.initialize],
            "callbacks": [*_LIST, (1,), callbacks.Progress(False), ["a"]],
            "output_dir": [*ANY, "", "a\0b", 0, [], True],
        },
    ),
    (
        _train,
        {"process": _FED_AVG, "train": _TRAIN, "rounds": 1},
        {"sampling": [*FUNCTION, lambda _: None, lambda _: "client_0", lambda _: 3]},
    ),
    (
        callbacks.PeriodicEvaluation,
        {"evaluation": lambda weights: {}},
        {"evaluation": [*FUNCTION, None], "rounds_per_evaluation": COUNT},
    ),
    (
        callbacks.Progress,
        {},
        {"show": _OPTIONAL_FLAG, "accuracy_metric": TEXT, "console": _SMALL},
    ),
    (callbacks.FailureWatch, {}, {"accuracy_metric": [*ANY, None, 0]}),
    (
        callbacks.TensorBoard,
        {},
        {"folder": [object(), b"a", "", "a\0b", 0, []]},
    ),
    (callbacks.ReleaseRows, {}, {"manager": [*_SMALL, None]}),
    (
        execution.create_local_execution_context,
        {},
        {
            "server_device": [object(), 0, "a", ""],
            "client_devices": [object(), 0, "/CPU:0", [], ["a"], [None]],
            "max_concurrent_clients": OPTIONAL,
            "batch_clients": _OPTIONAL_FLAG,
            "dataset_cache_bytes": INTEGER,
            "splice_dataset_loops": FLAG,
        },
    ),
    (
        execution.create_native_execution_context,
        {},
        {
            "max_concurrent_computation_calls": [
                value for value in INTEGER if value is not None
            ],
            "startup_seconds": POSITIVE,
        },
    ),
    (
        execution.create_remote_execution_context,
        {"addresses": ["localhost:1"]},
        {
            "addresses": [None, object(), "a:1", [], [1], ["a"], ["a:b"], ["a:1"] * 2],
            "connect_seconds": POSITIVE,
            "heartbeat_seconds": POSITIVE,
            "part_seconds": POSITIVE,
            "max_retries": INTEGER,
        },
    ),
    (layers.Dropout, {}, {"rate": [*NUMBER, 1.0]}),
]
_WALK = [
    pytest.param(
        function,
        good,
        argument,
        bad,
        id=f"{getattr(function, '__qualname__', 'evaluate')}-{argument}",
    )
    for function, good, arguments in _CASES
    for argument, bad in arguments.items()
]
# What is named by something that says more.
_OTHER_NAMES = {
    "shared_data": "shared_data",
    "client_ids": "client_ids|states for",
    "states": "states|state of client|client 'a'",
}


@pytest.fixture(autouse=True, scope="module")
def local_context():
    context = execution.create_local_execution_context()
    with compat.get_context_stack().install(context):
        yield


@pytest.mark.parametrize(("function", "good", "argument", "bad"), _WALK)
def test_a_bad_value_is_named(tmp_path, monkeypatch, function, good, argument, bad):
    monkeypatch.chdir(tmp_path)
    if function is _open_and_close:
        good = {**good, "path": tmp_path / "states"}
    complaints = bad_values.complaints(
        function, good, argument, bad, _OTHER_NAMES.get(argument, argument)
    )
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
    bad_values.tell("the library", _CASES)
