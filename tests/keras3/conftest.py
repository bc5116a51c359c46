"""Runs these tests under the local context, as users do."""

import pytest
import tensorflow_federated as tff

from tff_drift import execution


@pytest.fixture(scope="session")
def local():
    return execution.create_local_execution_context()


@pytest.fixture(autouse=True)
def local_context(local):
    with tff.framework.get_context_stack().install(local):
        yield


@pytest.fixture(scope="module")
def native(native_context):
    return tff.framework.get_context_stack().current
