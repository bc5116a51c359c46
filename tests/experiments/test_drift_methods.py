"""The comparison of every method: its budget, its table and its figure."""

import math

import numpy as np
import pytest

from experiments.analysis.studies import read_study
from experiments.presets.catalogue import PRESETS
from experiments.reports import every_method
from tests.experiments import made_up_runs
from tff_drift import from_source

STUDIES = PRESETS["drift_methods"].local.studies


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.part)
def test_every_method_has_four_points_to_choose_from(study):
    names = list(from_source.read())
    assert [variant.label for variant in study.variants] == names
    for name in names:
        values = study.search.grids[name].values()
        assert math.prod(map(len, values)) == 4
        assert all(len(set(each)) == len(each) for each in values)


@pytest.fixture
def results(tmp_path):
    runs = [
        ("slow", [0.1, 0.5, 0.83]),
        ("central", [0.1, 0.96, 0.97]),
        ("fast", [0.1, 0.85, 0.925]),
        ("fed_sgd", [0.1, 0.2, 0.3]),
        ("level", [0.1, 0.75, 0.9]),
        ("near", [0.1, 0.75, 0.89]),
    ]
    made_up_runs.write_study(
        tmp_path,
        [
            (name, {"algorithm": name, "seed": seed, "server_learning_rate": 1.0}, v)
            for name, values in runs
            for seed, more in ((1, 0.02), (2, -0.02))
            for v in [[*values[:-1], values[-1] + more]]
        ],
        total_bytes=lambda number, _: 1000.0 * number,
    )
    found = read_study(tmp_path)
    kept = {"slow": 0, "central": 0, "fast": 800, "fed_sgd": 0, "level": 400, "near": 0}
    found.summary["runs"] = [
        {"algorithm": name, "client_state_bytes": size, "server_state_bytes": 400}
        for name, size in kept.items()
    ]
    found.flags["rounds"] = 2
    return found


def test_the_table_is_in_order_and_says_who_is_level_with_the_first(results):
    table = every_method.tabulate(results, (0.8, 0.9))
    data = table.data.set_index("method")
    assert list(data.index) == ["central", "fast", "level", "near", "slow", "fed_sgd"]
    # 2.5, 3.5 and 9.5 points behind, with deviations of 2.8 points each.
    # What has all data in one place is no method that others are compared with.
    assert list(data["level_with_first"]) == [False, True, True, *[False] * 3]
    np.testing.assert_allclose(data["accuracy"], [0.97, 0.925, 0.9, 0.89, 0.83, 0.3])
    np.testing.assert_allclose(data["rounds_to_80"], [1, 1, 2, 2, 2, np.nan])
    # One of its seeds alone reaches 90 % of level's, both of fast's.
    assert data.loc["fast", "rounds_to_90"] == 2
    assert math.isnan(data.loc["level", "rounds_to_90"])
    np.testing.assert_allclose(
        data["bytes_to_first"], [1000, 1000, 2000, 2000, 2000, np.nan]
    )
    np.testing.assert_allclose(data["client_keeps"], [0, 2, 1, 0, 0, 0])
    rows = table.markdown.splitlines()
    assert any(
        row.startswith("| fed_sgd | 30.00 ± 2.83 % |  | never |") for row in rows
    )


def test_the_figure_has_every_method_and_no_traffic_of_those_that_do_not_get_there(
    results,
):
    left, right = every_method.draw(results, 0.8).axes
    names = [text.get_text() for text in left.get_yticklabels()]
    assert names == ["fed_sgd", "slow", "near", "level", "fast", "central"]
    (points,) = right.collections
    reached = np.isfinite(np.ma.filled(points.get_offsets()[:, 0], np.nan))
    assert list(reached) == [False, *[True] * 5]


def test_with_one_seed_only_equals_are_level(results):
    table = every_method.tabulate(results.where({"seed": 1}), [0.8]).data
    assert table.set_index("method")["level_with_first"].to_dict() == {
        "central": False, "fast": True, "level": False, "near": False, "slow": False,
        "fed_sgd": False,
    }  # fmt: skip
