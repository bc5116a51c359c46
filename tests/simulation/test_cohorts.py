"""Who runs the rounds of a cohort, and in which form data and states go in."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import client_states, execution, simulation
from tff_drift.execution.batches_on_demand import BatchesOnDemand
from tff_drift.simulation import cohorts

MIB = 2**20


@pytest.fixture(scope="module")
def train():
    clients = {name: np.arange(3, dtype=np.float32) for name in "abc"}
    return simulation.ClientDatasets.from_arrays(clients, batch_size=2, shuffle=False)


class _Process:
    """Notes how it is called, and returns nothing."""

    def next(self, state, data):
        self.called = "next", data
        return tff.learning.templates.LearningProcessOutput(state + 1, {})

    def next_at_clients(self, state, data):
        self.called = "next_at_clients", data
        return tff.learning.templates.LearningProcessOutput(state + 1, {}), []


def _run(context, cohort, **options):
    process = _Process()
    with tff.framework.get_context_stack().install(context):
        output = cohorts.run_round(process, 4, cohort)
    assert output.state == 5
    return process.called


class _Unknown(tff.framework.SyncContext):
    """A context that runs nothing."""

    def invoke(self, comp, arg):
        raise AssertionError("nothing is run")


def _engine():
    return tff.framework.SyncExecutionContext(
        tff.framework.ResourceManagingExecutorFactory(lambda cardinalities: None)
    )


def test_the_local_context_reads_batches_on_demand(train):
    cohort = simulation.Cohort(1, ["b", "a"], train)
    called, data = _run(execution.create_local_execution_context(), cohort)
    assert called == "next"
    assert all(isinstance(each, BatchesOnDemand) for each in data)
    assert [len(each) for each in data] == [2, 2]


@pytest.mark.parametrize("create", [_Unknown, _engine])
def test_contexts_of_tff_get_datasets(train, create):
    called, data = _run(create(), simulation.Cohort(1, ["b", "a"], train))
    assert called == "next"
    assert all(isinstance(each, tf.data.Dataset) for each in data)


def test_what_was_given_goes_in_as_it_is(train):
    given = {"b": [1.0], "a": [2.0]}
    for context in (execution.create_local_execution_context(), _Unknown()):
        cohort = simulation.Cohort(0, ["b", "a"], given)
        assert _run(context, cohort) == ("next", [[1.0], [2.0]])


def _states(num_bytes):
    return client_states.InMemoryClientStates({"c": np.zeros(num_bytes, np.uint8)})


def _stays(monkeypatch, context, num_bytes, num_clients):
    """Returns whether new states stay at the clients."""
    told = []
    monkeypatch.setattr(
        simulation.Cohort,
        "run",
        lambda *args, states_stay=False, **options: told.append(states_stay),
    )
    states = _states(num_bytes)
    cohort = simulation.Cohort(0, ["a"] * num_clients, {"a": []}, states)
    with tff.framework.get_context_stack().install(context):
        cohorts.run_round(_Process(), 0, cohort)
    return told == [True]


@pytest.mark.parametrize(
    ("create", "num_bytes", "num_clients", "stay"),
    [
        (execution.create_local_execution_context, MIB, 1000, False),
        (execution.create_local_execution_context, MIB + 1, 1, True),
        (_engine, MIB, 64, False),
        (_engine, MIB, 65, True),
        (execution.create_native_execution_context, MIB, 65, True),
        (_Unknown, 2**21, 10**3, False),
    ],
)
def test_large_states_stay_at_the_clients(
    monkeypatch, create, num_bytes, num_clients, stay
):
    assert _stays(monkeypatch, create(), num_bytes, num_clients) == stay


class _OfOnesOwn(execution.RoundRunner, _Unknown):
    def run_round(self, process, server_state, cohort):
        data = [(name, cohort.round_number) for name in cohort.clients]
        return cohort.run(process, server_state, data)


def test_a_context_of_ones_own_reads_as_it_likes(train):
    cohort = simulation.Cohort(7, ["b", "a"], train)
    assert _run(_OfOnesOwn(), cohort) == ("next", [("b", 7), ("a", 7)])


def test_a_selection_is_a_mapping_of_datasets(train):
    selection = cohorts.Selection(train, ["c", "a"], 0)
    assert list(selection) == ["c", "a"]
    assert [float(x[0]) for x in selection["a"]] == [0.0, 2.0]
    with pytest.raises(KeyError):
        _ = selection["b"]
