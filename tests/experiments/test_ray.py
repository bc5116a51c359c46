"""Training on Ray, from the command line."""

import concurrent.futures
import contextlib
import csv
import dataclasses
import importlib.util
import os
import pathlib
import signal
import sys
import time

import pytest
import tensorflow_federated as tff

from experiments.flags.errors import UserError
from experiments.flags.placement import Placement
from experiments.training import pool, ray_tasks, runs
from tests.experiments import programs
from tff_drift import execution

pytestmark = pytest.mark.no_smoke
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray, the extra, is not installed"
)
# How long a test waits for what should take some seconds.
PATIENCE = 120.0
ON_RAY = Placement(processes=2, on_ray=True, bytes_per_run=1e8)


@needs_ray
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


def where(paths):
    """Returns what there is to know of the process that a run is in."""
    return {
        "pid": os.getpid(),
        "folder": os.getcwd(),
        "threads": os.environ["TF_NUM_INTRAOP_THREADS"],
        "has_plugins": all(f"tff_drift_plugin_{path}" in sys.modules for path in paths),
    }


def fail():
    raise UserError("no such data")


def end_the_first_time(folder):
    mark = pathlib.Path(folder) / "was here"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def end_every_time(folder):
    with open(pathlib.Path(folder) / "attempts", "a") as attempts:
        attempts.write("here\n")
    os.kill(os.getpid(), signal.SIGKILL)


def wait_to_be_interrupted(folder):
    (pathlib.Path(folder) / "waits").touch()
    try:
        while True:
            time.sleep(0.1)
    except KeyboardInterrupt:
        (pathlib.Path(folder) / "was interrupted").touch()
        raise


@pytest.fixture(scope="module")
def instance():
    """A local instance of Ray that is there already, as a cluster would be."""
    started = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    ray = execution.on_ray.cluster.connect(None, 100 * 2**20)
    yield ray
    if not started:
        ray.shutdown()


@needs_ray
def test_whole_runs_are_tasks_on_the_cluster(instance, tmp_path):
    plugin = tmp_path / "plugin.py"
    plugin.write_text("")
    with_plugin = dataclasses.replace(ON_RAY, plugins=(str(plugin),))
    with pool.open_pool(with_plugin, 10) as opened:
        assert opened.size == 2
        asked = opened.executor.submit(where, [plugin])
        failed = opened.executor.submit(fail)
        killed = opened.executor.submit(end_the_first_time, tmp_path)
        concurrent.futures.wait([asked, failed, killed])
    found = asked.result()
    assert found.pop("pid") != os.getpid()
    threads = max(1, int(instance.cluster_resources()["CPU"]) // 2)
    assert found == {
        "folder": os.getcwd(),
        "threads": str(threads),
        "has_plugins": True,
    }
    with pytest.raises(UserError, match=r"^no such data$"):
        failed.result()
    assert killed.result() == "done"


@needs_ray
def test_a_run_that_ends_its_process_is_lost_in_the_end(instance, tmp_path):
    with pool.open_pool(ON_RAY, 10) as opened:
        killed = opened.executor.submit(end_every_time, tmp_path)
        with pytest.raises(UserError, match="A run on the Ray cluster was") as error:
            killed.result(PATIENCE)
    assert "RAM ran out: lower --processes" in str(error.value)
    # Once, and three times again.
    assert (tmp_path / "attempts").read_text().count("here") == 4


@needs_ray
def test_runs_on_the_cluster_are_interrupted_with_the_program(instance, tmp_path):
    def train():
        with pool.open_pool(ON_RAY, 10) as opened:
            opened.executor.submit(wait_to_be_interrupted, tmp_path)
            while not (tmp_path / "waits").exists():
                time.sleep(0.1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert (tmp_path / "was interrupted").exists()


@needs_ray
def test_a_node_of_another_version_is_named(instance, monkeypatch):
    monkeypatch.setattr(ray_tasks.tff_drift, "__version__", "0.0.1")
    with pool.open_pool(ON_RAY, 10) as opened:
        failed = opened.executor.submit(os.getpid)
        with pytest.raises(UserError, match=r"this program 0\.0\.1"):
            failed.result()


@needs_ray
def test_a_sweep_on_ray_leaves_what_one_on_this_machine_leaves(tmp_path):
    words = (
        "sweep", "server_learning_rate=0.5,1", "--task=quadratic", "--rounds=3",
        "--num_clients=5", "--clients_per_round=2",
    )  # fmt: skip
    files = {}
    for place in ("local", "ray"):
        folder = tmp_path / place
        outcome = programs.run_process(
            tmp_path, *words, f"--execution={place}", f"--output_dir={folder}"
        )
        assert outcome.status == 0, outcome.stderr
        assert outcome.stderr.count("seed 0: done") == 2
        files[place] = {
            path.relative_to(folder): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.name in ("points.csv", "best.json", "model.npz", "weights.npz")
        }
        assert files[place]
    assert files["ray"] == files["local"]


def test_without_ray_the_extra_is_named_for_whole_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    opening = pool.open_pool(ON_RAY, 10)
    with pytest.raises(UserError, match="pip install 'tff-drift"), opening:
        pytest.fail("it opens")


def test_without_ray_the_extra_is_named(run_command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = run_command(
        "train", "--execution=ray", f"--output_dir={tmp_path / 'run'}"
    )
    assert outcome.status == 2
    assert "--execution=ray" in outcome.stderr
    assert "pip install 'tff-drift[ray]'" in outcome.stderr
    assert not (tmp_path / "run").exists()
