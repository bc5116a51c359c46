"""What the functions of `experiments.analysis` say of arguments that are none."""

import inspect

import numpy as np
import pytest

from experiments import analysis
from tests.experiments import made_up_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for method in ("fed_avg", "fed_adam"):
        made_up_runs.write(folder / method, [0.1, 0.2, 0.3], algorithm=method)
    return analysis.read(folder)


GOOD = {
    "runs": lambda runs: runs,
    "labels": analysis.labels,
    "values": lambda runs: analysis.last_mean(runs, ["test_loss"]),
    "column": lambda runs: "test_accuracy",
    "columns": lambda runs: ["test_accuracy"],
    "train": lambda runs: "train_accuracy",
    "test": lambda runs: "test_accuracy",
    "setting": lambda runs: "clients_per_round",
    "band": lambda runs: "range",
    "by": lambda runs: ["algorithm"],
    "thresholds": lambda runs: [0.2],
    "axis": lambda runs: "round",
    "last": lambda runs: 1,
}
FUNCTIONS = (
    analysis.headline,
    analysis.falls,
    analysis.measured,
    analysis.labels,
    analysis.to_thresholds,
    analysis.last_mean,
    analysis.failed,
    analysis.over_seeds,
    analysis.curves,
    analysis.draw_curves,
    analysis.draw_against,
    analysis.draw_clients,
    analysis.draw_train_and_test,
)
# No value of any argument.
NONSENSE = (0.5, -1, {}, object(), float("nan"), b"x", [object()], [None], lambda: 0)


@pytest.mark.parametrize(
    ("function", "name"),
    [(each, name) for each in FUNCTIONS for name in inspect.signature(each).parameters],
)
def test_nonsense_is_refused_by_name(runs, function, name):
    arguments = {
        each: GOOD[each](runs) for each in inspect.signature(function).parameters
    }
    function(**arguments)
    for value in NONSENSE:
        with pytest.raises((TypeError, ValueError), match=f"^{name} ") as caught:
            function(**{**arguments, name: value})
        assert "\n" not in str(caught.value)


def test_lists_may_be_arrays_and_empty_lists_of_columns_are_refused(runs):
    found = analysis.to_thresholds(runs, "test_accuracy", np.array([0.2, 0.3]))
    assert list(found.iloc[0]) == [1, 2]
    assert set(analysis.labels(runs, [])) == {"all"}
    with pytest.raises(ValueError, match=r"columns is empty\. Name a column"):
        analysis.draw_curves(runs, [])


@pytest.mark.parametrize("value", [None, 0, [], {}])
def test_folders_are_paths(value):
    with pytest.raises(TypeError, match="folders must be"):
        analysis.read(value)


def test_without_a_folder_there_is_nothing_to_read():
    with pytest.raises(ValueError, match="folders is empty"):
        analysis.read()
