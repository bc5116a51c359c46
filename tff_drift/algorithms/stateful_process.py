"""Learning processes whose clients keep a state between rounds."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow_federated as tff

from tff_drift import client_works, compat
from tff_drift.algorithms.server_state import Accessors

# The name under which `next` returns the cohort's new client states.
CLIENT_STATES = "client_states"


class StatefulLearningProcess(tff.learning.templates.LearningProcess):
    """A `LearningProcess` whose clients keep a state between rounds.

    Its `next` has the type signature

    ```
    (<S@SERVER, {<examples=B*,state=C,index=int32>}@CLIENTS>
        -> <state=S@SERVER, metrics=<..., client_states=
               <index=int32[?],state=C*>>@SERVER>)
    ```

    `C` is the state of one client, `C*` the new states of the cohort's clients with
    one more, leading dimension, in the order of `index`. Whoever calls `next` keeps
    the client states: see `tff_drift.client_states`.

    `next_at_clients` is the same round, with the new states left at the clients:

    ```
    (<S@SERVER, {<examples=B*,state=C,index=int32>}@CLIENTS>
        -> <<state=S@SERVER, metrics=<...>@SERVER>, {<index=int32,state=C>}@CLIENTS>)
    ```

    No `LearningProcess` may return that, so that TFF's training loops have no use for
    it. But the RAM that TFF's native execution takes for `next` grows with the square
    of the cohort's new states: where they are large, use this one there.

    Attributes:
      next_at_clients: See above; built when it is first asked for.
      control_variate: A computation `(S -> float32[n])` of the server's control
        variate as one vector of the n trainable weights, in their dtype; `None` for
        methods whose server keeps none.
      initial_client_state: The state of a client that has not taken part yet, of
        type `C`, as NumPy arrays.
      message_down: The TFF type of what a client receives besides the model.
      message_up: The TFF type of what a client sends besides its update.
      num_clients: N, the number of all clients that the method was built for; `None`
        for methods that do not ask for it.
    """

    def __init__(
        self,
        initialize: compat.Computation,
        next_fn: compat.Computation,
        accessors: Accessors,
        *,
        initial_client_state: client_works.ClientState,
        message_down: compat.Type,
        message_up: compat.Type,
        build_next_at_clients: Callable[[], compat.Computation],
        num_clients: int | None = None,
    ) -> None:
        super().__init__(
            initialize,
            next_fn,
            accessors.get_model_weights,
            accessors.set_model_weights,
            get_hparams_fn=accessors.get_hparams,
            set_hparams_fn=accessors.set_hparams,
        )
        self.control_variate = accessors.control_variate
        self.initial_client_state = initial_client_state
        self.message_down = message_down
        self.message_up = message_up
        self.num_clients = num_clients
        self._build_next_at_clients = build_next_at_clients

    @functools.cached_property
    def next_at_clients(self) -> compat.Computation:
        """`next`, with the new client states left at the clients."""
        return self._build_next_at_clients()
