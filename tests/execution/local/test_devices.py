import re
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.forks.programs import PATIENCE
from tff_drift import execution
from tff_drift.execution.local.graphs import import_graph


@pytest.mark.conformance
def test_compute_goes_to_the_clients_devices_and_datasets_stay(tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as output:
        subprocess.run(
            [sys.executable, "-m", "tests.execution.local.device_placement"],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=True,
            timeout=PATIENCE,
        )
    text = log.read_text(errors="replace")
    assert "done" in text
    text = text[text.index("placements from here on") :]
    placed = re.findall(r"\((\w+)\): /job:\S*/device:(CPU:\d)", text)
    assert {device for op, device in placed if op == "MatMul"} == {"CPU:1", "CPU:2"}
    iterating = {device for op, device in placed if "Iterator" in op}
    assert iterating == {"CPU:0"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"client_devices": "/CPU:0"}, TypeError, "client_devices.*'/CPU:0'"),
        ({"client_devices": []}, ValueError, "client_devices.*at least one"),
        ({"client_devices": ["/GPU:7"]}, ValueError, "client_devices.*'/GPU:7'"),
        ({"server_device": "cpu zero"}, ValueError, "server_device.*'cpu zero'"),
        ({"max_concurrent_clients": 0}, ValueError, "max_concurrent_clients.*0"),
        ({"max_concurrent_clients": 1.5}, TypeError, "max_concurrent_clients.*1.5"),
    ],
)
def test_bad_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        execution.create_local_execution_context(**options)


def test_only_datasets_are_pinned():
    with tf.Graph().as_default() as graph:
        variant = tf.compat.v1.placeholder(tf.variant, [], name="variant")
        number = tf.compat.v1.placeholder(tf.float32, [], name="number")
        tf.identity(variant, name="dataset")
        tf.identity(number, name="tensor")
        tf.data.experimental.to_variant(tf.data.Dataset.range(3))
    graph_def = graph.as_graph_def()
    import_graph.pin_datasets_to_cpu(graph_def)
    pinned = {node.name for node in graph_def.node if node.device}
    assert {"variant", "dataset"} <= pinned
    assert any(name.startswith("RangeDataset") for name in pinned)
    assert pinned.isdisjoint({"number", "tensor"})
