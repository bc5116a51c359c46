"""Shards of client states as a store, with actors in this process that are killed."""

import contextlib
import json
import os
import shutil
import sqlite3
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tff_drift.client_states import ClientStatesError, InMemoryClientStates
from tff_drift.execution.on_ray import shards
from tff_drift.execution.on_ray.client_states import RayClientStates
from tff_drift.execution.on_ray.shards import Shards

pytestmark = pytest.mark.no_smoke

INITIAL = {"variate": np.zeros(3, np.float32), "count": np.int32(0)}
CLIENTS = [f"client {k}" for k in range(6)]


class InThisProcess:
    """Actors without Ray: a reference is the object itself."""

    def __init__(self, num_actors):
        self.shards = [Shards(lambda each: each) for _ in range(num_actors)]
        self.kills_before = self.kills_after = 0

    def __len__(self):
        return len(self.shards)

    def put(self, value):
        return value

    def kill(self, number):
        """Ends an actor; what it has not committed is dropped, as by a kill."""
        for shard in self.shards[number]._open.values():
            shard.close()
        self.shards[number] = Shards(lambda each: each)

    def start(self, call):
        method, *arguments = call.arguments
        assert call.method == "of_shards"
        if self.kills_before:
            self.kill(call.actor)
        if self.kills_after and method != "close":
            # The call was made, but its answer is lost: Ray makes it once more.
            getattr(self.shards[call.actor], method)(*arguments)
            self.kill(call.actor)
        return getattr(self.shards[call.actor], method)(*arguments)

    def begin(self, calls):
        results = [self.start(call) for call in calls]
        return lambda: results

    def run(self, calls):
        return self.begin(calls)()


def state(value):
    return {"variate": np.full(3, value, np.float32), "count": np.int32(value)}


def values(store):
    return [int(each["count"]) for each in store.gather(CLIENTS)]


def trained(store, ids, value):
    """Returns new states as a round's, by shard."""
    arrays = store._template.checked_arrays("", state(value))
    return [
        (shard, dict.fromkeys(names, arrays))
        for shard, names in store.by_shard(ids).items()
    ]


STEPS = st.one_of(
    st.tuples(
        # At once; begun before; begun, and asked for meanwhile; begun in vain.
        st.sampled_from(["scatter", "begin", "ask", "fail"]),
        st.sets(st.sampled_from(CLIENTS), min_size=1),
    ),
    st.tuples(st.sampled_from(["commit", "restore", "prune", "reopen", "lose"])),
)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=12),
    kills=st.sampled_from(["", "before", "after"]),
    # None of the states, two, or all.
    recent_bytes=st.sampled_from([0, 32, 2**20]),
)
def test_a_store_is_one_of_ram_whatever_is_killed(
    tmp_path_factory, steps, kills, recent_bytes
):
    with mock.patch.object(shards, "RECENT_BYTES", recent_bytes):
        compare_with_a_store_in_ram(tmp_path_factory, steps, kills)


def compare_with_a_store_in_ram(tmp_path_factory, steps, kills):
    path = tmp_path_factory.mktemp("store") / "states"
    actors = InThisProcess(2)
    store, model = RayClientStates(actors, INITIAL, path), InMemoryClientStates(INITIAL)
    actors.kills_before, actors.kills_after = kills == "before", kills == "after"
    for number, (step, *arguments) in enumerate(steps):
        last = max(model.versions, default=None)
        if step == "scatter":
            (ids,) = map(sorted, arguments)
            for each in (store, model):
                each.scatter(ids, [state(number + 1)] * len(ids))
        elif step in ("begin", "ask", "fail"):
            (ids,) = map(sorted, arguments)
            new = trained(store, ids, number + 1)
            store.begin_write(new)
            if step == "ask":
                assert values(store) == values(model)
            if step != "fail":
                store.write(new)
                model.scatter(ids, [state(number + 1)] * len(ids))
        elif step == "commit":
            for each in (store, model):
                each.commit(number)
        elif step == "lose":  # A write that some of the shards made and others did not.
            present = list(store._present)
            store.scatter(CLIENTS[:3], [state(100)] * 3)
            store._present = present
        elif last is None:
            continue
        elif step in ("restore", "prune"):
            for each in (store, model):
                getattr(each, step)(last)
        else:  # The driver is killed, and another one has another number of actors.
            for actor in range(len(actors)):
                actors.kill(actor)
            actors = InThisProcess(1 + number % 3)
            store = RayClientStates(actors, INITIAL, path)
            for each in (store, model):
                each.restore(last)
        assert values(store) == values(model)
        assert store.client_ids() == model.client_ids()
        assert store.versions == model.versions
    store.close()


def test_a_shard_that_is_gone_is_an_error_and_no_initial_state():
    actors = InThisProcess(1)
    store = RayClientStates(actors, INITIAL)
    store.scatter(["ann"], [state(1)])
    actors.kill(0)
    store._sent.reference[0].remove()  # As if the actor were on another node now.
    with pytest.raises(ClientStatesError, match="lost with its node"):
        store.gather(["ann"])
    store._present = [0]
    store.close()
    with pytest.raises(ClientStatesError, match="is closed"):
        store.gather(["ann"])


def test_a_store_without_a_folder_leaves_no_files():
    store = RayClientStates(InThisProcess(2), INITIAL)
    store.scatter(CLIENTS, [state(1)] * 6)
    assert len(store) == 6
    assert store.nbytes > 0
    folder = store._sent.reference[0].path(0).parent
    assert folder.exists()
    store.close()
    assert not folder.exists()


