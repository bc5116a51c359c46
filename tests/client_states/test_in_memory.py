import numpy as np
import pytest

from tff_drift import client_states
from tff_drift.simulation.records import checkpoint


@pytest.fixture(name="states")
def states_fixture(state):
    return client_states.InMemoryClientStates(state(0))


def test_leaves_travel_in_a_checkpoint(states, state, assert_states, tmp_path):
    ids = ["ann", "böb", "", "\ud83d"]
    states.scatter(ids, [state(value) for value in (1, 2, 3, 4)])
    states.commit(0)
    states.scatter(["ann"], [state(5)])
    path = tmp_path / "checkpoint.npz"
    checkpoint.save_checkpoint(path, 7, {}, {"client_states": states.leaves()})
    saved = checkpoint.load_checkpoint(path).leaves["client_states"]

    loaded = client_states.InMemoryClientStates(state(0))
    loaded.scatter(["gone"], [state(9)])
    loaded.commit(3)
    loaded.load_leaves(saved)
    assert loaded.client_ids() == sorted(ids)
    assert_states(loaded.gather([*ids, "gone"]), [5, 2, 3, 4, 0])
    assert loaded.versions == ()
    assert loaded.nbytes == 4 * loaded.state_nbytes


def test_leaves_of_an_empty_store(states, state):
    loaded = client_states.InMemoryClientStates(state(0))
    loaded.scatter(["gone"], [state(9)])
    loaded.load_leaves(states.leaves())
    assert len(loaded) == 0


def test_leaves_are_one_stacked_array_per_leaf(states, state):
    states.scatter(["bob", "ann"], [state(2), state(1)])
    leaves = states.leaves()
    assert leaves["client_ids"].tobytes() == b"annbob"
    assert leaves["client_id_lengths"].tolist() == [3, 3]
    stacked = [leaves[f"state/{index}"] for index in range(4)]
    variates = [leaf for leaf in stacked if leaf.shape == (2, 2, 3)]
    np.testing.assert_array_equal(variates[0][:, 0, 0], [1, 2])
    variates[0][...] = 9
    np.testing.assert_array_equal(states.gather(["ann"])[0]["variate"], np.ones((2, 3)))


def test_leaves_that_do_not_fit_are_refused(states, state, assert_states):
    states.scatter(["ann", "bob"], [state(1), state(2)])
    good = states.leaves()
    longer = {**good, "client_id_lengths": np.array([3, 4])}
    short = {**good, "state/0": good["state/0"][:1]}
    fewer = {name: leaf for name, leaf in good.items() if name != "state/0"}
    other_value = client_states.InMemoryClientStates(state(1)).leaves()
    other_type = client_states.InMemoryClientStates({"x": np.zeros(2)}).leaves()
    for leaves, message in (
        (longer, "damaged"),
        (short, "damaged"),
        (fewer, "expected.*state/0"),
        (other_value, "another initial_state"),
        (other_type, "expected.*state/3"),
    ):
        with pytest.raises(client_states.ClientStatesError, match=message):
            states.load_leaves(leaves)
    assert_states(states.gather(["ann", "bob"]), [1, 2])
