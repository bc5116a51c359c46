"""Finding or starting Ray, and placing actors on its nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import math
import os
import secrets
import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from absl import logging

from tff_drift import checks
from tff_drift.execution.worker import WorkerError

_AUTHENTICATION = "RAY_AUTH_MODE"
_TOKEN = "RAY_AUTH_TOKEN"
# Says whether nodes may be other machines. By default they may, but on macOS.
OTHER_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# How long a cluster may take to answer at all.
_SECONDS = 10.0
# The session of the local instance that was started here last.
_local: tuple[str, str] | None = None
_SETTINGS = {
    # Ray would warn of what it will do otherwise one day, and of metrics that nobody
    # reads.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    # Ray's processes would give way to all others of the machine, as by `nice -n 15`.
    "RAY_worker_niceness": "0",
}


def import_ray() -> Any:
    """Returns the package `ray`.

    Raises:
      ImportError: If it is not installed; the message says how to.
    """
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ImportError(
            "Training on Ray needs the package ray, which cannot be imported here "
            f"({error}). Install it beside tff_drift: pip install 'tff-drift[ray]'"
        ) from error
    return ray


def connect(address: str | None, object_store_bytes: int | None) -> Any:
    """Connects this process to Ray, unless it is connected already.

    Ray's token authentication is switched on unless the environment says otherwise; a
    local instance has a token of its own, and listens on the loopback interface alone.

    Args:
      address: Of a cluster; None is for the one that this process is connected to,
        else a local instance, which ends with this process.
      object_store_bytes: The RAM for objects of a local instance; None leaves it to
        Ray.

    Returns:
      The package `ray`.

    Raises:
      ImportError: If Ray is not installed.
      WorkerError: If it cannot be started or joined, or this process is connected to
        another cluster than the address's.
    """
    _check_is_no_client(address)
    if "ray" not in sys.modules:
        set_environment(address)
    elif _AUTHENTICATION not in os.environ:
        logging.warning(
            "Ray was imported before, without token authentication: whoever reaches "
            "its ports can run code. Set RAY_AUTH_MODE=token in the environment."
        )
    ray = import_ray()
    if ray.is_initialized():
        _check_is_connected_to(ray, address)
        return ray
    if address is not None:
        _check_reachable(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:
        options.update(address="local", include_dashboard=False)
        options.update(object_store_memory=object_store_bytes)
    else:
        options.update(address=address)
    global _local
    try:
        with contextlib.nullcontext() if address else _on_loopback(ray):
            ray.init(**options)
    # Ray raises a dozen kinds of errors here, of the network, of versions, of tokens.
    except Exception as error:
        where = (
            "start here" if address is None else f"be joined at {checks.shown(address)}"
        )
        raise WorkerError(
            f"Ray could not {where}: {str(error).rstrip('.')}. Start a cluster with "
            "`ray start --head`, with the same Ray and Python everywhere and, unless "
            "RAY_AUTH_MODE is 'disabled', the cluster's token in RAY_AUTH_TOKEN."
        ) from error
    if address is None:
        _local = session(ray)
    return ray


def set_environment(address: str | None) -> None:
    """Sets what Ray reads when it is imported, unless the user has set it.

    Args:
      address: Of a cluster, whose token it is to have; None for an instance of its own.
    """
    mode = os.environ.setdefault(_AUTHENTICATION, "token")
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if address is None and mode == "token":
        os.environ.setdefault(_TOKEN, secrets.token_hex(32))


@contextlib.contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """Makes an instance that starts here listen to this machine alone.

    Ray does so where no other machine can be a node. It reads that from the environment
    when it is imported, and a process may join a cluster later.
    """
    constants = ray._private.ray_constants
    if OTHER_MACHINES in os.environ:
        yield  # What the user has set.
        return
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    os.environ[OTHER_MACHINES] = "0"
    try:
        yield
    finally:
        del os.environ[OTHER_MACHINES]
        constants.ENABLE_RAY_CLUSTER = before


def _check_is_no_client(address: str | None) -> None:
    """Raises at an address of Ray Client, whose programs are on no node themselves."""
    if address is not None and address.startswith("ray://"):
        raise _unreachable(
            address,
            "Ray Client is not supported. Run this program on a node of the cluster, "
            "at the address 'auto' or at the one that `ray start --head` printed, such "
            "as '10.0.0.5:6379'.",
        )


def _unreachable(address: str, why: str) -> WorkerError:
    return WorkerError(f"Ray could not be joined at {checks.shown(address)}: {why}")


def _check_is_connected_to(ray: Any, address: str | None) -> None:
    """Raises if this process is connected to another cluster than an address's."""
    connected = address_of(ray)
    if address in (None, "auto", connected):
        return
    assert address is not None
    if not _endpoints(ray, address) & _endpoints(ray, connected):
        raise _unreachable(
            address,
            f"this process is connected to Ray at {checks.shown(connected)}. Leave "
            "that first, by ray.shutdown(), or give no address.",
        )


