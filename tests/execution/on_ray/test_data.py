"""Clients' data stays at the actors: only names are sent, and the batches are equal."""

import functools
import os
import pathlib
import pickle
import threading
import weakref

import cloudpickle
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models, tiers
from tests.execution.local.support import call
from tff_drift import algorithms, execution, simulation
from tff_drift.execution.on_ray import dealing, partition, sources, wire
from tff_drift.simulation import ClientDatasets

SIZES = [10, 7, 23, 5, 6, 1, 14]


def client_arrays():
    return {
        f"client {k}": each
        for k, each in enumerate(models.client_arrays(SIZES, seed=3))
    }


def load(folder, client_id):
    """Loads a client, and says in which process."""
    (pathlib.Path(folder) / f"{os.getpid()} {client_id}").touch()
    return client_arrays()[client_id]


def noisy(examples, generator):
    x, y = examples
    if generator is None:
        return x, y
    return x + generator.normal(size=x.shape).astype(x.dtype), y


def in_ram(**options):
    return ClientDatasets.from_arrays(client_arrays(), **options)


def from_client_data(**options):
    data = {name: {"x": x, "y": y} for name, (x, y) in sorted(client_arrays().items())}
    client_data = tff.simulation.datasets.TestClientData(data)

    def preprocess(examples):
        return examples["x"], examples["y"]

    return ClientDatasets.from_client_data(client_data, preprocess, **options)


def actors_batches(datasets, num_parts, client_id, round_number):
    """Makes batches from what an actor gets, as an actor does."""
    store = []

    def put(value):
        store.append(cloudpickle.dumps(value))
        return len(store) - 1

    sent = sources.SentSources(num_parts, put, lambda *_: None).find(datasets).sent
    actor = sources.Sources(lambda number: pickle.loads(store[number]))
    named = wire.SentRound(sent, client_id, round_number)
    assert actor.count(sent, [client_id]) == [
        datasets.num_examples_per_round(client_id)
    ]
    return list(actor.batches(named))


@pytest.mark.parametrize("build", [in_ram, from_client_data])
@pytest.mark.parametrize(
    "options",
    tiers.first(
        [1],
        [
            {"epochs": 2},
            {"local_steps": 5, "last_batch": "bootstrap", "seed": 7},
            {"max_examples": 6, "transform": noisy},
        ],
    ),
)
def test_actors_make_the_same_batches_bit_for_bit(build, options):
    datasets = build(batch_size=4, **options)
    for client_id in datasets.client_ids[:3]:
        for round_number in (0, 3):
            tf.nest.map_structure(
                np.testing.assert_array_equal,
                actors_batches(datasets, 3, client_id, round_number),
                list(datasets.training_batches(client_id, round_number)),
            )


class InThisProcess:
    """Actors without Ray: a reference is the object, pickled."""

    put = staticmethod(pickle.dumps)

    def __init__(self, num_actors):
        self.sources = [sources.Sources(pickle.loads) for _ in range(num_actors)]

    def __len__(self):
        return len(self.sources)

    def run(self, calls):
        return [
            getattr(self.sources[call.actor], call.method)(*call.arguments)
            for call in calls
        ]

    tell = run

    def forget_after(self, owner, key):
        weakref.finalize(owner, lambda: [each.forget(key) for each in self.sources])

    def finish(self):
        for each in self.sources:
            each._loader.shutdown(wait=True)


LOADED = []


def load_in_this_process(client_id):
    LOADED.append(client_id)
    return client_arrays()[client_id]


@pytest.mark.parametrize("known", [False, True])
def test_actors_load_what_they_train_next_and_not_again(known):
    actors, cohort = InThisProcess(2), ["client 0", "client 2", "client 6"]
    datasets = ClientDatasets(
        list(client_arrays()), load_in_this_process, batch_size=4, cache_bytes=2**20
    )
    dealer = dealing.Dealer(actors)
    source = dealer.sources.find(datasets)
    if known:
        dealer.deal_clients([(source, each) for each in datasets.client_ids])
        # Those that were started anew have nothing in RAM.
        actors.sources = InThisProcess(2).sources
    LOADED.clear()
    dealer.load_ahead(datasets, cohort)
    actors.finish()
    assert sorted(LOADED) == cohort
    dealt = dealer.deal_clients([(source, each) for each in cohort])
    for known_sources, part in zip(actors.sources, dealt, strict=True):
        for client in part:
            named = wire.SentRound(source.sent, cohort[client], 0)
            list(known_sources.batches(named))
    homes = [partition.home(each, 2) for each in cohort]
    moved = [k for number in range(2) for k in dealt[number] if homes[k] != number]
    # Of clients that nobody has seen, it is not known who will move.
    assert len(LOADED) == len(cohort) + (0 if known else len(moved))


