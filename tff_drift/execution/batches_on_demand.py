"""Batches of a client that are made when they are needed, and not kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tff_drift import compat


@dataclasses.dataclass(frozen=True)
class BatchesOnDemand(Sequence[Any]):
    """What the local context takes for a sequence in the place of a list of batches.

    Lists have to be there before a round begins: the batches of the whole cohort.
    These are made on the threads that train, and freed when their client is through,
    so that a cohort takes the RAM of the clients that are trained at a time. To whom
    reads them otherwise they are a sequence of batches.

    Attributes:
      sizes: The number of examples in each batch, which is what is known of them
        before.
      element_spec: The `tf.TensorSpec`s of a batch, its first dimension left open.
      make: Returns the batches, structures of arrays like `element_spec`; the same at
        every call, on any thread.
    """

    sizes: Sequence[int]
    element_spec: Any
    make: Callable[[], list[Any]]

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Any) -> Any:
        return self.make()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


def are_taken() -> bool:
    """Whether TFF's current execution context takes `BatchesOnDemand`."""
    context = compat.framework.get_context_stack().current
    return bool(getattr(context, "takes_batches_on_demand", False))
