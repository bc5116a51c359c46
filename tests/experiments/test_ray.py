"""Training on Ray, from the command line."""

import contextlib
import csv
import importlib.util
import sys

import pytest
import tensorflow_federated as tff

from experiments.training import runs
from tff_drift import execution

pytestmark = pytest.mark.whole_programs


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray, the extra, is not installed"
)
def test_training_on_two_actors_gives_the_numbers_of_one_process(
    run_command, monkeypatch, tmp_path
):
    contexts = []
    stack = contextlib.ExitStack()

    def install(**options):
        started = "ray" in sys.modules and sys.modules["ray"].is_initialized()
        context = execution.create_ray_execution_context(
            **options, processors=0.25, object_store_bytes=100 * 2**20
        )
        ours = None if started else sys.modules["ray"]
        # Other tests of this process may go on using an instance of theirs.
        stack.callback(context.close if ours is None else ours.shutdown)
        contexts.append(context)
        stack.enter_context(tff.framework.get_context_stack().install(context))

    monkeypatch.setattr(runs.execution, "set_ray_execution_context", install)
    losses = {}
    with stack:
        for where in ("local", "ray --ray_actors=2"):
            folder = tmp_path / where[:3]
            outcome = run_command(
                *("train", "--task=quadratic", "--algorithm=scaffold", "--rounds=3"),
                *(f"--output_dir={folder}", *f"--execution={where}".split()),
            )
            assert outcome.status == 0, outcome.stderr
            with open(folder / "metrics.csv") as metrics:
                rows = list(csv.DictReader(metrics))
            losses[where[:3]] = [float(row["train_loss"]) for row in rows[1:]]
        assert len(contexts[0].actors) == 2
    assert losses["ray"] == pytest.approx(losses["loc"], rel=1e-4)
    assert len(losses["ray"]) == 3


def test_without_ray_the_extra_is_named(run_command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = run_command(
        "train", "--execution=ray", f"--output_dir={tmp_path / 'run'}"
    )
    assert outcome.status == 2
    assert "--execution=ray" in outcome.stderr
    assert "pip install 'tff-drift[ray]'" in outcome.stderr
    assert not (tmp_path / "run").exists()
