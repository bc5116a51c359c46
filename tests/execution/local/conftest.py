"""TFF's native context, and ours in every mode."""

import pytest

from tests import tiers
from tests.execution.local import support
from tff_drift import execution


@pytest.fixture(scope="module")
def native(worker, native_context):
    """That of all tests: each has a worker of its own, which takes 100 MB."""
    return native_context


# Of all modules: what runs a process that several of them train is built once.
@pytest.fixture(scope="session")
def local_contexts():
    return {
        name: execution.create_local_execution_context(**options)
        for name, options in support.MODES.items()
    }


@pytest.fixture(params=tiers.first(["fast"], list(support.MODES)))
def local(request, local_contexts):
    """Each mode of the local context in turn, in the first tier the fast one."""
    return local_contexts[request.param]


@pytest.fixture
def contexts(local, request):
    """A mode of the local context, by its name."""
    return {request.node.callspec.params["local"]: local}


@pytest.fixture(scope="session")
def fast(local_contexts):
    return local_contexts["fast"]


@pytest.fixture(scope="session")
def one_by_one():
    """The local context, which vectorizes no clients."""
    return execution.create_local_execution_context(batch_clients=False)


@pytest.fixture(scope="session")
def context():
    """The local context as it is by default."""
    return execution.create_local_execution_context()