def test_nobody_is_told_to_load_what_is_in_ram():
    actors = InThisProcess(2)
    actors.tell = lambda calls: pytest.fail(f"told {calls}")
    dealing.Dealer(actors).load_ahead(in_ram(batch_size=4), ["client 0"])


def test_a_part_has_the_examples_of_its_clients_alone():
    datasets = in_ram(batch_size=4)
    one, two = datasets.in_parts([["client 0"], list(datasets.client_ids[1:])])
    assert len(pickle.dumps(one)) < len(pickle.dumps(two)) / 2
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(one)).examples("client 0")[0],
        client_arrays()["client 0"][0],
    )
    with pytest.raises(ValueError, match="Unknown client_id"):
        one.examples("client 1")


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (threading.Lock(), "cannot pickle '_thread.lock' object"),
        (
            tf.data.Dataset.range(3),
            "Cannot convert a Tensor of dtype variant to a NumPy array",
        ),
    ],
    ids=["lock", "dataset"],
)
def test_what_cannot_be_sent_is_named_with_the_remedy(two, held, reason):
    def load_client(client_id):
        return held and client_arrays()[client_id]

    def transform(examples, generator):
        return held and examples

    for functions in (
        {"load_client": load_client},
        {"load_client": client_arrays().get, "transform": transform},
    ):
        datasets = ClientDatasets(["client 0"], **functions, batch_size=4)
        with pytest.raises(TypeError) as caught:
            two.load_ahead(datasets, ["client 0"])
        assert str(caught.value) == (
            f"The clients' data cannot be sent to the actors on Ray: {reason}. Open "
            "files, sessions and datasets, and make locks, inside the function that "
            "loads clients (or transforms their examples), so that the function "
            "holds none."
        )


def train(context, datasets, build=algorithms.build_fed_avg, **options):
    process = build(models.softmax_regression, 0.1, **options)
    with tff.framework.get_context_stack().install(context):
        result = simulation.run_training(process, datasets, rounds=3, cohort_size=5)
    return result


def assert_close(one, other):
    tf.nest.map_structure(
        functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6),
        one.model_weights.trainable,
        other.model_weights.trainable,
    )


@pytest.mark.parametrize("name", ["in_ram", "loaded"])
def test_runs_give_the_numbers_of_one_process(two, name, tmp_path):
    datasets = in_ram(batch_size=4)
    if name == "loaded":
        datasets = ClientDatasets(
            list(client_arrays()), functools.partial(load, tmp_path), batch_size=4
        )
    ours = train(two, datasets)
    theirs = train(execution.create_local_execution_context(), in_ram(batch_size=4))
    assert_close(ours, theirs)
    again = train(two, datasets)
    models.assert_bit_equal(again.model_weights.trainable, ours.model_weights.trainable)
    read = [path.name.split(maxsplit=1) for path in tmp_path.iterdir()]
    # This process has read the first client, to know what examples look like.
    assert {client for pid, client in read if int(pid) == os.getpid()} <= {"client 0"}
    readers = {pid for pid, _ in read} - {str(os.getpid())}
    if name == "loaded":
        assert 1 <= len(readers) <= 2


def test_states_of_clients_follow_them(two):
    ours, theirs = (
        train(context, in_ram(batch_size=4), algorithms.build_scaffold, num_clients=7)
        for context in (two, execution.create_local_execution_context())
    )
    assert_close(ours, theirs)


def test_explain_says_where_what_runs(two):
    process = algorithms.build_fed_avg(models.softmax_regression, 0.1)
    datasets = in_ram(batch_size=4)
    state = call(two, process.initialize)
    data = two.by_name(simulation.Cohort(0, datasets.client_ids, datasets))
    told = two.explain(process.next, (state, data))
    loads = [0, 0]
    homes = [partition.home(each, 2) for each in datasets.client_ids]
    for number, part in enumerate(partition.deal(homes, SIZES, 2)):
        loads[number] = len(part)
    assert "2 actors" in told
    for number in range(2):
        assert f"0 GPUs, {loads[number]} clients" in told
    assert "what comes after the merge is computed in this process" in told
    # What the local context says.
    assert "  clients:" in told
    assert "no clients" in two.explain(process.initialize)
    with pytest.raises(TypeError, match="must be a tff"):
        two.explain(len)
