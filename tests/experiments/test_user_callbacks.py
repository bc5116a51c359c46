"""Callbacks of the user's own, from the command line."""

import importlib
import os
import subprocess
import sys

import pandas as pd
import pytest

from experiments.flags import errors
from experiments.training import user_callbacks
from tests.experiments import programs
from tests.forks.programs import PATIENCE, python
from tff_drift.simulation import callbacks

MODULE = """
from tff_drift.simulation import callbacks


class Doubled(callbacks.Callback):
    def __init__(self):
        self.rounds = []

    def after_round(self, round_number, state, row):
        self.rounds.append(round_number)
        return {"doubled": 2.0 * round_number}


class Stop(callbacks.Callback):
    def __init__(self, last):
        self.last = last

    def before_training(self, run):
        self.run = run

    def after_round(self, round_number, state, row):
        if round_number >= self.last:
            self.run.stop("enough")


def stop_after_three():
    return Stop(3)


not_one = dict
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "users_own.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("users_own", None)


def test_each_run_has_callbacks_of_its_own(module):
    doubled, stop = user_callbacks.load(
        ("users_own:Doubled", "users_own:stop_after_three")
    )
    first, second = doubled(), doubled()
    assert isinstance(first, callbacks.Callback)
    assert first.rounds is not second.rounds
    assert stop().last == 3


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("users_own", "--callbacks must be MODULE:NAME, as my_module:MyCallback for"),
        (":Doubled", "--callbacks must be MODULE:NAME"),
        (".users_own:Doubled", "--callbacks must be MODULE:NAME"),
        ("absent:Doubled", "--callbacks=absent:Doubled: No module named 'absent'"),
        ("users_own:Absent", "has no attribute 'Absent'. Give MODULE:NAME"),
        ("users_own:not_one", "it makes {}, which is not a tff_drift.simulation"),
        ("users_own:Stop", "'last'. It is called without arguments: name a function"),
    ],
)
def test_mistakes(module, word, message):
    with pytest.raises(errors.UserError) as caught:
        user_callbacks.load((word,))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef (\n", "mistaken.py:2: SyntaxError: invalid syntax"),
        ("\nraise ValueError('no\\nluck')\n", "mistaken.py:2: ValueError: no luck"),
        (
            "import json\n\njson.loads('{')\n",
            "mistaken.py:3: JSONDecodeError: Expecting property name",
        ),
        (
            "raise SystemExit(3)\n",
            "ends the program when it is imported (exit status 3)",
        ),
        (
            "\n\ndef It():\n    return {}['absent']\n",
            "mistaken.py:4: KeyError: 'absent'",
        ),
    ],
)
def test_mistakes_of_the_module_are_one_line(module, tmp_path, text, message):
    (tmp_path / "mistaken.py").write_text(text)
    importlib.invalidate_caches()
    with pytest.raises(errors.UserError) as caught:
        user_callbacks.load(("mistaken:It",))
    sys.modules.pop("mistaken", None)
    told = str(caught.value)
    assert told.startswith("--callbacks=mistaken:It: ")
    assert message in told
    assert "\n" not in told


def test_a_module_that_changed_since_it_was_loaded(module, tmp_path):
    words = ("users_own:stop_after_three",)
    (build,) = user_callbacks.load(words)
    assert build().last == 3
    path = tmp_path / "users_own.py"
    path.write_text(MODULE.replace("Stop(3)", "Stop(12)"))
    with pytest.raises(errors.UserError, match="py' has changed since it was loaded"):
        user_callbacks.load(words)
    importlib.reload(sys.modules["users_own"])
    (build,) = user_callbacks.load(words)
    assert build().last == 12


@pytest.mark.no_smoke
def test_a_command_takes_them_from_the_folder_that_it_is_called_in(
    tmp_path, monkeypatch, run_command
):
    (tmp_path / "users_own.py").write_text(MODULE)
    outcome = subprocess.run(
        [
            *python(), "-m", "experiments", "train", "--task=quadratic",
            "--rounds=9", "--num_clients=4", "--clients_per_round=2",
            "--callbacks=users_own:Doubled,users_own:stop_after_three",
            "--output_dir=out",
        ],
        env={**os.environ, "PYTHONPATH": str(programs.ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    rows = pd.read_csv(tmp_path / "out" / "metrics.csv")
    assert list(rows["doubled"])[-3:] == [2.0, 4.0, 6.0]
    assert "stopped               after round 3: " in outcome.stdout
    # Without the callback that stopped it the run has rounds to go.
    monkeypatch.chdir(tmp_path)
    again = run_command(
        "train", "--task=quadratic", "--rounds=9", "--num_clients=4",
        "--clients_per_round=2", "--output_dir=out",
    )  # fmt: skip
    assert again.status == 0, again.stderr
    assert "stopped" not in again.stdout
    assert list(pd.read_csv(tmp_path / "out" / "metrics.csv")["round"])[-1] == 9


def test_a_mistake_ends_the_command_before_anything_runs(module, run_command):
    outcome = run_command(
        *("train", "--task=quadratic", "--output_dir=out"),
        "--callbacks=users_own:Doubled,elsewhere:It",
    )
    assert outcome.status == 2
    assert "--callbacks=elsewhere:It: No module named 'elsewhere'" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not os.path.exists("out")
