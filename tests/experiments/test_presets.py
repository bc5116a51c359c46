"""Presets, from the words of the command to the files of their studies."""

import dataclasses
import importlib
import json
import pathlib

import pandas as pd
import pytest

from experiments.flags import errors, presets
from experiments.presets import (
    adabest_cost,
    drift_comparison,
    scaffold_drift,
    searches,
    studies,
)
from experiments.training import model_norm
from experiments.training import sweeps as training
from tests.experiments import made_up_runs
from tests.experiments.programs import parse


@pytest.fixture
def request_for(tmp_path):
    def build(*words, name="drift_comparison", folder=tmp_path / "out"):
        words = [*words, f"--output_dir={folder}"]
        return presets.request(name, parse("preset", "NAME", *words))

    return build


STUDY = studies.Study(
    "part",
    {
        "task": "quadratic",
        "num_clients": 5,
        "clients_per_round": 2,
        "rounds": 2,
        "rounds_per_evaluation": 1,
    },
    [
        studies.Variant("plain", "fed_avg"),
        studies.Variant("strong", "fed_dyn", {"fed_dyn_mu": 0.5}),
    ],
)


@pytest.mark.parametrize("name", list(presets.PRESETS))
def test_every_preset_has_a_module_that_runs_it(name):
    module = importlib.import_module(f"experiments.presets.{name}")
    assert callable(module.run)
    assert presets.PRESETS[name].parts


def test_a_request_has_parts_in_their_order_and_a_folder_by_scale(request_for):
    request = request_for("--parts=digits_full,digits_low", "--scale=paper")
    assert request.parts == ("digits_low", "digits_full")
    assert request.seeds == (1, 2, 3)
    request = presets.request("drift_comparison", {"scale": "paper"})
    assert request.folder == pathlib.Path("results/drift_comparison/paper")
    assert request.parts == presets.PRESETS["drift_comparison"].parts


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("drift_comparision", (), "Did you mean drift_comparison?"),
        ("drift_comparison", ("--parts=digits_lo",), "Did you mean digits_low"),
    ],
)
def test_mistakes(request_for, name, words, message):
    with pytest.raises(errors.UserError, match=message):
        request_for(*words, name=name)


@pytest.mark.parametrize("scale", ["local", "paper"])
def test_the_drift_comparison_asks_for_runs_that_exist(request_for, scale):
    request = request_for(f"--scale={scale}")
    for name in request.parts:
        part = drift_comparison.PARTS[scale][name]
        study = drift_comparison.build_study(name, part)
        grids = drift_comparison.build_grids(part)
        assert [variant.label for variant in study.variants] == list(grids)
        for variant in study.variants:
            point = {flag: values[0] for flag, values in grids[variant.label].items()}
            at_point = dataclasses.replace(variant, flags={**variant.flags, **point})
            run = studies.run_settings(request, study, at_point, 7)
            assert run.label == variant.label
            assert run.folder == request.folder / name / variant.label / "seed_7"
            for flag, value in {**part.flags, **point}.items():
                assert run.configuration[flag] == value


@pytest.mark.parametrize("part", presets.PRESETS["scaffold_drift"].parts)
def test_the_quadratics_ask_for_runs_that_take_the_steps_they_name(request_for, part):
    request = request_for(name="scaffold_drift")
    study = scaffold_drift.build_study(part)
    assert len({variant.label for variant in study.variants}) == 6
    for variant in study.variants:
        run = studies.run_settings(request, study, variant, 7)
        # All of a client's data is one batch.
        assert run.configuration["batch_size"] is None
        assert variant.label.endswith(f"_k{run.configuration['client_epochs']}")


def test_a_study_has_a_row_and_a_folder_per_variant(request_for):
    request = request_for("--seeds=3,4")
    done = studies.run_study(request, STUDY)
    folder = request.folder / "part"
    assert [(run.settings.label, run.settings.seed) for run in done] == [
        ("plain", 3),
        ("strong", 3),
        ("plain", 4),
        ("strong", 4),
    ]
    table = pd.read_csv(folder / "table.csv").set_index("algorithm")
    assert list(table.index) == ["plain", "strong"]
    config = json.loads((folder / "strong" / "seed_4" / "config.json").read_text())
    assert config["configuration"]["fed_dyn_mu"] == 0.5
    assert (folder / "curves.png").stat().st_size > 0

    # Methods with client states report it themselves; of FedAvg it is measured.
    reported = [row.get("finalizer/model_norm") for row in done[1].rows[1:]]
    assert [row[model_norm.COLUMN] for row in done[1].rows[1:]] == reported
    assert done[0].rows[-1][model_norm.COLUMN] > 0
    columns = {done[0].headline: "value", "finalizer/model_norm": "norm"}
    studies.write_metrics(request, STUDY, done, columns)
    metrics = pd.read_csv(folder / studies.METRICS_FILE)
    # Evaluations of the initial model and of both rounds, of four runs.
    assert len(metrics) == 4 * 3
    assert metrics["value"].notna().all()
    # FedAvg reports no norm of its model, and no method before the first round.
    measured = metrics[metrics["norm"].notna()]
    assert set(measured["method"]) == {"strong"}
    assert set(measured["round"]) == {1, 2}

    before = (folder / "strong" / "seed_4" / "metrics.csv").stat().st_mtime_ns
    studies.run_study(request, STUDY)
    after = (folder / "strong" / "seed_4" / "metrics.csv").stat().st_mtime_ns
    assert before == after


