"""The learning processes that `compose` makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import client_works, compat, summaries
from tff_drift.algorithms.composition.aggregation import is_empty
from tff_drift.algorithms.composition.columns import build_next_of_columns
from tff_drift.algorithms.composition.server_state import Accessors
from tff_drift.models import WeightPlaces

# The name under which `next` returns the cohort's new client states.
CLIENT_STATES = "client_states"
_Rebuild = Callable[[compat.Computation], compat.Computation]


class ComposedLearningProcess(tff.learning.templates.LearningProcess):
    """A `LearningProcess` that says what travels between server and clients.

    Attributes:
      control_variate: A computation `(S -> float32[n])` of the server's control
        variate as one vector of the n trainable weights, in their dtype; `None` for
        methods whose server keeps none.
      message_down: The TFF type of what a client receives besides the model.
      message_up: The TFF type of what a client sends besides its update.
      num_clients: N, the number of all clients that the method was built for; `None`
        for methods that do not ask for it.
      needs_full_participation: Whether all of them must take part in every round.
      weight_places: Where the weights are in the Keras model of `model_fn`; `None` if
        it is not known.
      settings: What the method was built with, in JSON values, as far as it holds
        numbers, flags and strings, by which a resumed run recognizes its method.
    """

    def __init__(
        self,
        initialize: compat.Computation,
        next_fn: compat.Computation,
        accessors: Accessors,
        *,
        message_down: compat.Type,
        message_up: compat.Type,
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
        self.message_down = message_down
        self.message_up = message_up
        self.num_clients = num_clients
        self.needs_full_participation = False
        self.weight_places: WeightPlaces | None = None
        self.settings: Mapping[str, Any] = {}

    def rebuilt(
        self,
        initialize: compat.Computation,
        next_fn: compat.Computation,
        accessors: Accessors,
        rebuild_next_at_clients: _Rebuild | None = None,
        more_settings: Mapping[str, Any] | None = None,
    ) -> Any:
        """Returns a process like this one, of other computations.

        Args:
          initialize: As in a `LearningProcess`.
          next_fn: As in a `LearningProcess`.
          accessors: The other computations.
          rebuild_next_at_clients: Makes `next_at_clients` of this process's, if its
            clients keep a state.
          more_settings: What it was built with besides.
        """
        stateful = isinstance(self, StatefulLearningProcess)
        # A user's own class may be made of other arguments.
        kind: Any = StatefulLearningProcess if stateful else ComposedLearningProcess
        rebuilt = kind(
            initialize,
            next_fn,
            accessors,
            message_down=self.message_down,
            message_up=self.message_up,
            num_clients=self.num_clients,
            **self._of_clients(rebuild_next_at_clients),
        )
        rebuilt.needs_full_participation = self.needs_full_participation
        rebuilt.weight_places = self.weight_places
        rebuilt.settings = {**self.settings, **(more_settings or {})}
        return rebuilt

    def _of_clients(self, rebuild: Any) -> dict[str, Any]:
        """Returns the further arguments of a process whose clients keep a state."""
        return {}

    def __repr__(self) -> str:
        return summaries.text(type(self).__name__, self._summary())

    def _repr_html_(self) -> str:
        return summaries.html(type(self).__name__, self._summary())

    def _summary(self) -> dict[str, str]:
        weights: Any = self.get_model_weights.type_signature.result
        hparams: Any = self.get_hparams.type_signature.result
        return {
            "model": f"{_numbers(weights.trainable)} to train, "
            f"{_numbers(weights.non_trainable)} besides",
            "a client receives": f"the model{_besides(self.message_down)}",
            "a client sends": f"its update{_besides(self.message_up)}",
            "a client keeps": self._kept(),
            "hyperparameters": str(hparams),
        }

    def _kept(self) -> str:
        return "nothing"


class StatefulLearningProcess(ComposedLearningProcess):
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
      next_of_columns: `next` as the contexts of `tff.program` take it, with a list for
        each tensor of the clients' data; built when it is first asked for.
      initial_client_state: The state of a client that has not taken part yet, of
        type `C`, as NumPy arrays.
      control_variate: See `ComposedLearningProcess`, as of the following.
      message_down: Likewise.
      message_up: Likewise.
      num_clients: Likewise.
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
            accessors,
            message_down=message_down,
            message_up=message_up,
            num_clients=num_clients,
        )
        self.initial_client_state = initial_client_state
        self._build_next_at_clients = build_next_at_clients

    @functools.cached_property
    def next_at_clients(self) -> compat.Computation:
        """`next`, with the new client states left at the clients."""
        return self._build_next_at_clients()

    @functools.cached_property
    def next_of_columns(self) -> compat.Computation:
        """`next` on a list for each tensor of the clients' data."""
        return build_next_of_columns(self.next, self.initial_client_state)

    def _of_clients(self, rebuild: Any) -> dict[str, Any]:
        return {
            "initial_client_state": self.initial_client_state,
            "build_next_at_clients": lambda: rebuild(self.next_at_clients),
        }

    def _kept(self) -> str:
        client_data: Any = self.next.type_signature.parameter[1]
        return str(client_data.member.state)


def _numbers(type_spec: compat.Type) -> str:
    specs = tf.nest.flatten(compat.type_to_tf_tensor_specs(type_spec))
    total = sum(spec.shape.num_elements() or 0 for spec in specs)
    return f"{total:,} numbers in {len(specs)} tensors" if specs else "nothing"


def _besides(message_type: compat.Type) -> str:
    return "" if is_empty(message_type) else f" and {message_type}"
