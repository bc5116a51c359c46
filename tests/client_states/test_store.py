"""What every store of client states does."""

import threading

import ml_dtypes
import numpy as np
import pytest

from tff_drift import client_states

# 2 * 3 float32, 2 bools, 1 float64, 1 int32.
STATE_NBYTES = 24 + 2 + 8 + 4

# Empty, with a null byte, outside the first Unicode plane, and half of a pair.
ODD_IDS = ["", "a\0b", "a", "\U0001f600", "\ud83d", "O'Hara; --", "x" * 1000]


def test_unseen_clients_have_the_initial_state_and_are_not_counted(
    states, assert_states
):
    assert_states(states.gather(["ann", "bob", "ann"]), [0, 0, 0])
    assert len(states) == 0
    assert states.client_ids() == []
    assert states.state_nbytes == STATE_NBYTES


def test_gather_returns_what_was_scattered_last(states, state, assert_states):
    states.scatter(["bob", "ann"], [state(1), state(2)])
    states.scatter(["ann"], [state(3)])
    assert_states(states.gather(["ann", "eve", "bob"]), [3, 0, 1])
    assert states.client_ids() == ["ann", "bob"]
    assert len(states) == 2


def test_any_string_is_an_id(states, state, assert_states):
    values = list(range(1, len(ODD_IDS) + 1))
    states.scatter(ODD_IDS, list(map(state, values)))
    assert_states(states.gather(ODD_IDS), values)
    assert states.client_ids() == sorted(ODD_IDS)
    assert_states(states.gather([np.str_("a")]), [3])


def test_every_bit_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    initial = {
        "bytes": np.zeros(3, np.int8),
        "none": np.zeros((0, 4), np.float32),
        "complex": np.zeros(2, np.complex128),
        "half": np.zeros(5, np.float16),
        "unsigned": np.zeros((), np.uint64),
    }
    # Random bits: infinities, denormal numbers and NaNs with payloads among them.
    given = {
        name: np.frombuffer(rng.bytes(leaf.nbytes), leaf.dtype).reshape(leaf.shape)
        for name, leaf in initial.items()
    }
    for store in (
        client_states.InMemoryClientStates(initial),
        client_states.DiskClientStates(tmp_path / "states", initial),
    ):
        store.scatter(["ann"], [given])
        (found,) = store.gather(["ann"])
        for name, leaf in given.items():
            assert found[name].dtype == leaf.dtype
            assert found[name].shape == leaf.shape
            assert found[name].tobytes() == leaf.tobytes()
        store.close()


def test_states_are_copies(states, state, assert_states):
    given = state(1)
    states.scatter(["ann"], [given])
    given["variate"][...] = 9
    first, again = states.gather(["ann", "ann"])
    first["variate"][...] = 9
    unseen, initial = states.gather(["new"])[0], states.initial_state
    unseen["variate"][...] = 9
    initial["variate"][...] = 9
    assert_states([again, *states.gather(["ann", "new"])], [1, 1, 0])


def test_states_that_are_not_copies_cannot_change_the_store(
    states, state, assert_states
):
    states.scatter(["ann"], [state(1)])
    found = states.gather(["ann", "new"], copy=False)
    states.scatter(["ann", "new"], [state(2), state(3)])
    assert_states(found, [1, 0])
    for each in found:
        if each["variate"].flags.writeable:
            each["variate"][...] = 9
    assert_states(states.gather(["ann", "new", "newer"]), [2, 3, 0])


def test_states_given_for_good_are_held(states, state, assert_states):
    states.scatter(["ann", "bob"], [state(1), state(2)], copy=False)
    for found in states.gather(["ann", "bob"]):
        found["variate"][...] = 9
    states.scatter(["bob"], [state(3)], copy=False)
    assert_states(states.gather(["ann", "bob", "new"]), [1, 3, 0])


def test_other_containers_with_the_same_names_are_taken(states, state, assert_states):
    given = dict(reversed(state(1).items()))
    given["flags"] = list(given["flags"])
    states.scatter(["ann"], [given])
    assert_states(states.gather(["ann"]), [1])


def with_leaf(state, name, leaf):
    state[name] = leaf
    return state


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s: with_leaf(s, "rounds", 1), TypeError, "'bob'.*'rounds'.*int64.*int"),
        (
            lambda s: with_leaf(s, "variate", np.zeros((3, 2), np.float32)),
            ValueError,
            r"'bob'.*'variate'.*\(3, 2\).*\(2, 3\)",
        ),
        (lambda s: with_leaf(s, "more", 1), ValueError, "'bob'.*more.*expected"),
        (lambda s: dict(list(s.items())[1:]), ValueError, "'bob'.*expected.*variate"),
        (lambda s: with_leaf(s, "rounds", None), TypeError, "object, expected int32"),
    ],
)
def test_states_of_another_type_are_refused(
    states, state, assert_states, change, error, message
):
    states.scatter(["ann"], [state(1)])
    with pytest.raises(error, match=message):
        states.scatter(["ann", "bob"], [state(2), change(state(3))])
    assert_states(states.gather(["ann", "bob"]), [1, 0])


