"""Execution contexts of the papers' tests."""

import pytest
import tensorflow_federated as tff

from tff_drift import execution


@pytest.fixture(scope="session")
def shared_local():
    """The local context of all papers, which keeps what runs processes they share."""
    return execution.create_local_execution_context()


@pytest.fixture(scope="module")
def contexts(shared_local):
    """The execution contexts by name: TFF's native one, and the local one."""
    return {
        "native": tff.framework.get_context_stack().current,
        "local": shared_local,
    }


@pytest.fixture(scope="module")
def local_context(contexts):
    """Runs a module's tests under the local context, as users do."""
    with tff.framework.get_context_stack().install(contexts["local"]):
        yield


@pytest.fixture(params=["local", pytest.param("native", marks=pytest.mark.conformance)])
def each_context(request, contexts):
    """Runs a test under each context: in the first tier under the local one.

    Under the native one that tier trains each method in `test_every_method`.
    """
    with tff.framework.get_context_stack().install(contexts[request.param]):
        yield
