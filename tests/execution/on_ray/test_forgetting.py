"""What this process has deleted is kept neither by actors nor in Ray's store."""

import gc
import queue
import time
import weakref

import numpy as np
import pytest

from tests.execution.on_ray.test_data import InThisProcess, in_ram
from tff_drift import compat
from tff_drift.execution.on_ray import context, dealing
from tff_drift.execution.on_ray.actors import Actors
from tff_drift.simulation import ClientDatasets


def num_kept(actors):
    return [len(each._kept._kept) for each in actors.sources]


def test_actors_forget_data_that_is_gone_and_no_other():
    actors = InThisProcess(2)
    dealer = dealing.Dealer(actors)
    kept, deleted = in_ram(batch_size=4), in_ram(batch_size=4)
    for each in (kept, deleted):
        dealer.deal_clients(
            [(dealer.sources.find(each), client_id) for client_id in each.client_ids]
        )
    assert num_kept(actors) == [2, 2]
    del each, deleted
    gc.collect()
    assert num_kept(actors) == [1, 1]
    del kept


class Ray:
    def __init__(self, runs):
        self._runs = runs

    def is_initialized(self):
        return self._runs


class Told(Actors):
    """Actors that keep what they are told."""

    def __init__(self, ray):
        self._ray, self._actors = ray, ["one", "two"]
        self.calls = queue.SimpleQueue()

    def put(self, value):
        return value

    def tell(self, calls):
        self.calls.put(calls)


def told_to_forget(actors, count):
    """Returns keys, each told to both actors."""
    keys = []
    for _ in range(count):
        one, two = actors.calls.get(timeout=30)
        assert (one.actor, two.actor, one.method) == (0, 1, "forget")
        assert one.arguments == two.arguments
        keys += one.arguments
    return keys


def test_actors_forget_computations_that_are_gone():
    actors = Told(Ray(True))
    on_ray = context.RayExecutionContext(actors, "nowhere")

    @compat.federated_computation(compat.FederatedType(np.int32, compat.CLIENTS))
    def total(values):
        # On the actors both before the merge and after it.
        return values, compat.federated_sum(values)

    plan = on_ray._plan(total)
    expected = {plan.clients.key, plan.after_merge.key}
    assert actors.calls.empty()
    del total
    gc.collect()
    assert set(told_to_forget(actors, 2)) == expected


class Owner:
    pass


def test_actors_that_have_ended_are_left_alone():
    actors, owner = Told(Ray(False)), Owner()
    # Asked to call an actor, Ray would start another instance.
    actors.forget("a key")
    assert actors.calls.empty()
    actors.forget_after(owner, "a key")
    end = weakref.ref(actors)
    del actors
    gc.collect()
    assert end() is None
    del owner


def stored_bytes(ray):
    internal_api = pytest.importorskip("ray._private.internal_api")
    address = ray.get_runtime_context().gcs_address
    state = internal_api.get_state_from_address(address)
    return internal_api.get_memory_info_reply(state).store_stats.object_store_bytes_used


def build_counting():
    return lambda clients: [
        source.num_examples_per_round(client_id) for source, client_id in clients
    ]


def test_the_store_is_free_of_data_that_is_gone(instance, two):
    two.map_clients(build_counting, in_ram(batch_size=4), ["client 0"])
    before, size = stored_bytes(instance), 10_000_000
    for _ in range(3):
        examples = np.ones([size // 4, 1], np.float32), np.ones(size // 4, np.int8)
        data = ClientDatasets.from_arrays({"ann": examples}, batch_size=4)
        assert two.map_clients(build_counting, data, ["ann"]) == [size // 4]
        assert stored_bytes(instance) > before + size
        del data, examples
        gc.collect()
        end = time.monotonic() + 30
        while stored_bytes(instance) > before + size and time.monotonic() < end:
            time.sleep(0.1)
        assert stored_bytes(instance) < before + size
    # The actors go on.
    assert two.map_clients(build_counting, in_ram(batch_size=4), ["client 0"]) == [10]
