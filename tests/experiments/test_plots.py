"""Figures and tables of runs made up by hand."""

import itertools
import math
import pathlib

import numpy as np
import pytest
from matplotlib.colors import to_hex

from experiments.analysis import style
from experiments.flags import settings
from experiments.reports import comparison, plots
from experiments.reports.results import Result


def result(algorithm="fed_avg", seed=1, accuracies=(0.1, 0.5, 0.9), losses=(2, 1, 0.5)):
    configuration = {
        "task": "digits",
        "algorithm": algorithm,
        "seed": seed,
        "rounds": 20,
        "client_learning_rate": None if algorithm == "fed_sgd" else 0.1,
        "server_learning_rate": 1.0,
    }
    rows = []
    for position, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True)):
        rows.append(
            {
                "round": 10 * position,
                "test_accuracy": accuracy,
                "test_loss": loss,
                "test_num_examples": 100,
                "train_accuracy": accuracy,
                "train_loss": loss,
                "total_examples": 100 * position,
                "total_bytes": 1000 * position,
            }
        )
        for percent in (5, 25, 50, 75, 95):
            rows[-1][f"test_accuracy_client_p{percent}"] = accuracy * percent / 100
    summary = {
        "clients": 50,
        "clients_per_round": 10,
        "best": {"test_accuracy": {"round": 20, "value": max(accuracies)}},
        "totals": {"seconds": 1.0, "seconds_evaluation": 0.5},
        "failures": [],
    }
    return Result(
        settings.RunSettings(
            **{name: configuration[name] for name in ("task", "seed", "rounds")},
            algorithm=algorithm,
            configuration=configuration,
            circumstances={},
            folder=pathlib.Path(),
            label=algorithm,
        ),
        rows,
        summary,
    )


def draw_comparison(runs):
    return plots.draw_comparison(*plots.gather(runs))


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_comparison_shows_means_and_extremes():
    figure = draw_comparison(
        [
            result(seed=1, accuracies=(0.1, 0.5, 0.9)),
            result(seed=2, accuracies=(0.3, 0.5, 0.7)),
            result("fed_adam", seed=1),
            result("fed_adam", seed=2),
        ]
    )
    left, right = figure.axes
    assert list(lines(left)) == ["fed_avg", "fed_adam"]
    np.testing.assert_allclose(lines(left)["fed_avg"].get_xdata(), [0, 10, 20])
    np.testing.assert_allclose(lines(left)["fed_avg"].get_ydata(), [0.2, 0.5, 0.8])
    band = left.collections[0].get_paths()[0].get_extents()
    assert (band.ymin, band.ymax) == pytest.approx((0.1, 0.9))
    np.testing.assert_allclose(lines(right)["fed_avg"].get_ydata(), [2, 1, 0.5])


def test_comparison_explains_itself():
    figure = draw_comparison([result(seed=3), result(seed=4)])
    left, right = figure.axes
    assert figure.get_suptitle() == "digits, 10 of 50 clients per round"
    assert left.get_xlabel() == right.get_xlabel() == "round of communication"
    assert left.get_ylabel() == "test accuracy (% of examples)"
    assert right.get_ylabel() == "test loss (mean per example)"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["fed_avg"]
    assert "mean over 2 seeds" in legend.get_title().get_text()
    assert "smallest to largest" in legend.get_title().get_text()


def test_the_legend_covers_no_panel():
    names = ["fed_avg", "fed_adam", "fed_yogi", "fed_lamb", "scaffold", "adabest"]
    figure = draw_comparison([result(name) for name in names])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    for axes in figure.axes:
        assert not box.overlaps(axes.get_tightbbox())


def test_every_algorithm_has_a_look_of_its_own():
    names = [f"method_{index}" for index in range(20)]
    figure = draw_comparison([result(name) for name in names])
    looks = {
        (to_hex(line.get_color()), line.get_linestyle())
        for line in figure.axes[0].get_lines()
    }
    assert len(looks) == len(names)


def test_wide_ranges_are_logarithmic():
    narrow = draw_comparison([result(losses=(2, 1, 0.5))])
    wide = draw_comparison([result(losses=(2, 1e-2, 1e-5))])
    assert narrow.axes[1].get_yscale() == "linear"
    assert wide.axes[1].get_yscale() == "log"


