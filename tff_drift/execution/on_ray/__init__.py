"""An execution context that spreads clients over actors on Ray: the map.

    creation.py    contexts, and one of them as TFF's default
    context.py     splits a computation in TFF's mergeable form, and merges
    partition.py   which clients go to which actor, by id and by examples
    sources.py     clients' data that stays at the actors: sent once, then by key
    wire.py        the forms in which values travel
    actors.py      the actors as this process sees them: retries, losses, time limits
    actor.py       what one actor does: its clients on the local context
    cluster.py     finding or starting Ray, and placing actors

Ray itself is imported when a context is made, by `cluster.py`.
"""

from tff_drift.execution.on_ray.context import RayExecutionContext
from tff_drift.execution.on_ray.creation import (
    create_ray_execution_context,
    set_ray_execution_context,
)

__all__ = [
    "RayExecutionContext",
    "create_ray_execution_context",
    "set_ray_execution_context",
]
