"""Making contexts on Ray, and one of them TFF's default."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from tff_drift import checks, compat, signatures
from tff_drift.execution.on_ray import cluster
from tff_drift.execution.on_ray.actors import Actors
from tff_drift.execution.on_ray.context import RayExecutionContext
from tff_drift.execution.worker import WorkerError


def create_ray_execution_context(
    *,
    address: str | None = None,
    num_actors: int | None = None,
    processors: float | None = None,
    gpus: float = 0,
    max_concurrent_clients: int | None = None,
    object_store_bytes: int | None = None,
    start_seconds: float = 300.0,
    part_seconds: float = 3600.0,
    max_retries: int = 3,
    default_num_clients: int = 0,
) -> RayExecutionContext:
    """Returns an execution context that trains clients on actors on Ray.

    The clients of a cohort are dealt to actors, processes on the nodes of a Ray
    cluster. Each runs its clients on the local execution context and sends back one
    aggregate; this process merges the aggregates and does the server's part. The split
    is TFF's own, its mergeable form. A computation that takes no clients runs in this
    process, one that cannot be split on one actor.

    Results are those of the local context, up to the rounding of sums that are added
    up in another order. That order depends on the number of actors and on the cohort
    alone: runs repeat bit for bit, also when an actor is lost in the middle of a round.
    Ray starts it anew, and it trains its clients again.

    `run_training` sends a round's client ids; what `ClientDatasets` load is loaded by
    the actors. Datasets and lists of batches that are given to `next` are sent.

    See `docs/remote.md` for clusters, and for who can run code on one.

    Args:
      address: Of a Ray cluster, such as `auto` for the one that runs on this machine,
        or `10.0.0.5:6379`. By default the instance that this process is connected to
        already (`ray.init`), else a local one that ends with it. A process is on one
        cluster at a time: before it goes to another, call `ray.shutdown()`.
      num_actors: The number of actors; by default one on each node.
      processors: The processors of each, in steps of 0.0001; by default as many as
        leave room for all actors on the nodes that there are. A local instance that is
        started here shares out parts of its processors among more actors than that.
      gpus: The GPUs of each: a part of one, in steps of 0.0001, or a whole number.
      max_concurrent_clients: How many clients an actor trains at a time; by default two
        more than it has processors.
      object_store_bytes: The RAM that a local instance may use for data that processes
        share; by default Ray's, 30 % of the machine's.
      start_seconds: How long the actors may take to start, and to start anew elsewhere
        when their node is gone.
      part_seconds: How long an actor may take for its part of a computation, that is,
        for training all of its clients of a round. It is started anew then.
      max_retries: How often a part of the clients is run again whose actor was lost.
      default_num_clients: The number of clients of a computation that takes none, as in
        `create_local_execution_context`.

    Returns:
      An execution context for `tff.framework.set_default_context`.

    Raises:
      ImportError: If Ray is not installed.
      TypeError: If an argument has the wrong type.
      ValueError: If a number is out of its range.
      WorkerError: If Ray cannot be started or joined, or the actors are too many, do
        not start or have other versions than this process.
    """
    checks.check_integer("default_num_clients", default_num_clients, 0)
    ray, places = cluster.prepare(
        address=address,
        num_actors=num_actors,
        processors=processors,
        gpus=gpus,
        max_concurrent_clients=max_concurrent_clients,
        object_store_bytes=object_store_bytes,
        start_seconds=start_seconds,
        part_seconds=part_seconds,
        max_retries=max_retries,
    )
    actors = Actors(
        ray,
        places,
        max_concurrent_clients,
        start_seconds=start_seconds,
        part_seconds=part_seconds,
        max_retries=max_retries,
    )
    return RayExecutionContext(actors, cluster.address_of(ray), default_num_clients)


@signatures.with_options_of(create_ray_execution_context)
def set_ray_execution_context(**options: Any) -> None:
    """Makes `create_ray_execution_context`'s result TFF's default context.

    If the default context is one on Ray already, it is closed first, after the options
    were checked, so that the new actors find room.

    Args:
      **options: Those of `create_ray_execution_context`, by name.

    Raises:
      ImportError: If Ray is not installed.
      TypeError: If an option is unknown or has the wrong type.
      ValueError: If a number is out of its range.
      WorkerError: As in `create_ray_execution_context`.
    """
    former = compat.default_context()
    if isinstance(former, RayExecutionContext):
        with _in_place_of(former, options):
            context = create_ray_execution_context(**options)
    else:
        context = create_ray_execution_context(**options)
    compat.set_default_context(context)


@contextlib.contextmanager
def _in_place_of(
    former: RayExecutionContext, options: Mapping[str, Any]
) -> Iterator[None]:
    """Closes a context unless options are wrong, and says so where no other starts."""
    arguments = inspect.signature(create_ray_execution_context).bind(**options)
    arguments.apply_defaults()
    default_num_clients = arguments.arguments.pop("default_num_clients")
    checks.check_integer("default_num_clients", default_num_clients, 0)
    cluster.prepare(**arguments.arguments)
    former.close()
    try:
        yield
    except WorkerError as error:
        raise WorkerError(
            f"{error} TFF's default context, which was on Ray too, is closed: set "
            "another one."
        ) from error