@pytest.mark.parametrize("last", [1e30, float("nan")])
def test_what_breaks_down_leaves_the_others_to_be_seen(last):
    lasting = result("fed_avg", losses=(2, 1, 0.5))
    figure = draw_comparison([lasting, result("scaffold", losses=(2, 1e30, last))])
    _, loss = figure.axes
    assert loss.get_yscale() == "linear"
    low, high = loss.get_ylim()
    assert 0 < low < 0.5
    assert 2 < high < 2.5
    everything_breaks_down = result(losses=(2, 1e30, last))
    draw_comparison([everything_breaks_down]).draw_without_rendering()


def test_a_run_shows_percentiles_of_clients():
    figure = plots.draw_run(result())
    left, _ = figure.axes
    wide, narrow = (band.get_paths()[0].get_extents() for band in left.collections)
    assert wide.ymax == pytest.approx(0.9 * 0.95)
    assert narrow.ymax == pytest.approx(0.9 * 0.75)
    assert figure.get_suptitle() == (
        "fed_avg on digits, 10 of 50 clients per round, seed 1"
    )


def test_saving_replaces_the_file(tmp_path):
    path = tmp_path / "curves.png"
    path.write_text("old")
    style.save(plots.draw_run(result()), tmp_path / plots.CURVES_FILE)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in tmp_path.iterdir()] == ["curves.png"]


def test_table_of_made_up_runs():
    table = comparison.tabulate(
        [
            result("fed_sgd", 1, accuracies=(0.1, 0.9, 0.8)),
            result("fed_sgd", 2, accuracies=(0.1, 0.5, 0.6)),
        ]
    ).set_index("algorithm")
    row = table.loc["fed_sgd"]
    assert row["accuracy"] == pytest.approx(0.7)
    assert row["accuracy_sd"] == pytest.approx(0.2 / math.sqrt(2))
    assert row["best_accuracy"] == pytest.approx((0.9 + 0.6) / 2)
    assert row["accuracy_client_p5"] == pytest.approx(0.05 * 0.7)
    assert (row["examples"], row["bytes"], row["seconds"]) == (200, 2000, 1.5)
    headers, cells = comparison.readable(table.reset_index(), "accuracy")
    shown = dict(zip(headers, cells[0], strict=True))
    assert shown["accuracy"] == "70.00 ± 14.14 %"
    assert shown["client rate"] == "-"
    assert shown["examples"] == "200"


def test_a_seed_that_broke_down_is_not_left_out():
    runs = [result(seed=1), result(seed=2, losses=(2, math.nan, math.nan))]
    table = comparison.tabulate(runs)
    assert math.isnan(table["loss"][0])
    assert not math.isnan(table["accuracy"][0])
    _, cells = comparison.readable(table, "accuracy", short=True)
    assert cells[0][3] == "-"
    line = lines(draw_comparison(runs).axes[1])["fed_avg"]
    np.testing.assert_array_equal(np.isnan(line.get_ydata()), [False, True, True])


@pytest.mark.parametrize(("count", "across", "down"), [(1, 1, 1), (4, 4, 1), (9, 4, 3)])
def test_panels_come_in_rows_of_four(count, across, down):
    figure, panels = style.panels(count, (3.0, 2.0))
    assert figure.get_size_inches().tolist() == [3.0 * across, 2.0 * down]
    assert figure.axes == panels
    places = [axes.get_subplotspec() for axes in panels]
    assert [(at.rowspan.start, at.colspan.start) for at in places] == [
        divmod(number, 4) for number in range(count)
    ]


@pytest.mark.parametrize(("count", "rotation"), [(3, 0), (8, 20), (9, 90)])
def test_many_names_stand_upright(count, rotation):
    names = [f"name {number}" for number in range(count)]
    figure, (axes,) = style.panels(1, style.size_for_places(names))
    style.name_places(axes, names)
    figure.canvas.draw()
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == names
    assert {label.get_rotation() for label in labels} == {rotation}
    boxes = [label.get_window_extent() for label in labels]
    if rotation == 90:
        middles = [(box.x0 + box.x1) / 2 for box in boxes]
        apart = min(right - left for left, right in itertools.pairwise(middles))
        # Room for a line of text.
        assert apart > 1.2 * labels[0].get_fontsize() * figure.dpi / 72