@pytest.fixture
def trained(monkeypatch):
    """Replaces training by a formula; collects the points that were trained."""
    points = []

    def run(sweep):
        for point, runs in zip(sweep.points, sweep.runs):
            for each in runs:
                assert each.seed == searches.SEED
                if training.is_done(each):
                    continue
                points.append(point)
                rate, mu = (each.configuration[name] for name in GRIDS["strong"])
                miss = abs(rate - 0.2) + abs(mu - 0.1)
                made_up_runs.write(each.folder, [0.1] + [0.9 - miss] * each.rounds)
                if mu == 0.3:
                    (each.folder / training.DIVERGED_FILE).write_text("{}")

    monkeypatch.setattr(training, "run", run)
    return points


# 0.3 comes nearer to the best, but diverges.
GRIDS = {"strong": {"client_learning_rate": (0.1, 0.2, 0.4), "fed_dyn_mu": (0.3, 0.45)}}
SEARCHED = dataclasses.replace(STUDY, flags={**STUDY.flags, "task": "digits"})


def test_a_search_is_a_sweep_that_goes_on_where_it_stopped(request_for, trained):
    request = request_for()
    chosen = searches.choose(request, SEARCHED, GRIDS, rounds=3)
    assert chosen.flags == SEARCHED.flags
    assert chosen.variants[0] == SEARCHED.variants[0]
    assert chosen.variants[1].flags == {"client_learning_rate": 0.2, "fed_dyn_mu": 0.45}
    assert len(trained) == 6
    folder = request.folder / "tuning" / "part" / "strong"
    best = json.loads((folder / "best.json").read_text())
    assert best["flags"] == {"client_learning_rate": 0.2, "fed_dyn_mu": 0.45}
    assert len(pd.read_csv(folder / "points.csv")) == 6

    (folder / "client_learning_rate=0.4,fed_dyn_mu=0.45" / "seed_0").rename(
        request.folder / "elsewhere"
    )
    assert searches.choose(request, SEARCHED, GRIDS, rounds=3) == chosen
    assert trained[6:] == [{"client_learning_rate": 0.4, "fed_dyn_mu": 0.45}]
    with pytest.raises(errors.UserError, match="something else than this sweep"):
        searches.choose(request, SEARCHED, GRIDS, rounds=4)


def test_a_single_point_is_taken_without_a_search(request_for, trained):
    grids = {"strong": {"client_learning_rate": (0.2,), "fed_dyn_mu": (0.1,)}}
    chosen = searches.choose(request_for(), SEARCHED, grids, rounds=3)
    assert chosen.variants[1].flags == {"client_learning_rate": 0.2, "fed_dyn_mu": 0.1}
    assert not trained


def test_the_table_of_costs_has_the_papers_figures(request_for):
    request = request_for("--seeds=1", name="adabest_cost")
    adabest_cost.run(request)
    folder = request.folder / "digits"
    costs = pd.read_csv(folder / adabest_cost.COST_DATA_FILE).set_index("method")
    # The weight that comes up beside the update is a 3,760th of n.
    assert costs["down"].tolist() == costs["down_paper"].tolist()
    assert costs["up"].tolist() == pytest.approx(costs["up_paper"], abs=1e-3)
    # AdaBest keeps the round that it took part in last, besides.
    assert costs["stored"].tolist() == pytest.approx([0, 1, 1, 1, 1], abs=1e-3)
    # 1,438 examples over 100 clients are two batches of ten each, five times.
    assert set(costs["local_steps"]) == {10}
    assert costs.loc["adabest", "client_sums"] == 11
    assert costs.loc["fed_dyn", "client_products"] == 11
    assert costs.loc["scaffold_m", "server_sums"] == 12
    table = (folder / adabest_cost.COST_FILE).read_text()
    assert "| adabest | 1 | 1 |" in table
