"""A run that is resumed is the same run, or is refused with what differs."""

import copy
import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, tiers
from tests.simulation import fakes
from tff_drift import algorithms, optimizers, simulation
from tff_drift.simulation import ClientDatasets, build_uniform_sampling, run_training
from tff_drift.simulation.callbacks import FinalEvaluation, PeriodicEvaluation
from tff_drift.simulation.data import example_store
from tff_drift.simulation.records import checkpoint


def arrays(num_clients=6, size=5):
    random = np.random.default_rng(1)
    return {
        f"client_{k}": (
            random.normal(size=(size, fakes.NUM_FEATURES)).astype(np.float32),
            np.arange(size, dtype=np.int32),
        )
        for k in range(num_clients)
    }


def run(folder, clients=None, rounds=3, process=None, train=None, **options):
    if not {"cohort_size", "sampling"} & set(options):
        options["cohort_size"] = 2
    return run_training(
        process or fakes.AveragingProcess(),
        train or ClientDatasets.from_arrays(clients or arrays(), batch_size=2),
        rounds=rounds,
        output_dir=folder,
        **options,
    )


def in_ram(clients):
    return ClientDatasets.from_arrays(clients, batch_size=2)


def read_on_demand(clients):
    return ClientDatasets(list(clients), clients.__getitem__, batch_size=2)


def changed(client_id, change):
    clients = arrays()
    clients[client_id] = change(*clients[client_id])
    return clients


def other_where_no_sample_looks(k):
    """The third of five examples is a sample's, like the first and the last."""
    return changed(f"client_{k}", lambda x, y: (x, y[[0, 3, 2, 1, 4]]))


OTHER_DATA = {
    "a value": lambda: changed("client_3", lambda x, y: (x + (x == x[2]), y)),
    "another order": lambda: changed("client_0", lambda x, y: (x[::-1], y)),
    "other labels": lambda: changed("client_5", lambda x, y: (x, y[::-1])),
    "fewer examples": lambda: changed("client_2", lambda x, y: (x[:4], y[:4])),
    "other labels between": lambda: other_where_no_sample_looks(4),
    "another dtype": lambda: {
        name: (x, y.astype(np.int64)) for name, (x, y) in arrays().items()
    },
}


@pytest.mark.parametrize("make", [in_ram, read_on_demand])
@pytest.mark.parametrize("other", OTHER_DATA)
def test_other_data_under_the_same_ids_are_refused(other, make, tmp_path):
    run(tmp_path, train=make(arrays()))
    with pytest.raises(
        ValueError, match=r"data has changed since \(.*train\.contents_sha256"
    ):
        run(tmp_path, rounds=5, train=make(OTHER_DATA[other]()))
    assert run(tmp_path, rounds=5, train=make(arrays())).totals.rounds == 5


@pytest.mark.parametrize(
    "values",
    [
        np.arange(5),
        np.arange(20.0).reshape(10, 2)[::2],
        np.arange(40_000.0).reshape(20_000, 2)[::-2],
        np.asfortranarray(np.arange(10, dtype=np.float16).reshape(5, 2)),
        np.array([True, False, True, True, False]),
        np.arange(5) * 1j,
        np.array(["a", "b", "c", "d", "e"]),
        np.array(["a", b"b", "c", b"d", "e"], object),
        np.zeros([5, 0]),
    ],
    ids=lambda values: f"{values.dtype} {values.shape}",
)
def test_every_value_counts_of_every_dtype(values):
    def digest(values):
        return in_ram({"ann": (values,)}).digest()

    assert digest(values.copy()) == digest(values)
    if values.size:
        other = values.copy()
        other[1], other[3] = values[3], values[1]
        assert digest(other)["contents_sha256"] != digest(values)["contents_sha256"]
        # What an earlier version kept does not tell them apart.
        assert digest(other)["examples_sha256"] == digest(values)["examples_sha256"]


def test_examples_that_are_not_trained_on_do_not_count():
    clients = arrays()
    train = in_ram(clients).replace(max_examples=3)
    other = changed("client_1", lambda x, y: (x, np.minimum(y, y[2])))
    assert in_ram(other).digest() != in_ram(clients).digest()
    assert in_ram(other).replace(max_examples=3).digest() == train.digest()


