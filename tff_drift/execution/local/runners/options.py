"""The options of a context."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any

from tff_drift.execution.local.data.batch_cache import BatchCache
from tff_drift.execution.local.data.client_data import ClientData
from tff_drift.execution.local.limits import Limits
from tff_drift.execution.local.placement import Placement


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a context, see `context.create_local_execution_context`.

    Attributes:
      limits: The thresholds of its decisions.
      placement: The devices, and the number of clients that run at a time.
      batch_clients: False: never vectorize; True: whenever possible; None: if it pays.
      functionalize: Whether loops over datasets become loops of the graph.
      batches: Holds the batches of datasets.
      runners: Those of vectorized clients that are alive, by the content of the
        client's program: processes that differ in seeds or in rates share one.
    """

    limits: Limits
    placement: Placement
    batch_clients: bool | None
    functionalize: bool
    batches: BatchCache[ClientData]
    runners: weakref.WeakValueDictionary[bytes, Any] = dataclasses.field(
        default_factory=weakref.WeakValueDictionary
    )
