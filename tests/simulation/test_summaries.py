"""What data and results show of themselves, and what a misspelt argument answers."""

import inspect
import math
import xml.etree.ElementTree

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest

import tasks
from tests.simulation import fakes
from tff_drift import (
    algorithms,
    client_works,
    execution,
    signatures,
    simulation,
    summaries,
)
from tff_drift.simulation import ClientDatasets, run_training
from tff_drift.simulation.callbacks import Callback


def test_data_in_ram_tell_clients_examples_and_batches():
    assert repr(fakes.client_datasets(epochs=2)).splitlines() == [
        "ClientDatasets of 6 clients",
        "  clients:  'client_0', 'client_1', ..., 'client_5'",
        "  examples: 33, 3 to 8 per client",
        "  batch:    (float32[?,2], int32[?])",
        "  round:    2 epochs in batches of 2, shuffled by seed 0",
        "  cache:    none: the arrays are in RAM",
    ]


@pytest.mark.parametrize("options", [{}, {"max_examples": 4}])
def test_examples_in_ram_are_counted_as_they_are_kept(options):
    datasets = fakes.client_datasets().replace(**options)
    counts = [min(count, 4) if options else count for count in (3, 4, 5, 6, 7, 8)]
    total = f"{sum(counts)}, {min(counts)} to {max(counts)} per client"
    assert f"examples: {total}\n" in repr(datasets)
    # Nor is any of them loaded for it, except the one that tells the types.
    assert list(datasets._store.known_num_examples) == ["client_0"]
    assert [datasets.num_examples(each) for each in datasets.client_ids] == counts
    weighted = datasets.with_client_weights(dict.fromkeys(datasets.client_ids, 2.0))
    assert f"examples: {total}\n" in repr(weighted)


@pytest.mark.parametrize(
    "other", [np.ones([2, 3]), np.ones([2, 2], np.float32), {"x": np.ones([2, 2])}]
)
def test_clients_of_another_type_are_refused_in_a_summary(other):
    clients = {"a": (np.ones([2, 2]), np.ones(2)), "b": (other, np.ones(2))}
    datasets = ClientDatasets.from_arrays(clients, batch_size=2)
    with pytest.raises(ValueError, match="Client 'b' has examples of another type"):
        repr(datasets)


def test_a_long_id_is_shortened_wherever_it_stands():
    ids = [f"{number}{'x' * 1000}{number}" for number in range(4)]
    for count, shown in ((1, "0"), (3, "012"), (4, "013")):
        arrays = {each: np.zeros([2, 1]) for each in ids[:count]}
        line = repr(ClientDatasets.from_arrays(arrays, batch_size=1)).splitlines()[1]
        assert len(line) < 1000
        for number in shown:
            assert f"'{number}xxx" in line
            assert f"xxx{number}'" in line


def test_the_look_at_data_reads_nothing():
    read = []

    def load(client_id):
        read.append(client_id)
        return np.zeros([4, 2], np.float32), np.zeros(4, np.int64)

    datasets = ClientDatasets(["a", "b"], load, batch_size=2, shuffle=False)
    assert "examples: not read yet" in repr(datasets)
    assert "batch:    not read yet" in repr(datasets)
    assert read == []
    datasets.examples("b")
    assert "examples: 4, 4 per client, for the 1 read so far" in repr(datasets)
    assert "(float32[?,2], int64[?])" in repr(datasets)
    assert read == ["b"]


def parsed(html):
    return xml.etree.ElementTree.fromstring(f"<div>{html}</div>")


def test_notebooks_get_a_table_and_names_are_escaped():
    arrays = {"<script>": (np.zeros([2, 1]), np.zeros(2))}
    datasets = ClientDatasets.from_arrays(arrays, batch_size=1)
    table = parsed(datasets._repr_html_())
    assert table.find(".//script") is None
    assert next(cell.text for cell in table.iter("td")) == "'<script>'"


class Tested(Callback):
    def after_round(self, round_number, state, row):
        return {"test_accuracy": math.nan if round_number == 3 else round_number / 8}


@pytest.fixture(scope="module")
def result():
    return run_training(
        fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=5,
        cohort_size=2,
        callbacks=[Tested()],
    )


def test_a_result_tells_its_last_metrics(result):
    title, *lines = repr(result).splitlines()
    assert title == "TrainingResult of 5 rounds"
    assert [line.split(":")[0].strip() for line in lines] == [
        "last metrics",
        "model",
        "totals",
        "failures",
    ]
    assert "test_accuracy 0.625, train_accuracy 0.5, train_loss" in lines[0]
    assert "3 weights in 2 arrays" in lines[1]
    assert f"{result.totals.examples:,} examples" in lines[2]


