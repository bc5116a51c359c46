"""What an execution context takes best, asked of the context itself.

A program that hands clients' data to `next` may do so in forms that mean the same:
a client's batches made on demand or as a dataset, the clients' new states collected
into one result or returned one by one. Which is quicker depends on the context alone,
so the context says it, and whoever feeds it asks `current_preferences()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from tff_drift import compat
from tff_drift.execution.batches_on_demand import ClientSource, RoundOfStates

# TFF's engine sends what clients return through its worker, each with a copy of its
# own: collected states are quicker, until they fill a message.
_MOST_COLLECTED_BYTES = 2**26


@runtime_checkable
class Preferences(Protocol):
    """What an execution context takes best.

    A context of your own states its preferences by having these two members.

    Attributes:
      takes_batches_on_demand: Whether a client's batches are to be given as a
        `BatchesOnDemand` rather than as a `tf.data.Dataset`.
    """

    @property
    def takes_batches_on_demand(self) -> bool:
        """Whether clients' batches may be given as `BatchesOnDemand`."""

    def prefers_states_at_clients(self, client_bytes: int, num_clients: int) -> bool:
        """Whether the clients' new states are better returned one by one.

        Args:
          client_bytes: The size of one client's state, in bytes.
          num_clients: The number of clients in the cohort.

        Returns:
          True if `next_at_clients`, whose states stay at the clients, is better than
          `next`, which collects them into one stack.
        """


class _OfTffsEngine:
    """The preferences of the contexts that run TFF's own engine."""

    takes_batches_on_demand = False

    def prefers_states_at_clients(self, client_bytes: int, num_clients: int) -> bool:
        return num_clients * client_bytes > _MOST_COLLECTED_BYTES


class _OfUnknownContexts:
    """Datasets, and states collected: the forms that every context takes."""

    takes_batches_on_demand = False

    def prefers_states_at_clients(self, client_bytes: int, num_clients: int) -> bool:
        del client_bytes, num_clients
        return False


def current_preferences() -> Preferences:
    """Returns what TFF's current execution context takes best.

    The contexts of this library state it themselves, as do others that have the
    members of `Preferences`. TFF's own contexts (`create_native_execution_context`'s
    and those of `tff.backends`) take datasets, and collected states up to 64 MiB for
    a cohort. An unknown context is given datasets and collected states.

    Returns:
      The preferences. They are those of the context that is current now.
    """
    context = current_context()
    if isinstance(context, Preferences):
        return context
    if isinstance(context, compat.framework.SyncExecutionContext):
        return _OfTffsEngine()
    return _OfUnknownContexts()


def current_context() -> Any:
    """Returns TFF's current context."""
    return compat.framework.get_context_stack().current


def takes_rounds_of_clients() -> bool:
    """Whether TFF's current context takes a client's batches as a `RoundOfClient`."""
    return bool(getattr(current_context(), "takes_rounds_of_clients", False))


def loading_ahead() -> Callable[[ClientSource, Sequence[str]], None] | None:
    """Returns what tells TFF's current context which clients train next.

    Returns:
      A function of the clients' data and ids; None if the context has no use for it.
    """
    return getattr(current_context(), "load_ahead", None)


def states_of_round(store: Any) -> RoundOfStates | None:
    """Returns the states of a round by name, where TFF's current context keeps them.

    Args:
      store: The store of the clients' states.
    """
    find = getattr(current_context(), "round_of_states", None)
    return None if find is None else find(store)


def open_client_states(initial_state: Any, path: Any) -> Any:
    """Returns a store of client states that TFF's current context keeps best.

    Args:
      initial_state: The state of a client that has not been seen.
      path: A folder for them; None if they may end with the program.

    Returns:
      The store, None if the context keeps none.
    """
    open_states = getattr(current_context(), "open_client_states", None)
    return None if open_states is None else open_states(initial_state, path)
