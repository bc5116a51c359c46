import collections

import numpy as np
import pytest

from tff_drift import client_states


def state(value):
    return collections.OrderedDict(
        variate=np.full((2, 3), value, np.float32),
        flags=(np.array([value > 0, False]), np.full((), value, np.float64)),
        rounds=np.int32(value),
    )


@pytest.fixture(name="state")
def state_fixture():
    """Returns `( number -> state )`; equal numbers make equal states."""
    return state


@pytest.fixture(params=["in_memory", "on_disk"])
def states(request, tmp_path):
    if request.param == "in_memory":
        yield client_states.InMemoryClientStates(state(0))
    else:
        with client_states.DiskClientStates(tmp_path / "states", state(0)) as store:
            yield store


@pytest.fixture
def assert_states():
    def check(found, values):
        assert len(found) == len(values)
        for found_state, value in zip(found, values, strict=True):
            expected = state(value)
            assert isinstance(found_state, collections.OrderedDict)
            assert list(found_state) == list(expected)
            pairs = [
                (found_state["variate"], expected["variate"]),
                (found_state["flags"][0], expected["flags"][0]),
                (found_state["flags"][1], expected["flags"][1]),
                (found_state["rounds"], expected["rounds"]),
            ]
            for found_leaf, expected_leaf in pairs:
                assert found_leaf.dtype == expected_leaf.dtype
                assert found_leaf.shape == expected_leaf.shape
                np.testing.assert_array_equal(found_leaf, expected_leaf)

    return check
