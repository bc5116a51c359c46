import gc

import pytest
import tensorflow_federated as tff


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
def secure_sums_run():
    """Lets secure sums run in plain TensorFlow; TFF's default context refuses."""
    context = tff.backends.test.create_sync_test_cpp_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield
    # The context's destructor ends its worker process.
    del context
    gc.collect()
