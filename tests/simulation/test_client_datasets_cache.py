"""What `ClientDatasets` keeps in RAM of the clients that it has read."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.fakes import labelled_clients
from tff_drift.simulation import Batching, ClientDatasets


class _CountingLoader:
    def __init__(self, clients):
        self.clients = clients
        self.loaded = []

    def __call__(self, client_id):
        self.loaded.append(client_id)
        return self.clients[client_id]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    limit=st.integers(0, 20),
    uses=st.lists(st.integers(0, 4), max_size=30),
)
def test_cache_keeps_the_clients_used_last_within_its_limit(sizes, limit, uses):
    example_bytes = 3 * 4 + 4
    loader = _CountingLoader(labelled_clients(sizes))
    datasets = ClientDatasets(
        list(loader.clients),
        loader,
        batch_size=2,
        cache_bytes=limit * example_bytes,
    )
    # The reference: a list of clients, the one used last at the end.
    kept, expected_loads = [], []
    for use in uses:
        client = use % len(sizes)
        datasets.examples(f"client_{client}")
        if client in kept:
            kept.remove(client)
        else:
            expected_loads.append(f"client_{client}")
            if sizes[client] > limit:
                continue
            while sum(sizes[other] for other in kept) + sizes[client] > limit:
                kept.pop(0)
        kept.append(client)

        assert datasets.cached_bytes == example_bytes * sum(sizes[k] for k in kept)
        assert datasets.cached_bytes <= datasets.cache_bytes
    assert loader.loaded == expected_loads


def test_cache_counts_strings_and_what_max_examples_leaves():
    texts = np.array([b"abc", b"defgh", b"ijklmnop"], object)
    datasets = ClientDatasets(["a"], lambda _: texts, batch_size=1, max_examples=2)

    datasets.examples("a")

    assert datasets.cached_bytes == 2 * texts.itemsize + 3 + 5


def test_number_of_examples_outlives_the_cache():
    loader = _CountingLoader(labelled_clients([4, 6]))
    datasets = ClientDatasets(list(loader.clients), loader, batch_size=2, cache_bytes=0)

    counts = [datasets.num_examples(k) for k in ("client_0", "client_1", "client_0")]

    assert counts == [4, 6, 4]
    assert loader.loaded == ["client_0", "client_1"]


def test_subset_and_replace_share_the_cache():
    loader = _CountingLoader(labelled_clients([4, 6, 8]))
    datasets = ClientDatasets(list(loader.clients), loader, batch_size=2)
    subset = datasets.subset(["client_2", "client_0"])
    replaced = subset.replace(batch_size=3, epochs=2, shuffle=False, seed=9)
    cut = replaced.replace(max_examples=5)

    assert subset.client_ids == ("client_2", "client_0")
    assert (len(datasets), len(subset)) == (3, 2)
    for each in (datasets, subset, replaced):
        each.examples("client_0")
    assert loader.loaded == ["client_0"]
    batches = replaced.training_data("client_0", 0).as_numpy_iterator()
    assert [labels.tolist() for _, labels in batches] == [[0, 1, 2], [3]] * 2
    assert datasets.batching == Batching(2, epochs=1, seed=0)
    assert (cut.max_examples, cut.batching) == (
        5,
        Batching(3, 2, shuffle=False, seed=9),
    )
    assert cut.num_examples("client_2") == 5
    assert datasets.num_examples("client_2") == 8
    with pytest.raises(ValueError, match="Unknown client_id 'client_1'"):
        subset.examples("client_1")


@pytest.mark.parametrize(("limit", "loaded"), [(0, 0), (1, 1), (8, 2), (9, 3), (20, 5)])
def test_half_of_the_cache_is_loaded_ahead(limit, loaded):
    example_bytes = 3 * 4 + 4
    loader = _CountingLoader(labelled_clients([2] * 5))
    datasets = ClientDatasets(
        list(loader.clients), loader, batch_size=2, cache_bytes=limit * example_bytes
    )
    datasets.load_ahead(datasets.client_ids)
    # Two examples each: the last that is begun may go beyond the half.
    assert loader.loaded == list(datasets.client_ids)[:loaded]
    for client_id in loader.loaded[:]:
        datasets.examples(client_id)
    assert len(loader.loaded) == (2 * loaded if limit < 2 else loaded)


def test_nothing_is_loaded_ahead_of_what_is_in_ram():
    clients = labelled_clients([2] * 3)
    datasets = ClientDatasets.from_arrays(
        clients, batch_size=2, max_examples=1, cache_bytes=2**20
    )
    datasets.load_ahead(datasets.client_ids)
    assert datasets.cached_bytes == 0


def test_a_client_that_is_kept_does_not_wait_for_one_that_is_loaded():
    loads, may_end = threading.Event(), threading.Event()

    def load_client(client_id):
        if client_id == "late":
            loads.set()
            assert may_end.wait(60)
        return np.zeros(4)

    datasets = ClientDatasets(["kept", "late"], load_client, batch_size=2)
    expected = list(datasets.training_batches("kept", 3))
    spec = datasets.training_batches("kept", 3).element_spec
    loader = threading.Thread(target=datasets.load_ahead, args=(["late"],))
    loader.start()
    try:
        assert loads.wait(60)
        on_demand = datasets.training_batches("kept", 3)
        assert on_demand.element_spec == spec
        np.testing.assert_array_equal(list(on_demand), expected)
        assert datasets.num_examples("kept") == 4
        assert loader.is_alive()
    finally:
        may_end.set()
        loader.join()


def test_threads_load_a_client_once():
    loaded = []

    def load_client(client_id):
        loaded.append(client_id)
        time.sleep(0.05)  # Lets the other threads come while this one loads.
        return np.zeros(4)

    datasets = ClientDatasets(["client_0"], load_client, batch_size=2)
    threads = [
        threading.Thread(target=datasets.examples, args=("client_0",)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert loaded == ["client_0"]
