import gc

import pytest
import tensorflow_federated as tff

from tff_drift import _tff_exit


@pytest.fixture
def run_rounds():
    """Returns a function that runs rounds of a process and gives their outputs."""

    def run(process, *rounds):
        state = process.initialize()
        outputs = []
        for arguments in rounds:
            outputs.append(process.next(state, *arguments))
            state = outputs[-1].state
        return outputs

    return run


@pytest.fixture
def secure_sums_run(worker):
    """Lets secure sums run in plain TensorFlow; TFF's default context refuses."""
    workers_before = _tff_exit.child_workers()
    context = tff.backends.test.create_sync_test_cpp_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield
    # The context's destructor waits for its worker to end, which ignores the signal
    # that asks for it where the tests run in the background of a shell.
    _tff_exit.end_workers(_tff_exit.child_workers() - workers_before)
    del context
    gc.collect()
