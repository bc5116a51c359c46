"""The place of runs that train in parallel: this machine, or a Ray cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

# With TensorFlow, a small model and its data.
_BYTES_PER_RUN = 1.5e9


@dataclasses.dataclass(frozen=True)
class Placement:
    """The placement of runs, each in a process of its own.

    Attributes:
      processes: How many at a time; None for as many as fit.
      on_ray: Whether the processes are those of a Ray cluster.
      ray_address: The cluster's address; None for a local instance.
      bytes_per_run: The RAM that a run needs.
      plugins: Files of the user that each process loads.
    """

    processes: int | None = None
    on_ray: bool = False
    ray_address: str | None = None
    bytes_per_run: float = _BYTES_PER_RUN
    plugins: tuple[str, ...] = ()


# As many as fit, and one run after the other in the program itself.
ON_THIS_MACHINE, IN_THIS_PROCESS = Placement(), Placement(processes=1)


def take(given: Mapping[str, Any]) -> tuple[Placement, dict[str, Any]]:
    """Takes the placement of whole runs out of flags.

    A run on Ray's cluster is one that trains in one process, wherever that is: its
    results, and the folder that they are in, are those of a run on this machine.

    Args:
      given: The values of the flags that are given, by name.

    Returns:
      The placement, and the other flags, those of each run.
    """
    rest = dict(given)
    place = Placement(
        rest.pop("processes", None), plugins=tuple(rest.get("plugin") or ())
    )
    if rest.get("execution") != "ray":
        return place, rest
    del rest["execution"]
    address = rest.pop("ray_address", None)
    return dataclasses.replace(place, on_ray=True, ray_address=address), rest
