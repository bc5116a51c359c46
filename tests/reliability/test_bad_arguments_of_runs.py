"""Every argument of runs, stores, contexts and callbacks with every bad value.

A bad value gets one line, raised by this library, that names the argument.
"""

import functools

import numpy as np
import pandas as pd
import pytest
import tensorflow_federated as tff

from tests.reliability import bad_values
from tests.reliability.bad_values import (
    ANY,
    COUNT,
    FLAG,
    FUNCTION,
    INTEGER,
    LIST,
    MODEL,
    NUMBER,
    OPTIONAL,
    PATH,
    POSITIVE,
    SMALL,
    TEXT,
)
from tests.soak import program
from tff_drift import client_states, compat, execution, layers, simulation
from tff_drift.simulation import callbacks

_MODEL = program.linear_regression()
_TRAIN = program.client_datasets()
_WEIGHTS = tff.learning.models.ModelWeights(
    list(_MODEL.initial_weights[0]), list(_MODEL.initial_weights[1])
)
_TABLE = pd.DataFrame({"loss_before": [2.0], "loss_after": [1.0]})
_STATE = {"variate": np.zeros(3, np.float32)}
_STORE = [object(), "a", _STATE, []]
_IDS = [None, object(), "a", b"a", 0, [1], [None]]
_OPTIONAL_FLAG = [object(), "no", 1.5, []]

_build = functools.lru_cache(None)(program.build)


def _open_and_close(path, initial_state, run_id):
    with client_states.DiskClientStates(path, initial_state, run_id=run_id):
        pass


def _store():
    return client_states.InMemoryClientStates(_STATE)


# Building processes takes seconds: not before a test needs them.


def _train(process="fed_avg", **arguments):
    if process == "fed_avg":
        process = _build(process)
    return simulation.run_training(process, **arguments)


def _keep(process="scaffold", **arguments):
    if process == "scaffold":
        process = _build(process)
    return simulation.ProcessWithClientStates(process, **arguments)


def _mismatch(client_states, num_clients):
    return simulation.control_variate_mismatch(
        _build("scaffold"), None, client_states, num_clients
    )


@tff.federated_computation(compat.FederatedType(np.int32, compat.CLIENTS))
def _total(values):
    return tff.federated_sum(values)


def _explain(computation=_total, argument=None):
    return execution.create_local_execution_context().explain(computation, argument)


def _evaluate(model_weights):
    evaluate = simulation.build_evaluation(_MODEL, _TRAIN, accuracy_metric=None)
    return evaluate(model_weights)