def test_a_run_of_an_earlier_version_is_compared_by_what_it_kept(tmp_path):
    run(tmp_path)
    path = tmp_path / "checkpoint.npz"
    saved = checkpoint.load_checkpoint(path)
    description = copy.deepcopy(dict(saved.description))
    contents = description["training"]["train"].pop("contents_sha256")
    leaves = {name: dict(each) for name, each in saved.leaves.items()}
    checkpoint.save_checkpoint(path, 3, description, leaves)
    with pytest.raises(
        ValueError, match=r"data has changed since \(train\.examples_sha256\)"
    ):
        run(tmp_path, OTHER_DATA["a value"](), rounds=5)
    run(tmp_path, rounds=5)
    train = checkpoint.load_checkpoint(path).description["training"]["train"]
    assert train["contents_sha256"] == contents
    with pytest.raises(
        ValueError, match=r"data has changed since \(.*train\.contents_sha256"
    ):
        run(tmp_path, other_where_no_sample_looks(4), rounds=6)


def test_a_run_without_its_source_goes_on_with_it(tmp_path):
    source = example_store.OfSource(arrays().__getitem__, "a hash")
    run(tmp_path, train=read_on_demand(arrays()))
    train = ClientDatasets(list(arrays()), source, batch_size=2)
    run(tmp_path, rounds=5, train=train)
    other = dataclasses.replace(source, source_sha256="another")
    with pytest.raises(ValueError, match=r"changed since \(train\.source_sha256\)\. P"):
        run(tmp_path, train=ClientDatasets(list(arrays()), other, batch_size=2))


def test_of_many_clients_few_are_read():
    read = []

    def load(client_id):
        read.append(client_id)
        return np.zeros([2, 1]), np.zeros(2)

    ids = [str(k) for k in range(342_477)]
    ClientDatasets(ids, load, batch_size=1).digest()
    assert len(read) == 16
    assert {ids[0], ids[-1]} <= set(read)


def test_without_a_folder_no_data_are_read_for_it():
    read = []

    def load(client_id):
        read.append(client_id)
        return arrays()[client_id]

    train = ClientDatasets(list(arrays()), load, batch_size=2)
    run(None, train=train, rounds=1, sampling=lambda _: ["client_4"])
    assert set(read) == {"client_4"}


@pytest.mark.parametrize(
    "other",
    [
        lambda ids: build_uniform_sampling(ids, 2, seed=1),
        lambda ids: build_uniform_sampling(ids, simulation.doubling_cohorts(2, [9])),
        lambda ids: simulation.build_growing_sampling(in_ram(arrays()), 2, [99]),
    ],
)
def test_another_schedule_is_refused(other, tmp_path):
    ids = list(arrays())
    run(tmp_path, sampling=build_uniform_sampling(ids, 2))
    with pytest.raises(ValueError, match=r"sampling\.\S+ was"):
        run(tmp_path, rounds=5, sampling=other(ids))
    run(tmp_path, rounds=5, sampling=build_uniform_sampling(ids, 2))


def test_a_schedule_that_differs_in_the_future_is_refused(tmp_path):
    def sampling(*rounds):
        sizes = simulation.doubling_cohorts(1, rounds)
        return build_uniform_sampling(list(arrays()), sizes)

    run(tmp_path, sampling=sampling(30, 60))
    with pytest.raises(ValueError, match=r"cohort_size\.rounds was \[30, 60\]"):
        run(tmp_path, sampling=sampling(30, 50))


