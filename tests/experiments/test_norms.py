"""Norms and cosines of updates, by cohort size."""

import pytest

from experiments import analysis
from experiments.analysis import figures
from tests.experiments import made_up_runs


@pytest.fixture
def runs(tmp_path):
    for seed, more in ((1, 0.0), (2, 2.0)):
        made_up_runs.write(
            tmp_path / f"small_{seed}", [0.1, 0.2, 0.3], norms=[7 + more, 3 + more],
            clients_per_round=4, seed=seed, cosine=0.1,
        )  # fmt: skip
    made_up_runs.write(
        tmp_path / "large", [0.1, 0.2, 0.3], norms=[4.1, 2.2], clients_per_round=16,
        cosine=0.01,
    )  # fmt: skip
    return analysis.read(tmp_path)


def test_the_smallest_cohort_predicts_the_others(runs):
    table = analysis.predicted_norms(runs)
    rows = table[["clients_per_round", "round", "measured", "predicted"]]
    # Means over seeds are 8 and 4; four times the clients halve them.
    assert rows.to_numpy().tolist() == [
        [4, 1, 8.0, 8.0],
        [4, 2, 4.0, 4.0],
        [16, 1, 4.1, 4.0],
        [16, 2, 2.2, 2.0],
    ]
    (axes,) = analysis.draw_predicted_norms(runs).axes
    measured, _, predicted = axes.get_lines()
    assert measured.get_ydata().tolist() == [8.0, 4.0]
    assert predicted.get_ydata().tolist() == [4.0, 2.0]


def test_cosines_are_found_under_any_name(runs):
    assert analysis.cosine_column(runs) == "aggregator/mean_pairwise_cosine"
    drawn = figures.draw_curves(runs, [analysis.cosine_column(runs)])
    assert len(drawn.axes[0].get_lines()) == 2


@pytest.mark.conformance
def test_analyze_draws_them(runs, tmp_path, run_command):
    out = tmp_path / "out"
    outcome = run_command("analyze", tmp_path, f"--output_dir={out}")
    assert outcome.status == 0, outcome.stderr
    drawn = {path.name for path in out.glob("*.png")}
    assert {"norms.png", "predicted_norms.png", "cosines.png"} <= drawn
