"""The command line run in processes of its own, and what a run of it left."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess

from experiments.commands import COMMANDS
from experiments.flags import parser, settings, sweeps
from tests.forks import programs as forks

ROOT = pathlib.Path(__file__).parents[2]


def parse(command, *words):
    """Returns the values of the words after a command, by name."""
    return COMMANDS[command].parser().parse(parser.with_files(words))


def resolve(*words):
    """Returns the run that `tff-drift train` with some words stands for."""
    return settings.resolve(parse("train", *words))


def sweep(*words):
    """Returns the sweep that `tff-drift sweep` with some words stands for."""
    return sweeps.request(parse("sweep", *words))


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: int
    stdout: str
    stderr: str

    def lacking_files(self):
        """Returns those of the files that the command names at its end that are not."""
        told = re.findall(r"^Files in (.*): (.*)$", self.stdout, re.MULTILINE)
        ((folder, names),) = told
        paths = [pathlib.Path(folder, name) for name in names.split(", ")]
        return [path for path in paths if not path.exists()]


@contextlib.contextmanager
def closed_output():
    """A context whose standard output nobody reads any more, as each line finds out."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as file:
        with contextlib.redirect_stdout(file):
            yield
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # What is left goes there.


def run_process(folder, *words, python=None):
    """Runs the command as a user does, without a terminal.

    Args:
      folder: What the program prints is kept there.
      *words: Those after `tff-drift`.
      python: The words that start Python; by default those of a fork.
    """
    # To files: nothing of the program may keep a pipe open.
    with open(folder / "stdout", "w+") as out, open(folder / "stderr", "w+") as err:
        status = subprocess.run(
            [*(python or forks.python()), "-m", "experiments", *map(str, words)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            timeout=forks.PATIENCE,
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
