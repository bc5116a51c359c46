"""A local instance of Ray with two actors, shared by the tests of a file."""

import importlib.util

import pytest
import tensorflow_federated as tff

from tff_drift import execution
from tff_drift.execution.on_ray import cluster

STORE_BYTES = 200 * 2**20
# So that the actors of several contexts have room on a small machine.
OPTIONS = {"num_actors": 2, "processors": 0.25}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Says of the tests that start actors that they take long."""
    for item in items:
        if "instance" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.no_smoke)


@pytest.fixture(scope="session")
def native():
    """The context that all tests have by default."""
    return tff.framework.get_context_stack().current


@pytest.fixture(scope="session")
def instance():
    """A local instance of Ray, which ends with the tests."""
    # Not imported: `connect` sets the environment that Ray reads then.
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray, the optional extra, is not installed")
    ray = cluster.connect(None, STORE_BYTES)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def two(instance):
    """A context on two actors that no test harms."""
    context = execution.create_ray_execution_context(**OPTIONS)
    yield context
    context.close()
