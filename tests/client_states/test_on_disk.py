import contextlib
import gc
import os
import pathlib
import re
import resource
import shutil
import sqlite3
import subprocess

import numpy as np
import pytest

from tests.forks import programs
from tff_drift import client_states
from tff_drift.client_states import on_disk, state_index


@pytest.fixture(name="path")
def path_fixture(tmp_path):
    return tmp_path / "deep" / "states"


@pytest.fixture(name="filled")
def filled_fixture(path, state):
    """A closed store of the run "a" whose version 1 has ann 1 and bob 2."""
    with client_states.DiskClientStates(path, state(0), run_id="a") as states:
        states.scatter(["ann", "bob"], [state(1), state(2)])
        states.commit(1)
    return path


def content(path):
    return {file.name: file.read_bytes() for file in pathlib.Path(path).iterdir()}


def refused(path, initial_state, *messages, run_id="a"):
    """Opens a store, which must be refused, and not change a byte."""
    before = content(path)
    with pytest.raises(client_states.ClientStatesError) as caught:
        client_states.DiskClientStates(path, initial_state, run_id=run_id)
    assert content(path) == before
    for message in (re.escape(str(path)), *messages):
        assert re.search(message, str(caught.value))


def test_the_next_program_finds_the_last_version(filled, state, assert_states):
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        states.scatter(["ann", "eve"], [state(3), state(3)])
        states.prune(1)
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        assert states.versions == (1,)
        assert states.client_ids() == ["ann", "bob"]
        assert_states(states.gather(["ann", "bob", "eve"]), [1, 2, 0])
        states.restore(1)
        states.scatter(["ann"], [state(4)])
        states.commit(2)
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        assert states.versions == (1, 2)
        assert_states(states.gather(["ann", "bob"]), [4, 2])


