"""The preset of Yao et al.'s tables."""

import dataclasses

import numpy as np
import pytest

from experiments.flags import presets
from experiments.presets import studies, uga_table
from experiments.reports import results
from tests.experiments.programs import parse


def build_request(folder, *words):
    words = [*words, f"--output_dir={folder}"]
    return presets.request("uga_table", parse("preset", "uga_table", *words))


@pytest.mark.parametrize("scale", ["local", "paper"])
@pytest.mark.parametrize("part", ["paper_rates", "tuned_rates"])
def test_it_asks_for_runs_of_the_papers_protocol(tmp_path, scale, part):
    request = build_request(tmp_path, f"--scale={scale}")
    study = uga_table.build_study(part, uga_table.SCALES[scale])
    assert {v.algorithm for v in study.variants} == set(uga_table.PAPER)
    for variant in study.variants:
        run = studies.run_settings(request, study, variant, 1).configuration
        assert run["client_learning_rate"] == 0.002
        assert (run["client_epochs"], run["batch_size"]) == (5, 64)
        assert (run["num_clients"], run["clients_per_round"]) == (100, 10)
        assert run["client_rate_decay"] == 0.992
        if "uga" in variant.label:
            # 100 examples per client make a sum of a mean.
            times = 100 if "summed" in variant.label else 1
            assert run["server_learning_rate"] == pytest.approx(0.002 * times)
        if "meta" in variant.label:
            # The clients' rate and schedule.
            assert run["meta_learning_rate"] is None
            assert run["meta_rate_decay"] is None


def test_fed_meta_with_uga_is_searched_at_ugas_choice(tmp_path, monkeypatch):
    searched = []

    def choose(request, study, grids, rounds):
        searched.append((study.part, grids))
        variants = [
            dataclasses.replace(
                variant,
                flags={
                    **variant.flags,
                    # The last point of every grid.
                    **{name: values[-1] for name, values in grid.items()},
                },
            )
            for variant in study.variants
            for grid in [grids.get(variant.label, {})]
        ]
        return dataclasses.replace(study, variants=variants)

    monkeypatch.setattr(uga_table.searches, "choose", choose)
    scale = uga_table.SCALES["local"]
    study = uga_table.build_study("tuned_rates", scale)
    tuned = uga_table._tune(build_request(tmp_path), study, scale)
    assert [part for part, _ in searched] == [
        "tuned_rates",
        "tuned_rates_fed_meta_uga",
    ]
    assert searched[1][1] == {
        "fed_meta_uga": {
            "client_learning_rate": (0.1,),
            "server_learning_rate": (1.0,),
            "meta_learning_rate": (0.03, 0.1),
        }
    }
    flags = {variant.label: variant.flags for variant in tuned.variants}
    assert tuned.part == "tuned_rates"
    assert flags["fed_meta_uga"] == {**flags["uga"], "meta_learning_rate": 0.1}
    assert flags["fed_avg"] == {"client_learning_rate": 0.1}


@pytest.fixture
def result_of(tmp_path):
    request = build_request(tmp_path)
    study = uga_table.build_study("paper_rates", uga_table.SCALES["local"])

    def build(label, seed, accuracies):
        (variant,) = [each for each in study.variants if each.label == label]
        run = studies.run_settings(request, study, variant, seed)
        rows = [
            {"round": round_number, "test_accuracy": accuracy}
            for round_number, accuracy in enumerate(accuracies)
        ]
        return results.Result(run, rows, {})

    return build


def test_milestones_are_means_over_seeds_beside_the_papers(result_of):
    table = uga_table.tabulate(
        [
            result_of("uga", 1, [0.1, 0.71, 0.6, 0.85]),
            result_of("uga", 2, [0.1, 0.5, 0.7, 0.95]),
            result_of("fed_avg", 1, [0.1, 0.2, 0.3, 0.4]),
        ]
    )
    uga, fed_avg = table.to_dict(orient="records")
    assert (uga["method"], uga["seeds"], uga["rounds"]) == ("uga", 2, 3)
    assert (uga["rounds_to_70"], uga["rounds_to_70_paper"]) == (1.5, 27)
    assert (uga["rounds_to_80"], uga["rounds_to_80_paper"]) == (3, 48)
    # One of two seeds did not reach it.
    assert np.isnan(uga["rounds_to_90"])
    assert uga["accuracy"] == pytest.approx(0.9)
    assert uga["accuracy_paper"] == 0.9587
    assert fed_avg["rounds_to_90_paper"] == 437


def test_the_accuracy_at_the_end_is_of_the_last_tenth(result_of):
    rising = [0.01 * round_number for round_number in range(31)]
    (row,) = uga_table.tabulate([result_of("uga", 1, rising)]).to_dict("records")
    assert row["accuracy"] == pytest.approx(0.29)


def test_the_table_says_which_seeds_are_missing(result_of, tmp_path):
    request = build_request(tmp_path, "--seeds=1,2,4")
    study = uga_table.build_study("paper_rates", uga_table.SCALES["local"])
    done = [result_of("fed_avg", 1, [0.1, 0.2, 0.3, 0.75])]
    (tmp_path / "paper_rates").mkdir()
    uga_table.write_milestones(request, study, done)
    text = (tmp_path / "paper_rates" / uga_table.MILESTONES_FILE).read_text()
    assert "seeds 1, NOT yet 2, 4." in text
    assert "| 3 | 3 (68) | > 3 (111) | > 3 (437) | 75.00 % (90.22 %) |" in text
