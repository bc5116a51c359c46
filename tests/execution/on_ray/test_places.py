"""Processors are shared out so that all actors find room, each on one node."""

import socket

import pytest

from tff_drift.execution import WorkerError
from tff_drift.execution.on_ray import cluster


@pytest.mark.parametrize(
    ("counts", "number", "expected"),
    [
        ([8, 8], 3, 4),  # Two nodes have room for one actor of 5 each.
        ([5, 3], 2, 3),
        ([8, 8], 2, 8),
        ([8, 8], 16, 1),
        ([5, 3], 1, 5),
        ([16, 1, 1], 4, 4),
        ([2], 4, 0.5),
        ([2], 3, 0.5),
        ([1, 1], 5, 0.3333),  # 3 * 0.3334 is more than a node has.
    ],
)
def test_the_largest_share_that_fits(counts, number, expected):
    assert cluster.share(counts, number) == expected
    # By hand: nodes have room for all, and for fewer of any larger share.
    assert sum(int(count / expected + 1e-9) for count in counts) >= number


class Ray:
    """A cluster, as Ray tells of it."""

    def __init__(self, *counts):
        self.counts = counts

    def nodes(self):
        dead = {"NodeID": "gone", "Resources": {"CPU": 64.0}, "Alive": False}
        alive = [
            {"NodeID": f"node {k}", "Resources": {"CPU": float(count)}, "Alive": True}
            for k, count in enumerate(self.counts)
        ]
        return [*alive, {"NodeID": "head", "Resources": {}, "Alive": True}, dead]

    def is_initialized(self):
        return True

    def get_runtime_context(self):
        return self

    def get_node_id(self):
        return "node 0"

    def get_worker_id(self):
        return "driver"


def test_actors_have_what_fits_on_the_nodes():
    places = cluster.places(Ray(8, 8), 3, None, 0)
    assert places == [cluster.Place(4, 0, None)] * 3


def test_more_actors_than_processors_of_a_cluster_are_refused_at_once(monkeypatch):
    ray = Ray(8, 5)
    with pytest.raises(WorkerError, match=r"num_actors=14 .* 13 proc") as error:
        cluster.places(ray, 14, None, 0)
    assert "[5, 8]" in str(error.value)
    # Those that are told what to have may wait for nodes that join.
    assert cluster.places(ray, 14, 1, 0) == [cluster.Place(1, 0, None)] * 14
    monkeypatch.setattr(cluster, "_local", cluster.session(ray))
    assert cluster.places(ray, 14, None, 0) == [cluster.Place(0.5, 0, None)] * 14


def test_actors_share_the_processors_of_a_local_instance(instance):
    processors = int(instance.cluster_resources()["CPU"])
    number = 2 * processors
    assert cluster.places(instance, number, None, 0) == (
        [cluster.Place(0.5, 0, None)] * number
    )


def test_a_local_instance_listens_to_this_machine_alone(instance):
    (node,) = instance.nodes()
    ports = [
        int(cluster.address_of(instance).rpartition(":")[2]),
        node["NodeManagerPort"],
        node["ObjectManagerPort"],
    ]
    # The address by which others would reach this machine; nothing is sent.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.9", 9))
        except OSError:
            pytest.skip("this machine has no interface but the loopback")
        outer = probe.getsockname()[0]
    for port in ports:
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((outer, port), 5)
