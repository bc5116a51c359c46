"""Workers on this machine, which stand in for other machines."""

import os
import signal

import pytest
import tensorflow_federated as tff

from tff_drift import execution
from tff_drift.execution.worker import Worker


@pytest.fixture(scope="session")
def native():
    """The context that all tests have by default."""
    return tff.framework.get_context_stack().current


@pytest.fixture
def start_workers():
    """Starts workers that a test may stop and kill; they end with the test."""
    started = []

    def start(number, ports=None):
        workers = [Worker(1, port) for port in ports or [None] * number]
        started.extend(workers)
        return workers

    yield start
    for worker in started:
        if worker.exit_code is None:
            # One that is stopped would not notice anything else.
            os.kill(worker.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def three():
    """A context on three workers that no test harms."""
    workers = [Worker(1) for _ in range(3)]
    context = execution.create_remote_execution_context(addresses_of(workers))
    yield context
    context.close()
    for worker in workers:
        worker.stop()


def addresses_of(workers):
    return [f"127.0.0.1:{worker.port}" for worker in workers]