_LOCAL = {
    "server_device": [object(), 0, "a", ""],
    "client_devices": [object(), 0, "/CPU:0", [], ["a"], [None]],
    "max_concurrent_clients": OPTIONAL,
    "batch_clients": _OPTIONAL_FLAG,
    "dataset_cache_bytes": INTEGER,
    "functionalize_clients": FLAG,
    "operation_threads": OPTIONAL,
    "functions_folder": [value for value in PATH if value is not None],
}
_NATIVE = {
    "max_concurrent_computation_calls": [
        value for value in INTEGER if value is not None
    ],
    "startup_seconds": POSITIVE,
}
# Function, good arguments, and bad values of each argument.
_CASES = [
    (
        client_states.InMemoryClientStates,
        {},
        {"initial_state": [object(), None, "a", (), {}, {"a": "text"}]},
    ),
    (
        _open_and_close,
        {"path": None, "initial_state": _STATE, "run_id": ""},
        {"path": PATH, "run_id": [*ANY, 0]},
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
        simulation.doubling_cohorts,
        {"cohort_size": 2, "rounds": (1, 4)},
        {
            "cohort_size": COUNT,
            "rounds": [None, object(), "a", 3, [0], [1.5], [4, 1]],
            "maximum": [1, "a"],
        },
    ),
    (
        simulation.build_growing_sampling,
        {"train": _TRAIN, "cohort_size": 2, "examples": (10,)},
        {
            "train": LIST,
            "cohort_size": COUNT,
            "examples": [None, object(), "a", 3, [0], [1.5], [4, 1]],
            "maximum": [1, "a"],
            "seed": INTEGER,
        },
    ),
    (
        simulation.mean_latest_model,
        {"process": None, "state": None, "client_states": _store()},
        {"client_states": [None, object(), "a", _store()]},
    ),
    (
        simulation.pool,
        {"datasets": _TRAIN},
        {"datasets": LIST, "client_id": [None, object(), 3]},
    ),
    (
        simulation.build_uniform_sampling(["a", "b"], 1),
        {},
        {"round_number": INTEGER},
    ),
    (
        simulation.ClientDataSource,
        {"train": _TRAIN},
        {"train": LIST, "seed": INTEGER, "by_client_id": FLAG},
    ),
    (
        simulation.evaluate_clients,
        {
            "model_fn": _MODEL,
            "model_weights": _WEIGHTS,
            "test": _TRAIN,
            "train": _TRAIN,
            "client_optimizer_fn": 0.1,
        },
        {
            "model_fn": MODEL,
            "model_weights": [*SMALL, None],
            "test": LIST,
            "train": LIST,
            "client_optimizer_fn": [object(), None, "a", float("nan"), -1.0, True, []],
            "batch_size": COUNT,
        },
    ),
    (
        simulation.diagnose,
        {
            "model_fn": _MODEL,
            "train": _TRAIN,
            "client_optimizer_fn": 0.1,
            "cohort_size": 2,
            "rounds": 0,
        },
        {
            "model_fn": MODEL,
            "train": LIST,
            "client_optimizer_fn": [object(), None, "a", float("nan"), -1.0, True, []],
            "cohort_size": COUNT,
            "rounds": INTEGER,
            "max_clients": COUNT,
            "server_optimizer_fn": [object(), None, "a", float("nan"), -1.0, True, []],
            "client_weighting": [object(), None, "a", 1],
            "seed": [*ANY, None, "a", 1.5, True, [], -1],
            "race": [*FUNCTION],
        },
    ),
    (
        simulation.plot_clients,
        {"table": _TABLE, "metric": "loss"},
        {"table": [*SMALL, None], "metric": [*TEXT, "acc"], "ax": [*SMALL, []]},
    ),
    (
        simulation.label_counts,
        {},
        {"datasets": [*SMALL, None, _TRAIN]},
    ),
    (
        simulation.plot_labels,
        {"datasets": _TRAIN},
        {"datasets": [*SMALL, None, _TRAIN], "ax": [*SMALL, []]},
    ),
    (
        simulation.ClientDataSource(_TRAIN).select,
        {"round_number": 0, "cohort_size": 1},
        {"round_number": INTEGER, "cohort_size": [*COUNT, 7]},
    ),
    (
        simulation.ClientStatesProgramStateManager,
        {"process": None},
        {"manager": [*SMALL, None]},
    ),
    (
        _keep,
        {},
        {
            "process": [*SMALL, None],
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
            "model_fn": MODEL,
            "test": LIST,
            "accuracy_metric": ["accuracy", 0, object()],
            "batch_size": COUNT,
            "max_clients": OPTIONAL,
        },
    ),
    (
        _evaluate,
        {},
        {"model_weights": [*SMALL, None]},
    ),
    (
        _mismatch,
        {"client_states": _store(), "num_clients": 6},
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
    (simulation.model_traffic, {}, {"process": [*SMALL, None]}),
    (simulation.read_rows, {}, {"path": PATH}),
    (
        simulation.unstack_client_states,
        {"initial_client_state": _STATE},
        {"collected": [*LIST, {}, {"index": [0]}]},
    ),
    (
        _train,
        {"train": _TRAIN, "rounds": 1, "cohort_size": 1},
        {
            "process": [*SMALL, None, int],
            "train": LIST,
            "rounds": COUNT,
            "cohort_size": [*COUNT, 7, lambda _: 1],
            "seed": [*INTEGER, 2**32],
            "client_states": [*_STORE, _store()],
            "initial_state": [object(), "a", 0, [], {"a": 1}],
            "callbacks": [*LIST, (1,), callbacks.Progress(False), ["a"]],
            "output_dir": [*ANY, "", "a\0b", 0, [], True],
        },
    ),
    (
        _train,
        {"train": _TRAIN, "rounds": 1},
        {"sampling": [*FUNCTION, lambda _: None, lambda _: "client_0", lambda _: 3]},
    ),
    (
        _train,
        {"train": _TRAIN, "rounds": 1, "sampling": lambda _: ["client_0"]},
        {"cohort_size": [1, 7, "a"]},
    ),
    (
        callbacks.PeriodicEvaluation,
        {"evaluation": lambda weights: {}},
        {"evaluation": [*FUNCTION, None], "rounds_per_evaluation": COUNT},
    ),
    (
        callbacks.Progress,
        {},
        {"show": _OPTIONAL_FLAG, "accuracy_metric": TEXT, "console": SMALL},
    ),
    (callbacks.FailureWatch, {}, {"accuracy_metric": [*ANY, None, 0]}),
    (
        callbacks.TensorBoard,
        {},
        {"folder": [object(), b"a", "", "a\0b", 0, []]},
    ),
    (callbacks.ReleaseRows, {}, {"manager": [*SMALL, None]}),
    *(
        (function, {}, _LOCAL)
        for function in (
            execution.create_local_execution_context,
            execution.create_async_local_execution_context,
            execution.set_local_execution_context,
        )
    ),
    *(
        (function, {}, _NATIVE)
        for function in (
            execution.create_native_execution_context,
            execution.set_native_execution_context,
        )
    ),
    (
        _explain,
        {},
        {"computation": [*SMALL, None], "argument": [object(), "a", 3, ["a"]]},
    ),
    *((layer, {"units": 2}, {"units": COUNT}) for layer in (layers.GRU, layers.LSTM)),
    (layers.Dropout, {}, {"rate": [*NUMBER, 1.0]}),
]
# What is named by something that says more.
_OTHER_NAMES = {
    "argument": "Expected a list with a value for each client|Expected a value of",
    "client_ids": "client_ids|states for",
    "states": "states|state of client|client 'a'",
}


@pytest.fixture(autouse=True, scope="module")
def local_context():
    context = execution.create_local_execution_context()
    with compat.get_context_stack().install(context):
        yield


@pytest.mark.parametrize(
    ("function", "good", "argument", "bad"), bad_values.walk(_CASES)
)
def test_a_bad_value_is_named(tmp_path, monkeypatch, function, good, argument, bad):
    monkeypatch.chdir(tmp_path)
    if function is _open_and_close:
        good = {**good, "path": tmp_path / "states"}
    complaints = bad_values.complaints(
        function, good, argument, bad, _OTHER_NAMES.get(argument)
    )
    assert not complaints, "\n".join(complaints)


def test_the_walk_covers_every_function_of_simulations():
    walked = {getattr(function, "__name__", "") for function, *_ in _CASES}
    public = {name for name in simulation.__all__ if name.islower()} - {"callbacks"}
    # Two under names of this file, two in tests/tasks/test_bad_arguments.py.
    elsewhere = {"run_training", "control_variate_mismatch", "sample_examples", "share"}
    assert public - walked == elsewhere
    bad_values.tell("runs, stores, contexts, callbacks", _CASES)