def _endpoints(ray: Any, address: str) -> set[tuple[str, str]]:
    """Returns the IP addresses of a host, each with the port."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, port)
    except (OSError, UnicodeError):  # Which names no host, or no port.
        return {(host, port)}
    hosts = {str(each[4][0]) for each in found}
    if any(ipaddress.ip_address(each).is_loopback for each in hosts):
        hosts.add(ray.util.get_node_ip_address())
    return {(each, port) for each in hosts}


def _check_reachable(address: str) -> None:
    """Raises unless something listens; Ray would try for ten minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        return  # `auto`, which Ray looks up on this machine.
    try:
        socket.create_connection((host.strip("[]"), int(port)), _SECONDS).close()
    except OSError as error:
        raise _unreachable(
            address,
            f"{error}. Start a cluster there with `ray start --head`, or give the "
            "address that it printed.",
        ) from error


@dataclasses.dataclass(frozen=True)
class Place:
    """The resources of one actor.

    Attributes:
      processors: Its processors.
      gpus: Its GPUs.
      node: The id of the node it is to run on, None for any.
    """

    processors: float
    gpus: float
    node: str | None


def prepare(
    *,
    address: str | None,
    num_actors: int | None,
    processors: float | None,
    gpus: float,
    max_concurrent_clients: int | None,
    object_store_bytes: int | None,
    start_seconds: float,
    part_seconds: float,
    max_retries: int,
) -> tuple[Any, list[Place]]:
    """Does for a context on Ray what can fail, all but starting its actors.

    The arguments are those of `create_ray_execution_context`.

    Returns:
      The package `ray`, connected, and where the actors are to run.

    Raises:
      ImportError: If Ray is not installed.
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range.
      WorkerError: As in `connect` and `places`.
    """
    if address is not None:
        checks.check_text("address", address)
    for name, count in (
        ("num_actors", num_actors),
        ("max_concurrent_clients", max_concurrent_clients),
        ("object_store_bytes", object_store_bytes),
    ):
        if count is not None:
            checks.check_integer(name, count)
    if processors is not None:
        checks.check_positive("processors", processors)
        _check_share("processors", processors)
    checks.check_non_negative("gpus", gpus)
    _check_share("gpus", gpus)
    if gpus > 1 and gpus % 1:
        raise ValueError(
            f"gpus above 1 must be a whole number, as Ray has it, found {gpus}."
        )
    checks.check_positive("start_seconds", start_seconds)
    checks.check_positive("part_seconds", part_seconds)
    checks.check_integer("max_retries", max_retries, 0)
    ray = connect(address, object_store_bytes)
    return ray, places(ray, num_actors, processors, gpus)


def _check_share(name: str, value: float) -> None:
    """Raises ValueError unless Ray can count a number of processors or GPUs."""
    if abs(value - round(value, 4)) > 1e-12 * value:
        raise ValueError(
            f"{name} must be a multiple of 0.0001, as finely as Ray counts, found "
            f"{value}."
        )


