"""The command line, run in this process and in processes of its own."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

from experiments import main
from tff_drift import execution

ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int
    stdout: str
    stderr: str


@pytest.fixture
def run_command(capsys, monkeypatch):
    """Runs the command in this process, on the session's execution context."""
    monkeypatch.setattr(
        execution, "set_native_execution_context", lambda **options: None
    )

    def run(*words):
        status = main.run([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


def run_process(folder, *words):
    """Runs the command as a user does, without a terminal."""
    # To files: nothing of the program may keep a pipe open.
    with open(folder / "stdout", "w+") as out, open(folder / "stderr", "w+") as err:
        status = subprocess.run(
            [sys.executable, "-m", "experiments", *map(str, words)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=300,
        ).returncode
    return Outcome(
        status, (folder / "stdout").read_text(), (folder / "stderr").read_text()
    )


@dataclasses.dataclass(frozen=True)
class Comparison:
    folder: pathlib.Path
    outcome: Outcome

    def config(self, algorithm, seed):
        path = self.folder / algorithm / f"seed_{seed}" / "config.json"
        return json.loads(path.read_text())


COMPARE_FLAGS = (
    "--task=digits",
    "--algorithms=fed_avg,fed_adam",
    "--seeds=5,6",
    "--rounds=3",
    "--clients_per_round=4",
    "--rounds_per_evaluation=2",
    "--num_clients=8",
    "--tau=0.01",
    "--adaptive_clipping",
    "--cohort_measurements",
    "--tensorboard",
)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    """A small comparison, made once by the program itself; not to be changed."""
    logs = tmp_path_factory.mktemp("logs")
    folder = tmp_path_factory.mktemp("comparison")
    outcome = run_process(logs, "compare", *COMPARE_FLAGS, f"--output_dir={folder}")
    assert outcome.status == 0, outcome.stderr
    return Comparison(folder, outcome)
