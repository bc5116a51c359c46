"""Training on workers, from the command line."""

import contextlib
import csv

import pytest
import tensorflow_federated as tff

from experiments.training import runs
from tff_drift import execution
from tff_drift.execution.worker import Worker

pytestmark = pytest.mark.whole_programs


def test_training_on_two_workers_gives_the_numbers_of_one(
    run_command, monkeypatch, tmp_path
):
    workers = [Worker(1) for _ in range(2)]
    addresses = ",".join(f"localhost:{worker.port}" for worker in workers)
    with contextlib.ExitStack() as stack:

        def install(addresses):
            context = execution.create_remote_execution_context(addresses)
            stack.enter_context(tff.framework.get_context_stack().install(context))

        monkeypatch.setattr(runs.execution, "set_remote_execution_context", install)
        losses = {}
        for where in ("native", f"remote --workers={addresses}"):
            folder = tmp_path / where[:6]
            outcome = run_command(
                *("train", "--task=quadratic", "--algorithm=scaffold", "--rounds=3"),
                *(f"--output_dir={folder}", *f"--execution={where}".split()),
            )
            assert outcome.status == 0, outcome.stderr
            with open(folder / "metrics.csv") as metrics:
                rows = list(csv.DictReader(metrics))
            losses[where[:6]] = [float(row["train_loss"]) for row in rows[1:]]
    for worker in workers:
        worker.stop()
    assert losses["remote"] == pytest.approx(losses["native"], rel=1e-4)
    assert len(losses["remote"]) == 3


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("localhost", "--workers: addresses must be written 'host:port'"),
        ("127.0.0.1:9", "No worker answered at 127.0.0.1:9"),
    ],
)
def test_a_wrong_address_is_told_before_training(
    run_command, monkeypatch, tmp_path, workers, message
):
    set_context = runs.execution.set_remote_execution_context
    monkeypatch.setattr(
        runs.execution,
        "set_remote_execution_context",
        lambda addresses: set_context(addresses, connect_seconds=1.0),
    )
    outcome = run_command(
        "train",
        "--execution=remote",
        f"--workers={workers}",
        f"--output_dir={tmp_path / 'run'}",
    )
    assert outcome.status == 2
    assert message in outcome.stderr
    assert not (tmp_path / "run").exists()