def processors_of_nodes(ray: Any) -> dict[str, int]:
    """Returns how many processors each node has that has any, by the node's id.

    Args:
      ray: The package, connected.

    Raises:
      WorkerError: If there is no such node.
    """
    nodes = {
        node["NodeID"]: int(node["Resources"].get("CPU", 0))
        for node in ray.nodes()
        if node["Alive"]
    }
    nodes = {node: count for node, count in nodes.items() if count}
    if not nodes:
        raise WorkerError(
            "Ray's cluster has no node with a processor. Start one with `ray start "
            "--address=... --num-cpus=...`."
        )
    return nodes


def share(counts: Collection[int], number: int) -> float:
    """Returns how many processors each of some processes can have at the most.

    A process cannot take processors of two nodes.

    Args:
      counts: How many processors each node has, one at least.
      number: How many processes there are, all with the same share.

    Returns:
      An integer, or a part of 1 if there are fewer processors than processes.
    """
    for each in range(max(counts), 0, -1):
        if sum(count // each for count in counts) >= number:
            return each
    parts = math.ceil(number / sum(counts))
    # As finely as Ray counts, and never more than so many find room for.
    return max(1, 10_000 // parts) / 10_000


def places(
    ray: Any, num_actors: int | None, processors: float | None, gpus: float
) -> list[Place]:
    """Returns where actors are to run.

    Args:
      ray: The package, connected.
      num_actors: Their number; None for one on each node.
      processors: The processors of each; None shares out those that there are.
      gpus: The GPUs of each.

    Raises:
      WorkerError: If there is no node with a processor, a cluster's are to be shared
        out among more actors than there are processors, or a local instance is too
        small.
    """
    nodes = processors_of_nodes(ray)
    if num_actors is None:
        # Sorted, so that the same nodes give the same places.
        found = [Place(processors or nodes[node], gpus, node) for node in sorted(nodes)]
        check_room(ray, found)
        return found
    each = processors or share(nodes.values(), num_actors)
    # A local instance never grows, and is one program's own.
    if processors is None and each < 1 and session(ray) != _local:
        raise WorkerError(
            f"num_actors={num_actors} is more than the {sum(nodes.values())} "
            f"processors of Ray's nodes, which have {sorted(nodes.values())}. Ask for "
            "fewer actors, or say by processors= what each is to have: a part of a "
            "processor, or as many as nodes have that are to join."
        )
    found = [Place(each, gpus, None)] * num_actors
    check_room(ray, found)
    return found


def check_room(ray: Any, wanted: Sequence[Place], held: Sequence[Place] = ()) -> None:
    """Raises if actors find no room in a local instance, which never grows.

    Args:
      ray: The package, connected.
      wanted: What the actors are to have.
      held: What actors of this process have there.

    Raises:
      WorkerError: If they find none; nothing is checked in a cluster.
    """
    if session(ray) != _local:
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, kind in (("processors", "CPU"), ("gpus", "GPU")):
        there = sum(node.get(kind, 0) for node in nodes)
        taken = sum(getattr(place, name) for place in held)
        asked = sum(getattr(place, name) for place in wanted)
        # Ray counts in parts of 10,000.
        if round(asked + taken - there, 4) <= 0:
            continue
        remedy = "Ask for fewer actors, or less for each."
        if taken:
            remedy = (
                f"Another context of this program holds {taken:g} of them: end it by "
                "its close(), or set both by set_ray_execution_context(), which does."
            )
        raise WorkerError(
            f"num_actors={len(wanted)} with {name}={getattr(wanted[0], name):g} find "
            f"no room on the local instance of Ray, which has {there:g} {name}. "
            f"{remedy}"
        )


def session(ray: Any) -> tuple[str, str] | None:
    """Returns what no other connection of this process to Ray has, None without one.

    Args:
      ray: The package.
    """
    if not ray.is_initialized():
        return None
    here = ray.get_runtime_context()
    # A local instance has a node of its own, a cluster tells its drivers apart.
    return str(here.get_node_id()), str(here.get_worker_id())


def address_of(ray: Any) -> str:
    """Returns the address of the cluster that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)
