"""The table of Adaptive Federated Optimization: its runs, its means, its files."""

import dataclasses

import pandas as pd
import pytest

from experiments.flags import paper_settings, published_rates
from experiments.presets import fed_opt, requests
from experiments.presets.catalogue import PRESETS
from experiments.reports import outputs
from experiments.training import studies
from tests.experiments import made_up_runs

PRESET = PRESETS["fedopt_table"]


@pytest.mark.parametrize("scale", ["local", "paper"])
def test_every_part_has_the_papers_rates_and_cohorts(scale):
    request = requests.request("fedopt_table", {"scale": scale})
    assert request.parts == tuple(fed_opt.TABLE_1)
    for study in request.studies:
        for variant in study.variants:
            run = studies.run_settings(request, study, variant, 7)
            known = published_rates.rates(study.part, variant.algorithm)
            assert run.configuration["client_learning_rate"] == known.client
            assert run.configuration["server_learning_rate"] == known.server
            assert run.configuration["client_epochs"] == 1
        papers = scale == "paper" or study.part == "shakespeare_character"
        rounds = paper_settings.of_task("fed_opt", study.part)["rounds"]
        assert run.rounds == rounds if papers else run.rounds < rounds
        # Of 1,000 rounds and more the last 100; of 50 the last five.
        (last,) = study.outputs
        assert last.options["last"] == min(100, run.rounds // 10)


def test_the_mean_is_over_the_last_rounds(tmp_path):
    rising = [0.0] * 6 + [0.5, 0.6] * 2
    runs = [
        (name, {"seed": seed}, [value + 0.1 * seed for value in rising])
        for name in fed_opt.METHODS
        for seed in (1, 2)
    ]
    made_up_runs.write_study(tmp_path, runs)
    study = PRESET.study("paper", "shakespeare_character")
    (last,) = study.outputs
    four = dataclasses.replace(last, options={**last.options, "last": 4})
    (told,) = outputs.write(tmp_path, dataclasses.replace(study, outputs=[four]))
    table = pd.read_csv(tmp_path / "last_rounds.csv")
    assert list(table["test_accuracy"]) == pytest.approx([0.7] * 5)
    assert list(table["test_accuracy_sd"]) == pytest.approx([0.1 / 2**0.5] * 5)
    assert list(table["paper"]) == [0.575, 0.570, 0.572, 0.573, 0.569]
    text = (tmp_path / "last_rounds.md").read_text()
    assert "| fed_adagrad | 2 | 9 | 70.00 ± 7.07 % |" in text
    assert "| 57.50 % |" in text
    assert "Mean of the last 4 rounds" in told.title