def test_a_result_in_a_notebook_has_a_curve_with_a_gap(result):
    page = parsed(result._repr_html_())
    lines = [line.get("points").split() for line in page.iter("polyline")]
    assert [len(points) for points in lines] == [2, 2]
    # From the lowest value, at the bottom on the left, to the highest.
    assert lines[0][0] == "0.0,58.0"
    assert lines[1][-1] == "240.0,2.0"


def test_a_curve_says_what_its_height_is():
    page = summaries.curve("loss", [0.75, math.nan, 0.25, 0.5])
    assert "<div>loss, lowest 0.25, highest 0.75</div>" in page


def test_a_curve_of_one_value_is_none():
    assert summaries.curve("loss", [1.0, math.nan]) == ""
    assert (
        len(list(parsed(summaries.curve("<loss>", [1.0, 1.0])).iter("polyline"))) == 1
    )


def test_plots_leave_a_gap_where_a_value_is_not_finite(result):
    axes = result.plot("test_accuracy", "train_loss")
    accuracy, loss = axes.get_lines()
    assert accuracy.get_xdata().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(
        accuracy.get_ydata(), [1 / 8, 2 / 8, math.nan, 4 / 8, 5 / 8]
    )
    assert loss.get_ydata().tolist() == [row["train_loss"] for row in result.rows]
    assert [line.get_label() for line in result.plot().get_lines()] == [
        "test_accuracy",
        "train_accuracy",
    ]
    with pytest.raises(ValueError, match="'los' is none of the run's columns: round, "):
        result.plot("los")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("drop_remainder", 'Did you mean last_batch="drop"'),
        ("num_steps", "Did you mean local_steps"),
        ("num_epochs", "Did you mean epochs"),
        ("batchsize", "Did you mean batch_size"),
        ("batch", "Did you mean batch_size"),
        ("zebra", "Its arguments are clients, x, y, batch_size, epochs, "),
    ],
)
def test_a_misspelt_argument_is_answered_with_the_one_that_was_meant(name, advice):
    with pytest.raises(TypeError) as caught:
        ClientDatasets.from_arrays({"a": np.zeros(2)}, **{name: 1})
    assert f"ClientDatasets.from_arrays() has no argument {name!r}" in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name", "advice"),
    [
        (simulation.run_training, "num_rounds", "rounds"),
        (simulation.run_training, "cohortsize", "cohort_size"),
        (simulation.build_evaluation, "batchsize", "batch_size"),
        (simulation.callbacks.PeriodicEvaluation, "every", "rounds_per_evaluation"),
        (execution.create_local_execution_context, "batchclients", "batch_clients"),
        (execution.set_local_execution_context, "batchclients", "batch_clients"),
        (tasks.from_frame, "group", "client_id"),
        (tasks.from_folder, "num_epochs", "epochs"),
        (tasks.from_sqlite, "batchsize", "batch_size"),
        (tasks.partition, "clients", "num_clients"),
    ],
)
def test_other_functions_advise_too(call, name, advice):
    with pytest.raises(TypeError, match=f"no argument '{name}'. Did you mean {advice}"):
        call(**{name: 1})


def test_an_unknown_argument_is_not_told_at_length():
    with pytest.raises(TypeError, match=r"has no argument 'zz.*zz'") as caught:
        ClientDatasets.from_arrays({"a": np.zeros(2)}, **{"z" * 9_000: 1})
    assert len(str(caught.value)) < 1200


def test_no_argument_is_advised_that_a_function_lacks():
    @signatures.suggesting_names(steps="local_steps")
    def train(*, epochs):
        return epochs

    assert train(epochs=3) == 3
    with pytest.raises(TypeError, match=r"train\(\) has no argument 'steps'"):
        train(steps=2)


@pytest.mark.parametrize(
    "function",
    [
        ClientDatasets,
        ClientDatasets.from_arrays,
        ClientDatasets.from_client_data,
        ClientDatasets.replace,
        simulation.run_training,
        simulation.build_evaluation,
        simulation.OutputDir,
        client_works.KeepTraceSgd,
        client_works.LocalSgd,
        client_works.ProximalSgd,
        *(getattr(execution, name) for name in execution.__all__ if name.islower()),
        *(getattr(algorithms, name) for name in algorithms.__all__ if "build_" in name),
        *(getattr(simulation.callbacks, name) for name in simulation.callbacks.__all__),
    ],
)
def test_every_argument_has_a_name(function):
    kinds = {each.kind for each in inspect.signature(function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_options_that_are_passed_on_are_listed_with_their_defaults():
    of_arrays = inspect.signature(ClientDatasets.from_arrays).parameters
    assert of_arrays["batch_size"].default is inspect.Parameter.empty
    assert (of_arrays["epochs"].default, of_arrays["cache_bytes"].default) == (1, 0)
    # What is not given stays, so that none has a default to show.
    of_replace = inspect.signature(ClientDatasets.replace).parameters
    assert {each.default for name, each in of_replace.items() if name != "self"} == {
        ...
    }
