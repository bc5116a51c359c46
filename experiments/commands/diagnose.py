"""The command `diagnose`: whether drift is the problem, and what would help."""

from __future__ import annotations

from collections.abc import Callable

from experiments.commands.command import Command
from experiments.flags import diagnoses
from experiments.terminal import importing


def _load() -> Callable[[diagnoses.Request], None]:
    with importing():
        from experiments.training import diagnosis, log

    log.show()

    def run(wanted: diagnoses.Request) -> None:
        print(diagnosis.run(wanted))
        print(
            f"Files in {wanted.folder}: diagnosis.json, diagnosis.csv, diagnosis.png"
            + (", race/race.md, race/race.csv" if wanted.race else "")
        )

    return run


COMMAND = Command(
    "diagnose",
    "measure whether clients drift, what it costs, and what would help",
    """\
Trains a few rounds of FedAvg and measures, on a sample of clients, how different their
gradients and labels are, how far local steps drift, and whether that, the noise of the
cohort or the noise of minibatches limits a round; then says what follows. Writes
diagnosis.json, diagnosis.csv and diagnosis.png. With --race, FedAvg and the methods
that follow are trained too, each at rates that a search of --race_points points finds
for it on held-out clients, with seeds 1 and 2.

example:
  tff-drift diagnose --task=digits --client_learning_rate=0.1 --clients_per_round=5
""",
    _load,
    diagnoses.request,
)