def test_unfit_cohorts_are_refused(states, state, assert_states):
    two = [state(1), state(2)]
    with pytest.raises(ValueError, match="'ann' more than once"):
        states.scatter(["ann", "ann"], two)
    with pytest.raises(ValueError, match="2 states for 1 client_ids"):
        states.scatter(["ann"], two)
    with pytest.raises(TypeError, match="list with one state per client, found Ord"):
        states.scatter(["ann"], state(1))
    for ids, message in (
        ("ann", r"a sequence of ids, found 'ann'. Give a list of strings"),
        ([3], r"found 3.*str\(\)"),
        ([b"ann"], r"found b'ann'.*decode"),
    ):
        with pytest.raises(TypeError, match=message):
            states.gather(ids)
        with pytest.raises(TypeError, match=message):
            states.scatter(ids, two[:1])
    assert len(states) == 0


@pytest.mark.parametrize(
    ("initial_state", "error", "message"),
    [
        ({}, ValueError, "holds no array"),
        ({"name": "ann"}, TypeError, "<U3 at 'name'"),
        (
            [None],
            TypeError,
            "object at '0'.*numbers and booleans .*leave it out",
        ),
        (
            {"x": np.zeros(2, ml_dtypes.bfloat16)},
            TypeError,
            r"bfloat16 at 'x'.*NumPy's own dtypes: .*convert it.*astype\(np.float32\)",
        ),
    ],
)
def test_unfit_initial_states_are_refused(tmp_path, initial_state, error, message):
    with pytest.raises(error, match=message):
        client_states.InMemoryClientStates(initial_state)
    with pytest.raises(error, match=message):
        client_states.DiskClientStates(tmp_path / "states", initial_state)
    assert not (tmp_path / "states").exists()


def test_restore_brings_back_a_version(states, state, assert_states):
    states.scatter(["ann", "bob"], [state(1), state(1)])
    states.commit(0)
    states.scatter(["ann", "eve"], [state(2), state(2)])
    states.scatter(["ann"], [state(3)])
    states.commit(5)
    states.scatter(["bob"], [state(4)])
    assert states.versions == (0, 5)
    states.restore(5)
    assert_states(states.gather(["ann", "bob", "eve"]), [3, 1, 2])
    states.restore(0)
    assert_states(states.gather(["ann", "bob", "eve"]), [1, 1, 0])
    assert states.client_ids() == ["ann", "bob"]
    assert states.versions == (0,)
    # The dropped version's number is free again.
    states.scatter(["ann"], [state(6)])
    states.commit(5)
    states.restore(5)
    assert_states(states.gather(["ann"]), [6])


def test_prune_drops_older_versions_only(states, state, assert_states):
    for version in range(4):
        states.scatter(["ann"], [state(version + 1)])
        states.commit(version)
    states.scatter(["ann"], [state(9)])
    states.prune(2)
    assert states.versions == (2, 3)
    assert_states(states.gather(["ann"]), [9])
    with pytest.raises(client_states.ClientStatesError, match=r"version 1.*\[2, 3\]"):
        states.restore(1)
    states.restore(3)
    assert_states(states.gather(["ann"]), [4])
    states.restore(2)
    assert_states(states.gather(["ann"]), [3])


def test_commit_can_be_repeated_but_not_changed(states, state):
    states.commit(3)
    states.commit(3)
    assert states.versions == (3,)
    with pytest.raises(ValueError, match="version 2 is not above 3"):
        states.commit(2)
    states.scatter(["ann"], [state(1)])
    with pytest.raises(ValueError, match="version 3 is not above 3"):
        states.commit(3)
    with pytest.raises(ValueError, match=r"version 4 is not.*\[3\].*Commit it"):
        states.prune(4)
    for call in (states.commit, states.restore, states.prune):
        with pytest.raises(TypeError, match="version must be an integer"):
            call(1.0)
        with pytest.raises(ValueError, match="version must be at least 0"):
            call(-1)


def test_space_follows_the_clients_seen(states, state):
    """At most two states per client: the last version's and the present one."""
    for version in range(30):
        for _ in range(3):
            states.scatter(["ann", "bob"], [state(version), state(version)])
        states.commit(version)
        states.prune(version)
    if isinstance(states, client_states.InMemoryClientStates):
        assert states.nbytes == 2 * STATE_NBYTES
    else:
        # The new states of a cohort are written before the old ones are free.
        data = (states.path / "states.bin").stat().st_size
        assert data <= 3 * 2 * STATE_NBYTES
        assert data < states.nbytes


def test_threads_may_share_a_store(states, state, assert_states):
    errors = []

    def work(index):
        try:
            for value in range(1, 21):
                states.scatter([f"client {index}"], [state(value)])
                states.gather(["client 0", "client 1"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert_states(states.gather([f"client {index}" for index in range(4)]), [20] * 4)


def test_a_fingerprint_is_of_one_store_and_one_version(states, state, assert_states):
    states.scatter(["ann"], [state(1)])
    first = states.commit(1)
    assert states.commit(1) == first
    states.scatter(["ann", "bob"], [state(2), state(1)])
    second = states.commit(2)
    assert second != first
    other = client_states.InMemoryClientStates(state(0))
    other.scatter(["ann"], [state(1)])
    foreign = other.commit(1)
    for version, wrong in ((1, second), (2, first), (1, foreign), (2, "")):
        with pytest.raises(
            client_states.ClientStatesError,
            match=f"other states of version {version} .* another run, or has been",
        ):
            states.restore(version, wrong)
    # Nothing was dropped.
    assert states.versions == (1, 2)
    states.restore(2, second)
    assert_states(states.gather(["ann", "bob"]), [2, 1])
    states.restore(1, first)
    assert_states(states.gather(["ann", "bob"]), [1, 0])
    with pytest.raises(TypeError, match="fingerprint must be a string"):
        states.restore(1, 1)
