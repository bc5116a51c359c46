"""What contexts say that they take best."""

import pytest
import tensorflow_federated as tff

from tff_drift import execution

MIB = 2**20


def _preferences(context):
    with tff.framework.get_context_stack().install(context):
        return execution.current_preferences()


def test_the_local_context_makes_batches_on_demand_and_leaves_large_states():
    local = execution.create_local_execution_context()
    preferences = _preferences(local)
    assert preferences.takes_batches_on_demand
    assert not preferences.prefers_states_at_clients(MIB, 1000)
    assert preferences.prefers_states_at_clients(MIB + 1, 1)


@pytest.mark.parametrize(
    "create",
    [
        execution.create_native_execution_context,
        lambda: tff.framework.SyncExecutionContext(
            tff.framework.ResourceManagingExecutorFactory(lambda cardinalities: None)
        ),
    ],
)
def test_tff_s_engine_takes_datasets_and_collects_up_to_a_message(create):
    preferences = _preferences(create())
    assert not preferences.takes_batches_on_demand
    assert not preferences.prefers_states_at_clients(MIB, 64)
    assert preferences.prefers_states_at_clients(MIB, 65)


class _Unknown(tff.framework.SyncContext):
    def invoke(self, comp, arg):
        raise AssertionError("nothing is run")


class _OfOnesOwn(_Unknown):
    takes_batches_on_demand = True

    def prefers_states_at_clients(self, client_bytes, num_clients):
        return client_bytes > num_clients


def test_unknown_contexts_get_the_forms_that_all_take():
    preferences = _preferences(_Unknown())
    assert not preferences.takes_batches_on_demand
    assert not preferences.prefers_states_at_clients(2**40, 10**6)


def test_a_context_of_ones_own_speaks_for_itself():
    preferences = _preferences(_OfOnesOwn())
    assert preferences.takes_batches_on_demand
    assert preferences.prefers_states_at_clients(3, 2)
    assert not preferences.prefers_states_at_clients(2, 3)
