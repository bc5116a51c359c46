"""The table of Adaptive Federated Optimization: its runs, its means, its files."""

import types

import pandas as pd
import pytest

from experiments.flags import presets, published_rates
from experiments.presets import fedopt_table, studies


@pytest.fixture
def request_(tmp_path):
    return presets.request("fedopt_table", {"output_dir": str(tmp_path)})


@pytest.mark.parametrize("scale", ["local", "paper"])
def test_every_part_has_the_papers_rates_and_cohorts(request_, scale):
    assert request_.parts == tuple(fedopt_table.PAPER)
    for part in request_.parts:
        study = fedopt_table.build_study(part, scale)
        for variant in study.variants:
            run = studies.run_settings(request_, study, variant, 7)
            known = published_rates.rates(part, variant.algorithm)
            assert run.configuration["client_learning_rate"] == known.client
            assert run.configuration["server_learning_rate"] == known.server
            assert run.configuration["client_epochs"] == 1
        papers = scale == "paper" or part == "shakespeare_character"
        assert (run.rounds >= 1200) is papers


def result(algorithm, seed, values, every=10):
    rows = [
        {"round": every * number, "test_accuracy": value}
        for number, value in enumerate(values)
    ]
    settings = types.SimpleNamespace(
        algorithm=algorithm, seed=seed, rounds=rows[-1]["round"]
    )
    return types.SimpleNamespace(settings=settings, rows=rows, headline="test_accuracy")


def test_the_mean_is_over_the_last_rounds(request_, capsys):
    # Of 1,200 rounds the last 100, evaluated ten times; of 50 the last one alone.
    long = [0.0] * 111 + [0.5, 0.6] * 5
    done = [
        result(name, seed, [value + 0.1 * seed for value in long])
        for name in fedopt_table.METHODS
        for seed in (1, 2)
    ]
    study = fedopt_table.build_study("shakespeare_character", "local")
    table = fedopt_table.tabulate(study.part, done)
    assert list(table["value"]) == pytest.approx([0.7] * 5)
    assert list(table["value_sd"]) == pytest.approx([0.1 / 2**0.5] * 5)
    assert list(table["paper"]) == [0.575, 0.570, 0.572, 0.573, 0.569]
    short = [result(name, 1, [0.1, 0.2, 0.3]) for name in fedopt_table.METHODS]
    assert list(fedopt_table.tabulate(study.part, short)["value"]) == [0.3] * 5

    folder = request_.folder / study.part
    folder.mkdir()
    fedopt_table.write_table(request_, study, done)
    assert len(pd.read_csv(folder / "last_rounds.csv")) == 5
    text = (folder / "last_rounds.md").read_text()
    assert "| fed_adagrad | 1,200 | 70.00 ± 7.07 % | 57.50 % |" in text
    assert text in capsys.readouterr().out