def test_folders_that_are_no_store_are_left_alone(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ClientStatesError, match="but other files"):
        RayClientStates(InThisProcess(1), INITIAL, tmp_path)
    path = tmp_path / "store"
    RayClientStates(InThisProcess(1), INITIAL, path).close()
    manifest = path / "shards.json"
    for damage in (
        {"format": "another"},
        {"num_shards": "many"},
        {"num_shards": 10**9},
        {"num_shards": 0},
        {"num_shards": 2.5},
        {"versions": {"1": []}},
        {"template": 3},
    ):
        whole = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**whole, **damage}))
        with pytest.raises(ClientStatesError, match="damaged or of another version"):
            RayClientStates(InThisProcess(1), INITIAL, path)
        manifest.write_text(json.dumps(whole))
    store = RayClientStates(InThisProcess(1), INITIAL, path)
    manifest.rename(path / "elsewhere")
    with pytest.raises(ClientStatesError, match="all nodes share"):
        store.gather(["ann"])


ONES = {"variate": np.ones(3, np.float32), "count": np.int32(1)}
WIDER = {"variate": np.zeros(5, np.float32), "count": np.int32(0)}


def test_another_initial_state_is_refused_when_a_store_is_opened(tmp_path):
    actors = InThisProcess(2)
    first = RayClientStates(actors, INITIAL, tmp_path)
    first.scatter(CLIENTS[:2], [state(4)] * 2)
    first.commit(1)
    before = (tmp_path / "shards.json").read_bytes()
    # While the first store is open, and once it is closed.
    for _ in range(2):
        with pytest.raises(ClientStatesError, match="it had values of sha256"):
            RayClientStates(actors, ONES, tmp_path)
        with pytest.raises(
            ClientStatesError, match=r"it had variate: float32\[3\], now it has .*\[5\]"
        ):
            RayClientStates(actors, WIDER, tmp_path)
        first.close()
    assert (tmp_path / "shards.json").read_bytes() == before
    assert values(RayClientStates(actors, INITIAL, tmp_path)) == [4, 4, 0, 0, 0, 0]


def test_a_folder_without_a_template_is_compared_at_the_actors(tmp_path):
    actors, manifest = InThisProcess(2), tmp_path / "shards.json"
    first = RayClientStates(actors, INITIAL, tmp_path)
    first.scatter(CLIENTS, [state(4)] * 6)
    first.commit(1)
    before = json.loads(manifest.read_text())
    before.pop("template", None)
    manifest.write_text(json.dumps(before))
    # The first store is still open; each error is of the store that was opened last.
    for other, message in ((ONES, "it had values"), (WIDER, r"now it has .*\[5\]")):
        store = RayClientStates(actors, other, tmp_path)
        assert store.versions == (1,)
        with pytest.raises(ClientStatesError, match=message):
            store.gather(CLIENTS)
    second = RayClientStates(actors, INITIAL, tmp_path)
    second.scatter(CLIENTS[:1], [state(5)])
    second.commit(2)
    assert values(second) == [5, 4, 4, 4, 4, 4]
    assert "template" not in json.loads(manifest.read_text())
    first.close()
    assert values(second) == [5, 4, 4, 4, 4, 4]


def test_a_copy_of_a_folder_is_another_store(tmp_path):
    actors, store = InThisProcess(1), tmp_path / "store"
    first = RayClientStates(actors, INITIAL, store)
    first.scatter(CLIENTS, [state(1)] * 6)
    first.commit(1)
    first.close()
    shutil.copytree(store, tmp_path / "copy")
    first, copy = (
        RayClientStates(actors, INITIAL, path) for path in (store, tmp_path / "copy")
    )
    first.scatter(CLIENTS, [state(2)] * 6)
    assert values(copy) == [1] * 6
    assert values(first) == [2] * 6


def test_shards_of_another_store_or_other_states_are_no_checkpoints(tmp_path):
    found = {}
    for name, value in (("one", 1), ("two", 2)):
        store = RayClientStates(InThisProcess(2), INITIAL, tmp_path / name)
        store.scatter(CLIENTS, [state(value)] * 6)
        found[name] = store.commit(1)
        store.scatter(CLIENTS, [state(9)] * 6)
        store.commit(2)
        store.close()
    with contextlib.closing(
        sqlite3.connect(tmp_path / "two" / "shard-1" / "index.sqlite")
    ) as connection:
        connection.execute("DELETE FROM states WHERE valid_from = 1")
        connection.commit()
    for path, fingerprint in (("one", found["two"]), ("two", found["two"])):
        store = RayClientStates(InThisProcess(2), INITIAL, tmp_path / path)
        with pytest.raises(ClientStatesError, match="other states of version 1"):
            store.restore(1, fingerprint)
        assert store.versions == (1, 2)
        store.close()
    store = RayClientStates(InThisProcess(3), INITIAL, tmp_path / "one")
    store.restore(1, found["one"])
    assert values(store) == [1] * 6
    store.close()


def test_a_link_leads_no_shard_out_of_its_folder(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store = RayClientStates(InThisProcess(2), INITIAL, tmp_path / "store")
    (tmp_path / "store" / "shard-0").symlink_to(elsewhere)
    with pytest.raises(ClientStatesError, match="link leads out of"):
        store.scatter(CLIENTS, [state(1)] * 6)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("kind", ["pipe", "device", "deep", "list"])
def test_a_manifest_that_is_none_is_refused(tmp_path, kind):
    RayClientStates(InThisProcess(1), INITIAL, tmp_path).close()
    manifest = tmp_path / "shards.json"
    manifest.unlink()
    if kind == "pipe":
        os.mkfifo(manifest)
    elif kind == "device":
        manifest.symlink_to("/dev/zero")
    else:
        manifest.write_text("[" * 100_000 if kind == "deep" else "[]")
    with pytest.raises(ClientStatesError, match=r"damaged|not a regular file"):
        RayClientStates(InThisProcess(1), INITIAL, tmp_path)
