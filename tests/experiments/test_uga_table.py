"""The preset of Yao et al.'s tables."""

import numpy as np
import pytest

from experiments.analysis.studies import read_study
from experiments.presets import requests, uga
from experiments.presets.catalogue import PRESETS
from experiments.reports import milestones
from experiments.training import studies
from tests.experiments import made_up_runs

PRESET = PRESETS["uga_table"]


@pytest.mark.parametrize("scale", ["local", "paper"])
@pytest.mark.parametrize("part", ["paper_rates", "tuned_rates"])
def test_it_asks_for_runs_of_the_papers_protocol(scale, part):
    request = requests.request("uga_table", {"scale": scale})
    study = PRESET.study(scale, part)
    assert {v.algorithm for v in study.variants} == set(uga.TABLES)
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


def test_fed_meta_with_uga_is_searched_at_ugas_choice():
    search = PRESET.study("local", "tuned_rates").search
    assert search.grids["fed_meta_uga"] == {"meta_learning_rate": (0.03, 0.1)}
    other, taken = search.taken["fed_meta_uga"]
    assert (other, set(taken)) == ("uga", set(search.grids["uga"]))


@pytest.fixture
def table_of(tmp_path):
    def build(*runs, **flags):
        made_up_runs.write_study(
            tmp_path, [(label, {"seed": seed}, values) for label, seed, values in runs]
        )
        results = read_study(tmp_path)
        results.flags.update(flags)
        (output,) = PRESET.study("local", "paper_rates").outputs
        return milestones.tabulate(results, **output.options)

    return build


def test_milestones_are_means_over_seeds_beside_the_papers(table_of):
    table = table_of(
        ("uga", 1, [0.1, 0.71, 0.6, 0.85]),
        ("uga", 2, [0.1, 0.5, 0.7, 0.95]),
        ("fed_avg", 1, [0.1, 0.2, 0.3, 0.4]),
    )
    uga_row, fed_avg = table.data.to_dict(orient="records")
    assert (uga_row["method"], uga_row["seeds"], uga_row["rounds"]) == ("uga", 2, 3)
    assert (uga_row["rounds_to_70"], uga_row["rounds_to_70_paper"]) == (1.5, 27)
    assert (uga_row["rounds_to_80"], uga_row["rounds_to_80_paper"]) == (3, 48)
    # One of two seeds did not reach it.
    assert np.isnan(uga_row["rounds_to_90"])
    assert uga_row["accuracy"] == pytest.approx(0.9)
    assert uga_row["accuracy_paper"] == 0.9587
    assert fed_avg["rounds_to_90_paper"] == 437


def test_the_accuracy_at_the_end_is_of_the_last_tenth(table_of):
    rising = [0.01 * round_number for round_number in range(31)]
    (row,) = table_of(("uga", 1, rising)).data.to_dict("records")
    assert row["accuracy"] == pytest.approx(0.29)


def test_the_table_says_which_seeds_are_missing(table_of):
    table = table_of(("fed_avg", 1, [0.1, 0.2, 0.3, 0.75]), seeds=[1, 2, 4])
    assert "seeds 1, NOT yet 2, 4." in table.title
    assert "| 3 | 3 (68) | > 3 (111) | > 3 (437) | 75.00 % (90.22 %) |" in (
        table.markdown
    )
