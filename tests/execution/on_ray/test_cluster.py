"""Several nodes, simulated on this machine, one of which is lost in a round."""

import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from tests.execution.on_ray import test_client_states
from tests.execution.on_ray.conftest import STORE_BYTES
from tests.execution.on_ray.test_data import client_arrays
from tests.execution.on_ray.test_failures import once
from tff_drift import execution
from tff_drift.execution.on_ray import cluster
from tff_drift.simulation import ClientDatasets

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray, the optional extra, is not installed",
    ),
]
PATIENCE = 800  # Seconds.
ROOT = pathlib.Path(__file__).parents[3]


def load(path, spared, client_id):
    """Loads a client; the first time on a node that is not spared, that one is lost."""
    marker = pathlib.Path(path)
    node = cluster.import_ray().get_runtime_context().get_node_id()
    if node != spared and not marker.exists() and once(marker.with_suffix(".first")):
        marker.with_suffix(".new").write_text(node)
        marker.with_suffix(".new").rename(marker)
        time.sleep(PATIENCE)
    return client_arrays()[client_id]


def train(context, path, spared, folder):
    clients = ClientDatasets(
        list(client_arrays()), functools.partial(load, path, spared), batch_size=4
    )
    return test_client_states.train(context, clients, output_dir=folder)


def remove_when_asked(simulated, nodes, path):
    while not path.exists():
        time.sleep(0.1)
    (lost,) = [each for each in nodes if each.node_id == path.read_text()]
    simulated.remove_node(lost, allow_graceful=False)


def lose_a_node(folder):
    """Trains twice on two of three nodes; the second time one of them is lost."""
    cluster.set_environment(None)
    from ray.cluster_utils import Cluster

    node = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    simulated = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0})
    nodes = [simulated.add_node(**node, num_cpus=1) for _ in range(3)]
    context = execution.create_ray_execution_context(
        address=simulated.address, num_actors=2, processors=1
    )
    # The one that this program is connected to.
    spared = cluster.import_ray().get_runtime_context().get_node_id()
    (folder / "never").touch()
    expected = train(context, folder / "never", spared, folder / "whole")
    threading.Thread(
        target=remove_when_asked,
        args=(simulated, nodes, folder / "asked"),
        daemon=True,
    ).start()
    found = train(context, folder / "asked", spared, folder / "run")
    test_client_states.assert_equal(found, expected)
    print("equal after the loss of", (folder / "asked").read_text(), flush=True)
    os._exit(0)  # The cluster ends with this program.


def test_a_node_that_is_lost_in_a_round_changes_no_number(tmp_path):
    environment = {
        name: value for name, value in os.environ.items() if "RAY_" not in name
    }
    found = subprocess.run(
        [sys.executable, "-m", __name__, str(tmp_path)],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "equal after the loss of" in found.stdout, found.stderr[-3000:]


if __name__ == "__main__":
    lose_a_node(pathlib.Path(sys.argv[1]))
