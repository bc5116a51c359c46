"""The preset of Yao et al.'s tables."""

import dataclasses

import numpy as np
import pytest

from experiments import command_line, results
from experiments.presets import registry, studies, uga_table


def build_request(folder, *words):
    words = [*words, f"--output_dir={folder}"]
    return registry.request("uga_table", command_line.parse("preset", words))


@pytest.mark.parametrize("scale", ["local", "paper"])
def test_it_asks_for_runs_of_the_papers_protocol(tmp_path, scale):
    request = build_request(tmp_path, f"--scale={scale}")
    for part in request.parts:
        study = uga_table.build_study(part, uga_table.SCALES[scale])
        assert [variant.label for variant in study.variants] == list(uga_table.PAPER)
        for variant in study.variants:
            run = studies.run_settings(request, study, variant, 1).configuration
            assert run["client_learning_rate"] == 0.002
            assert (run["client_epochs"], run["batch_size"]) == (5, 64)
            assert (run["num_clients"], run["clients_per_round"]) == (100, 10)
            assert run["client_rate_decay"] == 0.992
            if "uga" in variant.label:
                assert run["server_learning_rate"] == 0.002
            if "meta" in variant.label:
                # The clients' rate and schedule.
                assert run["meta_learning_rate"] is None
                assert run["meta_rate_decay"] is None


def test_stages_double_and_go_on_from_what_is_there():
    assert uga_table.stages(30, 0) == [5, 10, 20, 30]
    assert uga_table.stages(30, 5) == [5, 10, 20, 30]
    assert uga_table.stages(30, 7) == [10, 20, 30]
    assert uga_table.stages(30, 30) == [30]
    assert uga_table.stages(3, 0) == [3]


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


def test_the_table_says_how_far_it_came(result_of, tmp_path):
    request = build_request(tmp_path, "--seeds=1")
    study = uga_table.build_study("paper_rates", uga_table.SCALES["local"])
    stage = dataclasses.replace(study, flags={**study.flags, "rounds": 3})
    done = [result_of("fed_avg", 1, [0.1, 0.2, 0.3, 0.75])]
    (tmp_path / "paper_rates").mkdir()
    uga_table.write_milestones(request, stage, done)
    text = (tmp_path / "paper_rates" / uga_table.MILESTONES_FILE).read_text()
    assert "3 of 80 rounds (NOT complete), seeds 1" in text
    assert "| 3 (68) | > 3 (111) | > 3 (437) | 75.00 % (90.22 %) |" in text


def test_it_goes_on_where_it_stopped(tmp_path):
    request = build_request(tmp_path, "--seeds=1")
    study = uga_table.build_study("paper_rates", uga_table.SCALES["local"])
    assert uga_table.rounds_reached(request, study) == 0
    for label, rounds in (("fed_avg", 4), ("uga", 2)):
        folder = tmp_path / "paper_rates" / label / "seed_1"
        folder.mkdir(parents=True)
        lines = ["round", *map(str, range(rounds + 1))]
        (folder / "metrics.csv").write_text("".join(f"{line}\n" for line in lines))
    assert uga_table.rounds_reached(request, study) == 4