def opened_elsewhere(path):
    """What another program says that opens a store of the run "a"."""
    code = (
        "import sys; from tests.client_states import conftest\n"
        "from tff_drift import client_states as states\n"
        "try: states.DiskClientStates(sys.argv[1], conftest.state(0), run_id='a')\n"
        "except states.ClientStatesError as error: print(error)"
    )
    return subprocess.run(
        [*programs.python(), "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_store_is_used_by_one_program_at_a_time(filled, state, assert_states):
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        assert "in use by another program" in opened_elsewhere(filled)
        (filled.parent / "alias").symlink_to(filled)
        for path in (filled, filled.parent / "alias"):
            with pytest.raises(
                client_states.ClientStatesError,
                match="open in this program already: use that object, or call its clo",
            ):
                client_states.DiskClientStates(path, state(0), run_id="a")
        # And this program's attempts let no other one in.
        assert "in use by another program" in opened_elsewhere(filled)
        assert_states(states.gather(["ann"]), [1])
    states.close()
    for call in (
        lambda: states.gather(["ann"]),
        lambda: states.scatter(["ann"], [state(1)]),
        lambda: len(states),
        lambda: states.commit(2),
    ):
        with pytest.raises(client_states.ClientStatesError, match="is closed"):
            call()


def test_a_store_that_nobody_has_any_more_is_closed(filled, state, assert_states):
    gc.collect()
    descriptors = len(os.listdir("/dev/fd"))
    gc.disable()
    try:
        for version in (2, 3):
            states = client_states.DiskClientStates(filled, state(0), run_id="a")
            states.scatter(["ann"], [state(version)])
            states.commit(version)
            states.scatter(["ann"], [state(9)])
            del states
        assert len(os.listdir("/dev/fd")) == descriptors
    finally:
        gc.enable()
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        assert states.versions == (1, 2, 3)
        assert_states(states.gather(["ann", "bob"]), [3, 2])


def test_a_store_that_could_not_be_opened_is_not_open(filled, state):
    for _ in range(2):
        refused(filled, state(0), "belongs to the run 'a', not to 'b'", run_id="b")
    client_states.DiskClientStates(filled, state(0), run_id="a").close()


def test_a_store_of_another_run_or_state_is_refused(filled, state):
    refused(filled, state(0), "belongs to the run 'a', not to 'b'", run_id="b")
    refused(filled, state(1), "it had values of sha256 .* now", "choose another path")
    refused(
        filled, {"x": np.zeros(2)}, r"it had flags/0: bool\[2\], now it has x: float64"
    )
    refused(filled, [*state(0).values(), np.zeros(99)], "another initial_state")
    with pytest.raises(TypeError, match="run_id must be a string"):
        client_states.DiskClientStates(filled, state(0), run_id=3)


def test_a_store_of_any_run_is_taken_where_none_is_asked_for(filled, state):
    with client_states.DiskClientStates(filled, state(0), run_id=None) as states:
        assert states.versions
    # It is that of its run still, and a new one is of none.
    refused(filled, state(0), "belongs to the run 'a', not to 'b'", run_id="b")
    new = filled.parent / "new"
    client_states.DiskClientStates(new, state(0), run_id=None).close()
    client_states.DiskClientStates(new, state(0)).close()


def test_folders_and_files_of_others_are_refused(tmp_path, state):
    (tmp_path / "thesis.txt").write_text("precious")
    refused(tmp_path, state(0), "other files: thesis.txt", "empty or a new folder")
    with pytest.raises(client_states.ClientStatesError, match=r"thesis.txt.*Choose a"):
        client_states.DiskClientStates(tmp_path / "thesis.txt", state(0))
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_store_that_was_deleted_in_use_says_so(tmp_path, state):
    for name, replaced in (("once", False), ("again", True)):
        folder = tmp_path / name
        with client_states.DiskClientStates(folder, state(0)) as states:
            states.scatter(["ann"], [state(1)])
            states.commit(1)
            shutil.rmtree(folder)
            if replaced:
                client_states.DiskClientStates(folder, state(0)).close()
            states.scatter(["ann"], [state(2)])
            with pytest.raises(client_states.ClientStatesError, match="is gone: its"):
                states.commit(2)


def test_indexes_of_others_are_refused(filled, state):
    index = filled / "index.sqlite"
    ours = bytearray(index.read_bytes())
    newer = ours.copy()
    newer[60:64] = (2).to_bytes(4, "big")
    index.write_bytes(newer)
    refused(filled, state(0), "format 2, this version reads format 1")
    index.write_bytes(b"not a database")
    refused(filled, state(0), "not an SQLite file")
    index.write_bytes(b"")
    refused(filled, state(0), "not an SQLite file")
    index.unlink()
    with sqlite3.connect(index) as connection:
        connection.execute("CREATE TABLE properties (x)")
    connection.close()
    refused(filled, state(0), "not written by tff_drift")
    index.unlink()
    refused(filled, state(0), "holds no index.sqlite", "other files: states.bin")


def test_truncated_files_are_refused(filled, state):
    index, data = filled / "index.sqlite", filled / "states.bin"
    whole_index, whole_data = index.read_bytes(), data.read_bytes()
    for length in (len(whole_index) // 2, 5000, 100):
        index.write_bytes(whole_index[:length])
        refused(filled, state(0), "is damaged", "Restart the run")
    index.write_bytes(whole_index)
    data.write_bytes(whole_data[:-1])
    refused(filled, state(0), "states.bin has 75 bytes, its index needs 76")
    data.unlink()
    refused(filled, state(0), "states.bin is gone")


def test_a_changed_index_is_refused_or_harmless(filled, state, assert_states):
    """A damaged index never gives wrong states."""
    index = filled / "index.sqlite"
    whole = index.read_bytes()
    rng = np.random.default_rng(0)
    refusals = 0
    for start in rng.integers(0, len(whole) - 64, 150):
        damaged = bytearray(whole)
        damaged[start : start + 64] = rng.bytes(64)
        index.write_bytes(damaged)
        try:
            with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
                states.restore(1)
                found = states.gather(["ann", "bob"])
        except client_states.ClientStatesError:
            refusals += 1
        else:
            assert_states(found, [1, 2])
    assert refusals > 0


def test_a_changed_state_is_refused_when_it_is_gathered(filled, state, assert_states):
    data = filled / "states.bin"
    whole = data.read_bytes()
    first, second = whole[:38], whole[38:]
    data.write_bytes(second + first)
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        for client_id in ("ann", "bob"):
            with pytest.raises(
                client_states.ClientStatesError,
                match=f"damaged: the state of client '{client_id}' has changed",
            ):
                states.gather([client_id])
    data.write_bytes(first + bytes([second[0] ^ 1]) + second[1:])
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        assert_states(states.gather(["ann"]), [1])
        with pytest.raises(client_states.ClientStatesError, match="'bob'"):
            states.gather(["bob"])


def test_what_a_kill_leaves_of_a_creation_is_replaced(path, state, assert_states):
    path.mkdir(parents=True)
    (path / "states.bin").touch()
    for name in (".index.sqlite.tmp", ".index.sqlite.tmp-journal"):
        (path / name).write_bytes(b"half")
    with client_states.DiskClientStates(path, state(0)) as states:
        states.scatter(["ann"], [state(1)])
        assert_states(states.gather(["ann"]), [1])
    assert set(content(path)) == {"index.sqlite", "states.bin"}


def test_a_closed_store_may_be_moved(filled, state, assert_states, tmp_path):
    shutil.copytree(filled, tmp_path / "copy")
    with client_states.DiskClientStates(
        tmp_path / "copy", state(0), run_id="a"
    ) as states:
        assert_states(states.gather(["bob"]), [2])


def test_a_relative_path_stays_the_same_folder(state, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with client_states.DiskClientStates("states", state(0)) as states:
        states.scatter(["ann"], [state(1)])
        monkeypatch.chdir("other")
        states.commit(1)
        assert states.nbytes > 0
        assert states.path == tmp_path / "states"
    assert set(content(tmp_path / "states")) == {"index.sqlite", "states.bin"}


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * (
        resource.getpagesize()
    )


def test_memory_does_not_grow_with_the_clients_seen(path):
    """200 rounds of 50 clients out of 342,477, some 49 MB of states."""
    rng = np.random.default_rng(0)
    initial_state = {"variate": np.zeros(1250, np.float32)}
    with client_states.DiskClientStates(path, initial_state) as states:
        for round_number in range(200):
            cohort = [f"writer {i}" for i in rng.choice(342_477, 50, replace=False)]
            of_cohort = states.gather(cohort)
            for state in of_cohort:
                state["variate"] += 1
            states.scatter(cohort, of_cohort)
            if round_number % 10 == 9:
                states.commit(round_number)
                states.prune(round_number)
            if round_number == 19:
                early = resident_bytes()
        grown = resident_bytes() - early
        stored = (path / "states.bin").stat().st_size
        assert stored >= 5000 * len(states) > 45e6
    assert grown < 10e6


def test_gather_reads_only_the_cohort(filled, state, monkeypatch):
    slots = []
    read = on_disk.SlotFile.read
    monkeypatch.setattr(
        on_disk.SlotFile,
        "read",
        lambda self, slot: slots.append(slot) or read(self, slot),
    )
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        states.scatter([f"client {i}" for i in range(20)], [state(1)] * 20)
        states.gather(["bob", "new", "client 7"])
    assert len(set(slots)) == len(slots) == 2


def test_a_full_disk_leaves_the_store_as_it_was(
    filled, state, assert_states, monkeypatch
):
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        write, calls = on_disk.SlotFile.write, []

        def write_once(slots, row):
            calls.append(row)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            return write(slots, row)

        monkeypatch.setattr(on_disk.SlotFile, "write", write_once)
        with pytest.raises(
            client_states.ClientStatesError, match=r"No space left.*enough space"
        ):
            states.scatter(["ann", "eve"], [state(8), state(9)])
        assert_states(states.gather(["ann", "bob", "eve"]), [1, 2, 0])
        states.scatter(["ann", "eve"], [state(8), state(9)])
        assert_states(states.gather(["ann", "bob", "eve"]), [8, 2, 9])


def test_an_interrupted_scatter_may_be_repeated(
    filled, state, assert_states, monkeypatch
):
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        release, calls = on_disk.SlotFile.release, []

        def interrupt_once(slots, unused):
            calls.append(unused)
            if len(calls) == 1:
                raise KeyboardInterrupt
            release(slots, unused)

        monkeypatch.setattr(on_disk.SlotFile, "release", interrupt_once)
        cohort, new_states = ["ann", "eve"], [state(8), state(9)]
        with pytest.raises(KeyboardInterrupt):
            states.scatter(cohort, new_states)
        states.scatter(cohort, new_states)
        states.commit(2)
        assert_states(states.gather(["ann", "bob", "eve"]), [8, 2, 9])
        states.restore(1)
        assert_states(states.gather(["ann", "bob", "eve"]), [1, 2, 0])


@pytest.mark.parametrize("where", ["states", "index"])
def test_scatters_that_failed_take_no_space(path, monkeypatch, where):
    def states_of(ids, value):
        return [{"variate": np.full(250, value, np.float32)} for _ in ids]

    slot_nbytes, pwritev, full = 1000, os.pwritev, True
    first, second = ([f"{name} {k}" for k in range(10)] for name in ("a", "b"))

    def write_until_full(file, buffers, offset):
        space = 15 * slot_nbytes - 200 - offset if full and where == "states" else None
        if space is not None and space <= 0:
            raise OSError(28, "No space left on device")
        return pwritev(file, [buffers[0][:space]], offset)

    def put_unless_full(index, places, valid_from):
        if full and where == "index":
            raise sqlite3.OperationalError("database or disk is full")
        return put(index, places, valid_from)

    with client_states.DiskClientStates(path, states_of(first, 0)[0]) as states:
        states.scatter(first, states_of(first, 1))
        states.commit(1)
        put = on_disk.StateIndex.put
        monkeypatch.setattr(on_disk.StateIndex, "put", put_unless_full)
        monkeypatch.setattr(os, "pwritev", write_until_full)
        for _ in range(4):
            with pytest.raises(client_states.ClientStatesError, match="cannot be used"):
                states.scatter(second, states_of(second, 2))
        full = False
        states.scatter(second, states_of(second, 3))
        found = [each["variate"][0] for each in states.gather(first + second)]
        assert found == [1] * 10 + [3] * 10
        assert (path / "states.bin").stat().st_size == 20 * slot_nbytes


def test_an_interrupt_after_the_index_has_changed_frees_no_slot_of_it(
    filled, state, assert_states, monkeypatch
):
    put = on_disk.StateIndex.put

    def interrupted(index, places, valid_from):
        put(index, places, valid_from)
        raise KeyboardInterrupt

    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        monkeypatch.setattr(on_disk.StateIndex, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            states.scatter(["ann", "eve"], [state(8), state(9)])
        monkeypatch.undo()
        states.scatter(["joe", "kim"], [state(5), state(6)])
        cohort = ["ann", "bob", "eve", "joe", "kim"]
        assert_states(states.gather(cohort), [8, 2, 9, 5, 6])


def fingerprints(path, state, versions):
    """Returns the fingerprints that a store says its versions have."""
    with client_states.DiskClientStates(path, state(0), run_id="a") as states:
        return [states._fingerprint(version) for version in versions]


def test_a_fingerprint_follows_from_the_states_alone(path, state):
    """However they were written, and whichever program asks."""
    with client_states.DiskClientStates(path, state(0), run_id="a") as states:
        states.scatter(["ann", "bob"], [state(1), state(2)])
        first = states.commit(1)
        states.scatter(["ann"], [state(7)])
        states.scatter(["eve", "ann"], [state(3), state(8)])
        second = states.commit(2)
        states.restore(1)
        states.scatter(["eve"], [state(3)])
        states.scatter(["ann"], [state(8)])
        assert states.commit(3) == second
        assert states._fingerprint(1) == first
        states.scatter(["bob"], [state(4)])
        assert states._fingerprint(3) == second
    assert fingerprints(path, state, [1, 3]) == [first, second]


def test_all_states_are_hashed_once_after_a_resume(filled, state, monkeypatch):
    """Also if what came after the version was dropped, its fingerprints are right."""
    counted = []
    of_all = state_index.StateIndex._sum_of_hashes

    def counting(index, version):
        counted.append(version)
        return of_all(index, version)

    [known] = fingerprints(filled, state, [1])
    monkeypatch.setattr(state_index.StateIndex, "_sum_of_hashes", counting)
    with client_states.DiskClientStates(filled, state(0), run_id="a") as states:
        states.restore(1, known)
        states.scatter(["ann", "eve"], [state(7), state(3)])
        found = [states.commit(2)]
        assert counted == [1]
        states.scatter(["bob"], [state(9)])
        states.restore(2, found[0])
        states.scatter(["bob"], [state(4)])
        found.append(states.commit(3))
        states.restore(2, found[0])
        states.scatter(["ann"], [state(5)])
        found.append(states.commit(4))
        expected = [states._store_id + f"-{of_all(states._index, 4):032x}"]
    assert fingerprints(filled, state, [2, 4]) == [found[0], found[2]]
    assert found[2:] == expected


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM states",
        "DELETE FROM states WHERE slot = 1",
        "UPDATE states SET checksum = checksum + 1 WHERE slot = 0",
        "UPDATE states SET client_id = CAST('bo' AS BLOB) WHERE slot = 1",
        "UPDATE properties SET value = 'another' WHERE name = 'store_id'",
    ],
)
def test_a_store_that_was_changed_has_another_fingerprint(filled, state, change):
    [before] = fingerprints(filled, state, [1])
    with contextlib.closing(sqlite3.connect(filled / "index.sqlite")) as connection:
        connection.execute(change)
        connection.commit()
    with (
        client_states.DiskClientStates(filled, state(0), run_id="a") as states,
        pytest.raises(client_states.ClientStatesError, match="has been changed"),
    ):
        states.restore(1, before)


def test_a_store_of_an_earlier_version_gets_a_name(filled, state):
    with contextlib.closing(sqlite3.connect(filled / "index.sqlite")) as connection:
        connection.execute("DELETE FROM properties WHERE name = 'store_id'")
        connection.commit()
    [found] = fingerprints(filled, state, [1])
    assert fingerprints(filled, state, [1]) == [found]
    assert re.fullmatch("[0-9a-f]{32}-[0-9a-f]{32}", found)


@pytest.mark.parametrize("name", ["states.bin", "index.sqlite"])
@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_what_is_no_file_is_not_opened(filled, state, tmp_path, name, kind):
    elsewhere = tmp_path / "elsewhere"
    (filled / name).rename(elsewhere)
    before = elsewhere.read_bytes()
    if kind == "pipe":
        os.mkfifo(filled / name)
    else:
        (filled / name).symlink_to(elsewhere if kind == "link" else "/dev/zero")
    with pytest.raises(
        client_states.ClientStatesError, match=r"used: .*not a regular file"
    ):
        client_states.DiskClientStates(filled, state(0), run_id="a")
    assert elsewhere.read_bytes() == before


def test_a_store_is_made_in_its_folder(path, state, tmp_path):
    path.mkdir(parents=True)
    empty = tmp_path / "empty"
    empty.touch()
    (path / "states.bin").symlink_to(empty)
    (path / ".index.sqlite.tmp").symlink_to(tmp_path / "none")
    with client_states.DiskClientStates(path, state(0)) as states:
        states.scatter(["ann"], [state(1)])
        states.commit(1)
    assert empty.read_bytes() == b""
    assert not (tmp_path / "none").exists()
    assert not [each for each in path.iterdir() if each.is_symlink()]


@pytest.mark.parametrize("state_bytes", [38])
def test_a_state_behind_a_large_hole_takes_no_ram(
    filled, state, assert_states, state_bytes
):
    """The index may name any slot, and a file with holes take no space."""
    far = 200_000_000
    states = filled / "states.bin"
    second = states.read_bytes()[state_bytes:]
    with open(states, "r+b") as file:
        file.seek(far * state_bytes)
        file.write(second)
    with contextlib.closing(sqlite3.connect(filled / "index.sqlite")) as connection:
        connection.execute("UPDATE states SET slot = ? WHERE slot = 1", (far,))
        connection.commit()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with client_states.DiskClientStates(filled, state(0), run_id="a") as opened:
        assert_states(opened.gather(["ann", "bob"]), [1, 2])
        opened.scatter(["eve", "ann"], [state(3), state(4)])
        opened.commit(2)
        assert_states(opened.gather(["ann", "bob", "eve"]), [4, 2, 3])
    # Kilobytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_free_slots_are_written_before_the_file_grows(path, state, assert_states):
    names = [f"client {k}" for k in range(9)]
    with client_states.DiskClientStates(path, state(0)) as states:
        states.commit(0)
        states.scatter(names, [state(1)] * 9)
        states.commit(1)
    with contextlib.closing(sqlite3.connect(path / "index.sqlite")) as connection:
        connection.execute("DELETE FROM states WHERE slot IN (0, 1, 2, 4, 6, 7)")
        connection.commit()
    size = (path / "states.bin").stat().st_size
    with client_states.DiskClientStates(path, state(0)) as states:
        kept = states.client_ids()
        assert kept == ["client 3", "client 5", "client 8"]
        states.scatter([f"new {k}" for k in range(6)], [state(k) for k in range(6)])
        assert (path / "states.bin").stat().st_size == size
        assert_states(states.gather(kept), [1] * 3)
        assert_states(states.gather([f"new {k}" for k in range(6)]), list(range(6)))
        states.scatter(["last"], [state(7)])
        assert (path / "states.bin").stat().st_size > size


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE states SET slot = 'x' WHERE slot = 1",
        "UPDATE states SET slot = -1 WHERE slot = 1",
        "UPDATE states SET slot = 1.5 WHERE slot = 1",
        "UPDATE states SET client_id = 'bob' WHERE slot = 1",
        "UPDATE states SET checksum = 'x' WHERE slot = 1",
        "UPDATE states SET valid_from = 'x' WHERE slot = 1",
        "UPDATE states SET valid_to = 'x' WHERE slot = 1",
        "UPDATE properties SET value = x'00' WHERE name = 'store_id'",
    ],
)
def test_values_of_other_kinds_are_refused(filled, state, change):
    with contextlib.closing(sqlite3.connect(filled / "index.sqlite")) as connection:
        connection.execute(change)
        connection.commit()
    refused(filled, state(0), "is damaged: it holds a value of another kind")
