"""Aggregation of the model and, beside it, of the clients' messages."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow_federated as tff

from tff_drift import aggregators, compat
from tff_drift.algorithms.composition import build_model_aggregator

_MODEL, _VARIATE = "model", "control_variate"


class CohortAggregation:
    """The aggregation process of the updates, and that of the messages, if any.

    The state is `<model=...,control_variate=...>`, without the latter for methods
    whose clients send nothing besides the update.

    Args:
      model_aggregator: A factory for the updates, see `ProcessOptions`.
      control_variate_factory: Aggregates the messages, and holds the server's control
        variate; None for methods whose clients send none.
      trainable_type: The type of an update.
      vector_type: The type of a message.
    """

    def __init__(
        self,
        model_aggregator: Any,
        control_variate_factory: aggregators.ControlVariateFactory | None,
        trainable_type: compat.Type,
        vector_type: compat.TensorType,
    ) -> None:
        self._model = build_model_aggregator(model_aggregator, trainable_type)
        self._variate = control_variate_factory and control_variate_factory.create(
            vector_type
        )

    @property
    def has_control_variate(self) -> bool:
        """Whether the state holds the server's control variate."""
        return self._variate is not None

    def control_variate(self, state: Any) -> Any:
        """Returns the server's control variate, a vector, of the state."""
        return state[_VARIATE]["control_variate"]

    def initialize(self) -> compat.Value:
        """Returns the initial state, within a federated computation."""
        state = collections.OrderedDict([(_MODEL, self._model.initialize())])
        if self._variate is not None:
            state[_VARIATE] = self._variate.initialize()
        return compat.federated_zip(state)

    def next(
        self, state: compat.Value, client: compat.Value
    ) -> tff.templates.MeasuredProcessOutput:
        """Aggregates what the clients send, within a federated computation.

        Args:
          state: The state.
          client: At the clients, by name, `update`, `weight` and `message`.
        """
        model = self._model.next(state[_MODEL], client.update, client.weight)
        new_state = collections.OrderedDict([(_MODEL, model.state)])
        measurements = collections.OrderedDict([(_MODEL, model.measurements)])
        if self._variate is not None:
            variate = self._variate.next(state[_VARIATE], client.message)
            new_state[_VARIATE] = variate.state
            measurements[_VARIATE] = variate.measurements
        return tff.templates.MeasuredProcessOutput(
            compat.federated_zip(new_state),
            model.result,
            compat.federated_zip(measurements),
        )
