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
def without_cryptography():
    """Returns a function that makes secure sums run where there is no protocol."""

    def replaced(process):
        return tff.templates.AggregationProcess(
            process.initialize,
            tff.backends.test.replace_secure_intrinsics_with_bodies(process.next),
        )

    return replaced