def test_a_size_that_was_given_beside_a_sampling_is_no_difference(tmp_path):
    # Earlier versions took it, and kept it.
    ids = list(arrays())
    run(tmp_path, sampling=build_uniform_sampling(ids, 2))
    checkpoint = tmp_path / "checkpoint.npz"
    with np.load(checkpoint) as kept:
        members = dict(kept)
    header = json.loads(members["header"].tobytes())
    assert header["description"]["training"]["cohort_size"] is None
    header["description"]["training"]["cohort_size"] = 2
    members["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(checkpoint, **members)
    result = run(tmp_path, rounds=5, sampling=build_uniform_sampling(ids, 2))
    assert [row["round"] for row in result.rows] == [1, 2, 3, 4, 5]


def test_a_function_that_samples_others_is_refused(tmp_path):
    run(tmp_path, sampling=lambda number: [f"client_{number}"])
    with pytest.raises(ValueError, match="sampling returns other clients for round 2"):
        run(tmp_path, rounds=5, sampling=lambda number: [f"client_{number + 1}"])
    run(tmp_path, rounds=5, sampling=lambda number: [f"client_{number}"])


def test_samplings_say_what_they_are():
    sizes = simulation.doubling_cohorts(1, [30], maximum=4)
    assert repr(sizes) == "doubling_cohorts(cohort_size=1, rounds=[30], maximum=4)"
    sampling = build_uniform_sampling(["a", "b"], 1, seed=3)
    assert repr(sampling) == "uniform_sampling(cohort_size=1, seed=3)"


def with_meta_step(epochs, seed=1, **options):
    model = models.softmax_regression
    process = algorithms.build_fed_avg(model, 0.1)
    [data] = models.datasets(models.client_arrays([4], seed))
    return algorithms.add_meta_step(
        process, model, data, 0.1, meta_epochs=epochs, meta_batch_size=2, **options
    )


def sharing(seed=1, size=4, batch_size=4, **options):
    [data] = models.datasets(models.client_arrays([size], seed), batch_size)
    return algorithms.build_fed_share(models.softmax_regression, 0.1, data, **options)


def of_total(total_examples):
    return algorithms.build_scaffold(
        models.softmax_regression,
        0.1,
        3,
        total_examples=total_examples,
        client_weighting=tff.learning.ClientWeighting.NUM_EXAMPLES,
    )


@functools.cache
def built(method):
    model = models.softmax_regression
    builders = {
        "fed_avg": lambda: algorithms.build_fed_avg(model, 0.1),
        "fed_prox": lambda: algorithms.build_fed_prox(model, 0.1, mu=0.1),
        "other mu": lambda: algorithms.build_fed_prox(model, 0.1, mu=0.2),
        "scaffold": lambda: algorithms.build_scaffold(model, 0.1, 3),
        "option I": lambda: algorithms.build_scaffold(model, 0.1, 3, option="I"),
        "normalized": lambda: algorithms.build_fed_avg(
            model, optimizers.build_normalized_sgd(0.1)
        ),
        "decay": lambda: algorithms.build_fed_avg(
            model, 0.1, client_rate_schedule=optimizers.exponential(0.5, 500)
        ),
        "other decay": lambda: algorithms.build_fed_avg(
            model, 0.1, client_rate_schedule=optimizers.exponential(0.5, 510)
        ),
        "own decay": lambda: algorithms.build_fed_avg(
            model, 0.1, server_rate_schedule=lambda k: 1 / (1 + k)
        ),
        "other own decay": lambda: algorithms.build_fed_avg(
            model, 0.1, server_rate_schedule=lambda k: 1 / (2 + k)
        ),
        "adabest": lambda: algorithms.build_adabest(
            model, 0.1, beta_schedule="every_round", beta_decay=0.9
        ),
        "adabest plateau": lambda: algorithms.build_adabest(
            model, 0.1, beta_decay=0.9, plateau_patience=5
        ),
        "adabest other patience": lambda: algorithms.build_adabest(
            model, 0.1, beta_decay=0.9, plateau_patience=6
        ),
        "adabest other decay": lambda: algorithms.build_adabest(
            model, 0.1, beta_schedule="every_round", beta_decay=0.8
        ),
        "scaffold of 12": lambda: of_total(12),
        "scaffold of 1200": lambda: of_total(1200),
        "share": sharing,
        "share of other data": lambda: sharing(2),
        "share in other batches": lambda: sharing(batch_size=2),
        "share in epochs": lambda: sharing(local_epochs=2),
        "share with decay": lambda: sharing(client_weight_decay=0.5),
        "share by clients": lambda: sharing(
            client_weighting=tff.learning.ClientWeighting.UNIFORM
        ),
        "meta": lambda: with_meta_step(1),
        "meta of other data": lambda: with_meta_step(1, 2),
        "meta of more epochs": lambda: with_meta_step(2),
        "meta at a schedule": lambda: with_meta_step(
            1, meta_rate_schedule=optimizers.inverse_sqrt()
        ),
    }
    return builders[method]()


# Of two epochs, as one of the methods takes them to hold.
_FEW = ClientDatasets.from_arrays(
    {f"client_{k}": client for k, client in enumerate(models.client_arrays([4] * 3))},
    batch_size=2,
    epochs=2,
)


@pytest.fixture(scope="module")
def first_round(tmp_path_factory):
    """Makes folders with the first round of a method, trained once for each method."""

    @functools.cache
    def trained(method):
        folder = tmp_path_factory.mktemp("run")
        run(folder, train=_FEW, rounds=1, process=built(method))
        return folder

    return lambda method, folder: shutil.copytree(trained(method), folder)


def _files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.*")}


@pytest.mark.parametrize(
    ("method", "other", "message"),
    tiers.first(
        [0, 5, 10],
        [
            ("fed_avg", "fed_prox", r"method\.client_work\.class was \"LocalSgd\""),
            ("fed_prox", "other mu", r"method\.client_work\.mu was 0.1 and is now 0.2"),
            ("scaffold", "option I", r"method\.client_work\.\S+ was "),
            ("fed_avg", "normalized", r"method\.client_work\.optimizer\S* was "),
            ("decay", "other decay", r"method\.client_rate_schedule was "),
            ("fed_avg", "decay", r"method\.client_rate_schedule was absent"),
            (
                "own decay",
                "other own decay",
                r"method\.server_step\.\S+\.schedule was ",
            ),
            ("adabest", "adabest other decay", r"\.rule\.schedule was "),
            (
                "adabest plateau",
                "adabest other patience",
                r"patience was 5 and is now 6",
            ),
            (
                "scaffold of 12",
                "scaffold of 1200",
                r"method\.control_variate\.num_clients was 12\S* and is now 1200",
            ),
            ("share", "share of other data", r"method\.share\.batches_sha256 was "),
            ("share", "share in other batches", r"method\.share\.batches_sha256 was "),
            (
                "share",
                "share in epochs",
                r"method\.share\.local_epochs was 1 and is now 2",
            ),
            (
                "share",
                "share with decay",
                r"method\.client_work\.\S*weight_decay was 0",
            ),
            ("share", "share by clients", r"method\.client_weighting was "),
            (
                "meta",
                "meta of other data",
                r"changed since \(method\.meta\.examples_sha256\)",
            ),
            ("meta", "meta of more epochs", r"method\.meta\.epochs was 1 and is now 2"),
            ("meta", "meta at a schedule", r"method\.meta\.rate_schedule was "),
        ],
    ),
)
def test_another_method_is_refused(method, other, message, first_round, tmp_path):
    folder = first_round(method, tmp_path / "run")
    before = _files(folder)
    with pytest.raises(ValueError, match=message):
        run(folder, train=_FEW, rounds=2, process=built(other))
    assert len(before) > 2
    assert _files(folder) == before


@pytest.mark.parametrize(
    ("method", "other"),
    tiers.first([0], [("fed_avg", "fed_prox"), ("scaffold", "option I")]),
)
def test_after_another_method_was_refused_the_run_goes_on(
    method, other, first_round, tmp_path
):
    folder = first_round(method, tmp_path / "run")
    with pytest.raises(ValueError, match=r"method\.client_work\.\S+ was "):
        run(folder, train=_FEW, rounds=2, process=built(other))
    again = run(folder, train=_FEW, rounds=2, process=built(method))
    assert again.totals.rounds == 2


def evaluation(clients, **options):
    return simulation.build_evaluation(
        models.softmax_regression, in_ram(clients), **options
    )


@pytest.mark.conformance
def test_evaluation_on_other_clients_is_refused(tmp_path):
    clients = {
        f"client_{k}": client for k, client in enumerate(models.client_arrays([4] * 3))
    }
    others = {**clients, "client_1": (-clients["client_1"][0], clients["client_1"][1])}

    def go(test, callback=PeriodicEvaluation, **options):
        return run(
            tmp_path / callback.__name__,
            clients,
            process=built("fed_avg"),
            callbacks=[callback(evaluation(test, **options))],
            rounds=1,
        )

    for callback in (PeriodicEvaluation, FinalEvaluation):
        go(clients, callback)
        with pytest.raises(
            ValueError, match=r"changed since \(\S*evaluation\.examples_sha256"
        ):
            go(others, callback)
        with pytest.raises(ValueError, match=r"evaluation\.clients was 3 and is now 2"):
            go(clients, callback, max_clients=2)
        go(clients, callback)


@pytest.mark.parametrize("bad", ["\ud800", "client\udfff"])
def test_an_id_that_is_no_text_is_refused(bad):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        ClientDatasets.from_arrays({bad: (np.zeros(2), np.zeros(2))}, batch_size=1)


def test_a_number_as_an_id_is_refused():
    with pytest.raises(TypeError, match=r"client_ids must be strings, found 0\. Give"):
        ClientDatasets.from_arrays({0: (np.zeros(2), np.zeros(2))}, batch_size=1)
