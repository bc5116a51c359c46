"""Aggregation of the updates and, beside them, of the clients' messages."""

from __future__ import annotations

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import aggregators, compat
from tff_drift.algorithms.composition import arguments

_MODEL, _VARIATE, _MESSAGE = "model", "control_variate", "message"


class CohortAggregation:
    """The aggregation process of the updates, and that of the messages, if any.

    The state is that of the updates' process where clients keep no state and send no
    message, as in TFF's own processes, and otherwise `<model=...>`,
    `<model=...,control_variate=...>` or `<model=...,message=...>`.

    Args:
      model_aggregator: A factory for the updates, see `ProcessOptions`.
      control_variate_factory: Sums the messages, and holds the server's control
        variate; None where there is none, so that messages are averaged.
      message_aggregator: A factory for messages that are averaged; None for the mean
        with the weights of the updates.
      update_type: The type of an update.
      message_type: The type of a message.
      keeps_client_state: Whether clients keep a state.
      normalizes_update: Whether an update is multiplied by the mean message over the
        client's own, a scalar, before it is aggregated.
    """

    def __init__(
        self,
        model_aggregator: Any,
        control_variate_factory: aggregators.ControlVariateFactory | None,
        message_aggregator: Any,
        *,
        update_type: compat.Type,
        message_type: compat.Type,
        keeps_client_state: bool,
        normalizes_update: bool,
    ) -> None:
        self._model = arguments.build_weighted_aggregator(
            "model_aggregator", model_aggregator, update_type
        )
        # In a mean without weights clients that do not count are as zeros.
        self.has_weights = not isinstance(
            model_aggregator, tff.aggregators.UnweightedAggregationFactory
        )
        self._messages, self._name = None, ""
        if control_variate_factory is not None:
            self._name = _VARIATE
            self._messages = control_variate_factory.create(message_type)
        elif not is_empty(message_type):
            self._name = _MESSAGE
            self._messages = arguments.build_weighted_aggregator(
                "message_aggregator", message_aggregator, message_type
            )
        self._normalize = None
        if normalizes_update:
            self._normalize = _build_normalize(update_type, message_type)
        self._is_nested = keeps_client_state or self._messages is not None

    @property
    def mean_message_type(self) -> compat.Type | None:
        """The type of the mean of the messages; None where they are not averaged."""
        if self._name != _MESSAGE or self._messages is None:
            return None
        return self._messages.next.type_signature.result.result.member

    @property
    def has_control_variate(self) -> bool:
        """Whether the state holds the server's control variate."""
        return self._name == _VARIATE

    def control_variate(self, state: Any) -> Any:
        """Returns the server's control variate, a vector, of the state."""
        return state[_VARIATE]["control_variate"]

    def initialize(self) -> compat.Value:
        """Returns the initial state, within a federated computation."""
        if not self._is_nested:
            return self._model.initialize()
        state = collections.OrderedDict([(_MODEL, self._model.initialize())])
        if self._messages is not None:
            state[self._name] = self._messages.initialize()
        return compat.federated_zip(state)

    def average_messages(self, state: compat.Value, client: compat.Value) -> Any:
        """Aggregates the clients' messages, within a federated computation.

        Args:
          state: The state.
          client: At the clients, by name, `message` and `weight`.

        Returns:
          The output of the messages' process; None if there is none.
        """
        if self._messages is None:
            return None
        weight = [client.weight] if self._name == _MESSAGE else []
        return self._messages.next(state[self._name], client.message, *weight)

    def next(
        self, state: compat.Value, client: compat.Value, messages: Any
    ) -> tff.templates.MeasuredProcessOutput:
        """Aggregates the clients' updates, within a federated computation.

        Args:
          state: The state.
          client: At the clients, by name, `update`, `weight` and `message`.
          messages: What `average_messages` returned.

        Returns:
          The new state, the mean update and the measurements.
        """
        if not self._is_nested:
            return self._model.next(state, client.update, client.weight)
        update = client.update
        if self._normalize is not None:
            mean = compat.federated_broadcast(messages.result)
            update = compat.federated_map(
                self._normalize, (update, client.message, mean)
            )
        model = self._model.next(state[_MODEL], update, client.weight)
        new_state = collections.OrderedDict([(_MODEL, model.state)])
        measurements = collections.OrderedDict([(_MODEL, model.measurements)])
        if messages is not None:
            new_state[self._name] = messages.state
            measurements[self._name] = messages.measurements
        return tff.templates.MeasuredProcessOutput(
            compat.federated_zip(new_state),
            model.result,
            compat.federated_zip(measurements),
        )


def _build_normalize(
    update_type: compat.Type, message_type: compat.Type
) -> compat.Computation:
    """Builds `(<T, m, m> -> T)`: the update times the mean message over its own."""

    @compat.tf_computation(update_type, message_type, message_type)
    def normalize(update: Any, message: Any, mean: Any) -> Any:
        factor = tf.math.divide_no_nan(mean, message)
        return tf.nest.map_structure(
            lambda tensor: tensor * tf.cast(factor, tensor.dtype), update
        )

    return normalize


def is_empty(type_spec: compat.Type) -> bool:
    """Returns whether a type is that of nothing, `<>`."""
    return isinstance(type_spec, compat.StructType) and not len(type_spec)
