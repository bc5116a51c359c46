"""`tff-drift preset NAME --verify`: kept results come out again, or are named."""

import dataclasses
import json

import pandas as pd
import pytest

from experiments.analysis.studies import METRICS_FILE
from experiments.flags.errors import UserError
from experiments.presets import requests
from experiments.presets.catalogue import PRESETS
from experiments.presets.preset import Preset, Scale, Study, Variant
from experiments.reports import results
from experiments.training import studies, verification
from tests.experiments import made_up_runs
from tests.experiments.programs import parse

pytestmark = pytest.mark.no_smoke

STUDY = Study(
    "part",
    {
        "task": "quadratic",
        "num_clients": 5,
        "clients_per_round": 2,
        "rounds": 24,
        "rounds_per_evaluation": 4,
    },
    [Variant("plain", "fed_avg")],
)
SCALE = Scale([STUDY], 0.01, 1.0)
MADE_UP = Preset("made_up", "A test.", "Nobody (2026)", SCALE, SCALE)


def _asked(folder):
    """What asks for the made-up preset with results in a folder."""
    words = ["--seeds=1", "--processes=1", f"--output_dir={folder / 'made_up'}"]
    asked = requests.request("adabest_cost", parse("preset", "NAME", *words))
    return dataclasses.replace(asked, preset=MADE_UP, parts=("part",))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of results that hold the made-up preset's, and what asks for it."""
    folder = tmp_path_factory.mktemp("results")
    studies.run(_asked(folder))
    return folder, _asked(folder)


@pytest.fixture
def untrained(tmp_path):
    """The same, of results that nobody has trained."""
    folder = tmp_path / "results"
    made_up_runs.write_study(folder / "made_up" / "part", [("plain", {}, [0.1, 0.2])])
    path = folder / "made_up" / "part" / "config.json"
    config = json.loads(path.read_text())
    config["flags"]["scale"] = _asked(folder).scale
    path.write_text(json.dumps(config))
    return folder, _asked(folder)


def _change(folder, column, value):
    path = folder / "made_up" / "part" / METRICS_FILE
    before = path.read_bytes()
    table = pd.read_csv(path)
    table.loc[table["round"] == 8, column] = value(table[column])
    table.to_csv(path, index=False)
    return path, before


@pytest.mark.conformance
def test_results_come_out_again(kept, capsys):
    folder, asked = kept
    verification.run(asked, folder)
    # Of the rounds 0, 4, ... 24 those up to round 20.
    assert "6 evaluations agree to the last digit" in capsys.readouterr().out


@pytest.mark.conformance
def test_a_changed_digit_is_named_and_elsewhere_tolerated(kept, capsys):
    folder, asked = kept
    path, before = _change(folder, "test_loss", lambda losses: losses * 1.0004)
    summary = folder / "made_up" / "part" / results.SUMMARY_FILE
    made_here = summary.read_text()
    try:
        with pytest.raises(UserError, match=r"test_loss of round 8 is .* is kept"):
            verification.run(asked, folder)
        elsewhere = json.loads(made_here)
        elsewhere["versions"]["tensorflow"] = "1.0"
        summary.write_text(json.dumps(elsewhere))
        verification.run(asked, folder)
        assert "agree to 0.001 or the seeds' range" in capsys.readouterr().out
    finally:
        path.write_bytes(before)
        summary.write_text(made_here)


def test_results_that_are_not_there(tmp_path):
    asked = _asked(tmp_path)
    with pytest.raises(UserError, match="no results of made_up, part part"):
        verification.run(asked, tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--seeds=9,1"],
            "no results of plain with seed 9 in .*, which has the seeds 1",
        ),
        (["--scale=paper"], "are of the scale local, found --scale=paper"),
    ],
)
def test_results_of_other_seeds_or_another_scale(
    untrained, monkeypatch, words, message
):
    folder, asked = untrained
    monkeypatch.setattr(verification, "_train", None)  # Nothing is trained before.
    given = parse("preset", "NAME", *words)
    other = requests.request("adabest_cost", given)
    asked = dataclasses.replace(asked, seeds=other.seeds, scale=other.scale)
    with pytest.raises(UserError, match=message):
        verification.run(asked, folder)


def test_what_is_not_measured_any_more_is_named():
    kept = pd.DataFrame({"round": [0, 5], "method": "plain", "drift": [None, 2.0]})
    found = pd.DataFrame({"round": [0, 5], "method": "plain", "drift": [None, None]})
    (difference,) = verification.differences(kept, found)
    assert difference == "drift of round 5 is nan, where 2 is kept"
    assert not verification.differences(found, found)


def test_elsewhere_numbers_differ_by_as_much_as_seeds_do():
    kept = pd.DataFrame(
        {
            "round": [0, 5, 0, 5],
            "seed": [1, 1, 2, 2],
            "method": "plain",
            "test_accuracy": [0.1, 0.5, 0.1, 0.7],
        }
    )
    first = kept[kept["seed"] == 1]

    def differences(*accuracies):
        found = first.assign(test_accuracy=accuracies)
        return verification.differences(first, found, 1e-3, verification.ranges(kept))

    assert not differences(0.10009, 0.35)
    assert differences(0.102, 0.5) == [
        "test_accuracy of round 0 is 0.102, where 0.1 is kept"
    ]
    assert differences(0.1, 0.25) == [
        "test_accuracy of round 5 is 0.25, where 0.5 is kept"
    ]
    assert differences(0.1, float("nan"))


def test_other_evaluations_are_named():
    kept = pd.DataFrame({"round": [0, 5], "test_loss": [1.0, 2.0]})
    found = pd.DataFrame({"round": [0, 4], "test_loss": [1.0, 2.0]})
    (difference,) = verification.differences(kept, found)
    assert "rounds [0, 4]" in difference


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--processes=2", "--processes has no meaning with --verify, which trains one"),
        ("--output_dir=mine", "--output_dir has no meaning with --verify"),
    ],
)
def test_flags_without_a_meaning_are_refused(word, message):
    with pytest.raises(UserError, match=message):
        requests.request("uga_table", parse("preset", "NAME", "--verify", word))


def test_the_flag_asks_for_it():
    asked = requests.request(
        "adabest_cost", parse("preset", "NAME", "--verify", "--seeds=1")
    )
    assert asked.verify
    assert asked.preset is PRESETS["adabest_cost"]
