"""The tables and figures of presets, of results made up by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from experiments.analysis.studies import read_study
from experiments.presets.preset import Output, Study
from experiments.reports import outputs, percentiles, relative_times
from tests.experiments import made_up_runs


@pytest.fixture
def results_of(tmp_path):
    def build(*runs, **columns):
        made_up_runs.write_study(tmp_path, runs, **columns)
        return read_study(tmp_path)

    return build


def test_a_study_is_read_from_its_files(results_of, tmp_path):
    results = results_of(
        ("slow", {"algorithm": "fed_avg", "rates": [1, 2]}, [0.1, 0.2]),
        ("fast", {"algorithm": "fed_adam", "rates": [1, 3]}, [0.1, 0.3]),
        ("fast", {"algorithm": "fed_adam", "seed": 2}, [0.1, 0.5]),
    )
    assert results.headline == "test_accuracy"
    assert list(results.labels) == ["slow", "fast", "fast"]
    assert list(results.runs.settings["seed"]) == [1, 1, 2]
    assert results.runs.settings["rates"].iloc[1] == (1, 3)
    assert set(results.runs.settings["clients"]) == {50}
    some = results.where({"algorithm": "fed_adam"})
    assert list(some.labels) == ["fast", "fast"]
    assert set(some.runs.rounds["run"]) == {
        str(tmp_path / "fast" / f"seed_{seed}") for seed in (1, 2)
    }
    assert results.title("What") == "part, seeds 1, 2. What: mean ± sd over seeds."
    (tmp_path / "summary.json").unlink()
    with pytest.raises(ValueError, match="is damaged: no 'clients'"):
        read_study(tmp_path)


def test_a_figure_against_a_setting_leaves_out_whom_it_does_not_concern(results_of):
    results = results_of(
        ("plain", {"algorithm": "fed_avg", "meta_overlap": None}, [0.5]),
        ("none", {"algorithm": "fed_meta", "meta_overlap": 0.0}, [0.6]),
        ("all", {"algorithm": "fed_meta", "meta_overlap": 1.0}, [0.7]),
    )
    [axes] = outputs.draw_against(results, "meta_overlap").axes
    [line] = axes.get_lines()
    np.testing.assert_allclose(line.get_xydata(), [(0.0, 0.6), (1.0, 0.7)])


def test_all_that_a_study_wants_is_made_of_its_files(results_of, tmp_path):
    accuracies = {5: [0.1, 0.5, 0.8], 20: [0.1, 0.7, 0.9]}
    results_of(
        *(
            (f"{name}_m{cohort}", {"algorithm": name, **more}, values)
            for name in ("fed_avg", "fed_sgd")
            for cohort, values in accuracies.items()
            for more in [{"clients_per_round": cohort, "local_steps": 2}]
        ),
        **{"finalizer/pseudo_gradient_norm": lambda number, _: 1.0 / (1 + number)},
        total_simulated_seconds=lambda number, settings: number,
    )
    against = {"setting": "clients_per_round"}
    axes = {"across": "local_steps", "down": "clients_per_round"}
    wanted = [
        Output("mine", "curves", {"where": {"algorithm": "fed_sgd"}}),
        Output("accuracy", "against", against),
        Output("rounds", "against", {**against, "thresholds": (0.6, 0.8)}),
        Output("failures", "failures", {**against, "by": ("algorithm",)}),
        Output("map", "heat_map", {**axes, "algorithm": "fed_avg", "threshold": 0.8}),
        Output("predicted", "predicted_norms"),
        Output("last", "last_rounds", {"paper": {"fed_avg_m5": 0.75}}),
        Output("needed", "thresholds", {"thresholds": (0.6,)}),
    ]
    to = tmp_path / "elsewhere"
    to.mkdir()
    tables = outputs.write(tmp_path, Study("part", {}, (), outputs=wanted), to)
    made = {path.name for path in to.iterdir()}
    figures = {f"{name}.png" for name in ("mine", "accuracy", "rounds", "failures")}
    assert made == {
        *figures, "map.png", "predicted.png",
        "last.md", "last.csv", "needed.md", "needed.csv",
    }  # fmt: skip
    last = pd.read_csv(to / "last.csv").set_index("label")
    assert last.loc["fed_avg_m20", "test_accuracy"] == 0.9
    assert last.loc["fed_avg_m5", "paper"] == 0.75
    assert "| fed_avg_m5 | 1 | 2 | 80.00 % |" in (to / "last.md").read_text()
    needed = pd.read_csv(to / "needed.csv").set_index("label")
    assert needed["round_to_0.6"].to_dict() == {
        "fed_avg_m5": 2, "fed_avg_m20": 1, "fed_sgd_m5": 2, "fed_sgd_m20": 1,
    }  # fmt: skip
    assert "Mean of the last round" in tables[0].title
    assert len(tables) == 2


def test_titles_name_no_more_rounds_than_there_are(results_of):
    results = results_of(("a", {}, [0.1, 0.2, 0.3]), ("b", {}, [0.1, 0.2]))
    columns = {
        f"test_accuracy_client_p{percent}": lambda number, settings: 0.5
        for percent in made_up_runs.PERCENTS
    }
    title = outputs.tabulate_last(results, last=100).title
    assert "Mean of the last 2 rounds (all of shorter runs): mean" in title
    results = results_of(("a", {}, [0.1, 0.2, 0.3]), **columns)
    title = percentiles.tabulate(results, last=100).title
    assert "over test clients, the last 2 rounds: mean" in title


def test_percentiles_stand_beside_the_papers(results_of):
    columns = {
        f"test_accuracy_client_p{percent}": lambda number, settings, p=percent: (
            p / 100 + 0.01 * settings["seed"]
        )
        for percent in made_up_runs.PERCENTS
    }
    results = results_of(
        ("known", {}, [0.1, 0.2]), ("known", {"seed": 3}, [0.1, 0.2]),
        ("other", {}, [0.1, 0.2]), **columns,
    )  # fmt: skip
    table = percentiles.tabulate(
        results, paper={"known": (0.1, 0.2, 0.3, 0.4, 0.5)}, source="a paper"
    )
    assert table.cells[0][:3] == ["known", "2", "7.00 ± 1.41 % (10.00 %)"]
    assert table.cells[0][-1] == "97.00 ± 1.41 % (50.00 %)"
    assert table.cells[1] == ["other", "1", *(f"{p}.00 %" for p in (6, 26, 51, 76, 96))]
    assert "in parentheses a paper" in table.title
    first, second = table.data.to_dict("records")
    assert first["test_accuracy_client_p95_paper"] == 0.5
    assert math.isnan(second["test_accuracy_client_p95_paper"])


def test_times_are_relative_to_the_small_cohorts_of_the_same_seed(results_of):
    def seconds(number, settings):
        # A round takes λ times the cohort, and twice that with seed 2.
        each = settings["straggler_delay"] * settings["clients_per_round"]
        return number * each * settings["seed"]

    curves = {10: [0.1, 0.2, 0.5, 0.6], 40: [0.1, 0.5, 0.6, 0.9]}
    results = results_of(
        *(
            (
                f"d{delay}_m{cohort}",
                {"straggler_delay": delay, "clients_per_round": cohort, "seed": seed},
                values,
            )
            for delay in (1.0, 3.0)
            for cohort, values in curves.items()
            for seed in (1, 2)
        ),
        total_simulated_seconds=seconds,
    )
    ratios = relative_times.measure(results, (0.5, 0.6, 0.9), 10)
    for delay in (1.0, 3.0):
        assert ratios.loc[(delay, 10)].tolist()[:2] == [1.0, 1.0]
        # Half the rounds to 50 %, two thirds to 60 %, of four times the length.
        assert ratios.loc[(delay, 40)].tolist()[:2] == pytest.approx([2.0, 8 / 3])
        # The small cohort did not get there.
        assert np.isnan(ratios.loc[(delay, 40)].iloc[2])
    table = relative_times.tabulate(results, (0.5, 0.6, 0.9), 10)
    assert table.cells[1] == ["λ = 1, 40 clients", "2", "2.67", "-"]
    figure = relative_times.draw(results, (0.5, 0.6, 0.9), 10)
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 2]


def test_settings_that_are_nearly_as_good_as_the_best_are_counted(results_of):
    results = results_of(
        ("adam_1", {"algorithm": "fed_adam"}, [0.1, 0.9]),
        ("adam_2", {"algorithm": "fed_adam"}, [0.1, 0.86]),
        ("avg_1", {"algorithm": "fed_avg"}, [0.1, 0.4]),
        ("avg_2", {"algorithm": "fed_avg"}, [0.1, 0.7]),
        ("avg_3", {"algorithm": "fed_avg"}, [0.1, float("nan")]),
        ("sgd_1", {"algorithm": "fed_sgd"}, [0.1, float("nan")]),
    )
    table = outputs.tabulate_good_regions(results)
    assert table.cells == [
        ["fed_adam", "90.00 %", "adam_1", "2 of 2"],
        ["fed_avg", "70.00 %", "avg_2", "1 of 3"],
        ["fed_sgd", "-", "", "0 of 1"],
    ]
    assert table.headers[-1] == "within 5 points of it"


def test_a_share_of_runs_that_broke_down_is_drawn(results_of):
    results = results_of(
        *(
            ("a", {"clients_per_round": cohort, "seed": seed}, [0.1, 0.2])
            for cohort in (5, 20)
            for seed in (cohort, cohort + 1)
        ),
        catastrophic_failure=lambda number, settings: float(
            number and settings["seed"] == 20
        ),
    )
    figure = outputs.draw_failures(results, "clients_per_round", ("algorithm",))
    (line,) = figure.axes[0].get_lines()
    assert line.get_xydata().tolist() == [[5, 0], [20, 0.5]]
