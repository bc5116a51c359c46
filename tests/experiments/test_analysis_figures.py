"""Figures of finished runs: their lines, bands, boxes and bars."""

import json
import math

import matplotlib.colors
import numpy as np
import pandas as pd
import pytest

from experiments import analysis
from tests.experiments import made_up_runs

NAN = math.nan


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_curves_are_means_with_bands(runs):
    figure = analysis.draw_curves(runs, ["test_accuracy", "test_loss"], "examples")
    left, right = figure.axes
    line = lines(left)["fed_avg"]
    assert list(line.get_xdata()) == [0, 100, 200, 300, 400]
    assert list(line.get_ydata()) == pytest.approx([0.1, 0.4, 0.6, 0.65, 0.7])
    band = left.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.1, 0.8))
    assert (left.get_xlabel(), left.get_ylabel()) == (
        "examples processed",
        "test_accuracy",
    )
    assert set(lines(right)) == {"fed_avg", "fed_adam"}
    wide = analysis.draw_curves(runs, ["test_accuracy"], band="sd").axes[0]
    band = wide.collections[0].get_paths()[0].vertices[:, 1]
    # At the last round: 0.7 and a deviation of 0.1 √2.
    assert band.max() == pytest.approx(0.7 + 0.1 * math.sqrt(2))


def test_figures_against_a_setting(tmp_path):
    for cohort, accuracy in ((2, 0.3), (4, 0.5), (8, 0.6)):
        for seed in (1, 2):
            made_up_runs.write(
                tmp_path / f"{cohort}_{seed}",
                [0.1, accuracy + 0.1 * (seed - 1)],
                seed=seed,
                clients_per_round=cohort,
            )
    runs = analysis.read(tmp_path)
    values = analysis.last_mean(runs, ["test_accuracy"])
    (axes,) = analysis.draw_against(runs, "clients_per_round", values).axes
    line = lines(axes)["fed_avg"]
    assert list(line.get_xdata()) == [2, 4, 8]
    assert list(line.get_ydata()) == pytest.approx([0.35, 0.55, 0.65])
    found = analysis.to_thresholds(runs, "test_accuracy", [0.3])
    found.columns = ["round to test_accuracy 0.3"]
    figure = analysis.draw_against(runs, "clients_per_round", found)
    assert "mean over 2 seeds" in figure.legends[0].get_title().get_text()
    figure.draw_without_rendering()
    # Rounds, not percent.
    assert not any("%" in t.get_text() for t in figure.axes[0].get_yticklabels())


def test_lines_of_unequal_numbers_of_seeds_are_told(tmp_path):
    for seed in (1, 2, 3):
        made_up_runs.write(tmp_path / f"a{seed}", [0.1, 0.2], seed=seed)
    made_up_runs.write(tmp_path / "b", [0.1, 0.2], algorithm="fed_adam")
    figure = analysis.draw_curves(analysis.read(tmp_path), ["test_accuracy"])
    title = figure.legends[0].get_title().get_text()
    assert title.startswith("lines: mean over 1 to 3 seeds; ")


def test_means_over_methods_are_not_called_means_over_seeds(tmp_path):
    for algorithm in ("fed_avg", "fed_adam"):
        for seed in (1, 2):
            made_up_runs.write(
                tmp_path / f"{algorithm}_{seed}",
                [0.1, 0.2],
                algorithm=algorithm,
                seed=seed,
                clients_per_round=2 * seed,
            )
    runs = analysis.read(tmp_path)
    by_seed = analysis.labels(runs, ["seed"])
    values = analysis.last_mean(runs, ["test_accuracy"])
    figures = (
        analysis.draw_curves(runs, ["test_accuracy"], labels=by_seed),
        analysis.draw_against(runs, "clients_per_round", values, labels=by_seed),
    )
    for figure in figures:
        title = figure.legends[0].get_title().get_text()
        assert title == "lines: mean over 2 runs; bands: smallest to largest"
    bars = analysis.draw_train_and_test(
        runs, "train_accuracy", "test_accuracy", labels=by_seed
    )
    title = bars.legends[0].get_title().get_text()
    assert title == "lines: ± a standard deviation over runs"


def test_tasks_have_lines_of_their_own(tmp_path):
    for task, accuracy in (("digits", 0.9), ("quadratic", 0.1)):
        for cohort in (2, 4):
            made_up_runs.write(
                tmp_path / f"{task}_{cohort}",
                [0.0, accuracy],
                norms=[10 * accuracy],
                task=task,
                clients_per_round=cohort,
            )
    runs = analysis.read(tmp_path)
    values = analysis.last_mean(runs, ["test_accuracy"])
    (axes,) = analysis.draw_against(runs, "clients_per_round", values).axes
    drawn = {name: list(line.get_ydata()) for name, line in lines(axes).items()}
    assert drawn == {
        "fed_avg, digits": [0.9, 0.9],
        "fed_avg, quadratic": [0.1, 0.1],
    }
    norms = analysis.predicted_norms(runs)
    assert sorted(norms["measured"]) == [1.0, 1.0, 9.0, 9.0]


def test_a_seed_that_ended_early_leaves_no_mean_of_the_others(tmp_path):
    made_up_runs.write(tmp_path / "stopped", [0.1, 0.1], rounds=3, norms=[4.0])
    summary = {"rounds": 3, "clients": 50, "stop_reason": "enough"}
    (tmp_path / "stopped" / "summary.json").write_text(json.dumps(summary))
    made_up_runs.write(
        tmp_path / "whole", [0.1, 0.5, 0.9, 0.9], seed=2, norms=[6.0] * 3
    )
    runs = analysis.read(tmp_path)
    curve = analysis.curves(runs, "test_accuracy", "round", analysis.labels(runs))
    assert curve["mean"].tolist()[:2] == pytest.approx([0.1, 0.3])
    assert curve["mean"].isna().tolist() == [False, False, True, True]
    measured = analysis.predicted_norms(runs)["measured"]
    assert measured.tolist() == pytest.approx([5.0, NAN, NAN], nan_ok=True)


def test_boxes_are_of_the_percentiles(runs):
    (axes,) = analysis.draw_clients(runs, "test_accuracy").axes
    boxes = [patch.get_path().get_extents() for patch in axes.patches]
    assert boxes[0].ymin == pytest.approx(0.7 * 0.25)
    assert boxes[0].ymax == pytest.approx(0.7 * 0.75)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        "fed_avg",
        "fed_adam",
    ]


def test_bars_are_of_training_and_of_test(runs):
    (axes,) = analysis.draw_train_and_test(runs, "train_accuracy", "test_accuracy").axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([0.8, 0.7, 0.7, 0.6])


def test_a_heat_map_has_its_numbers():
    table = pd.DataFrame(
        [[0.1, 0.5], [NAN, 0.9]],
        index=pd.Index([0.01, 0.1], name="server_learning_rate"),
        columns=pd.Index([1.0, 3.0], name="client_learning_rate"),
    )
    axes, _ = analysis.draw_heat_map(table, "test_accuracy", "A search").axes
    assert [text.get_text() for text in axes.texts] == [
        "10.0 %",
        "50.0 %",
        "diverged",
        "90.0 %",
    ]
    assert np.isnan(np.ma.filled(axes.images[0].get_array(), NAN)[1, 0])
    assert axes.get_xlabel() == "client_learning_rate"
    assert matplotlib.colors.to_hex(axes.texts[0].get_color()) == "#ffffff"
