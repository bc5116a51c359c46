"""Brings the cohort's new states from the clients to the store.

In TFF, values leave the clients only through an aggregation. This one does not add the
values up but stacks them. It is a tool for simulations, where the program plays the
clients as well and keeps their states for them.
"""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat


class ClientStateCollectionFactory(tff.aggregators.UnweightedAggregationFactory):
    """Stacks what the clients send, each beside the index of its client.

    The index travels with the state because the order of clients is not kept
    where several workers execute a round.

    The local execution context recognises the graph of this accumulation,
    `tf.concat([stacked, value[tf.newaxis]], axis=0)`, and collects a cohort at once;
    accumulated in another form, each client would copy all that came before it. See
    `tff_drift.execution.local.patterns`, whose tests hold it.

    For values of type `T`, a structure of tensors, the process has the functional
    type signatures

    *   `initialize`: `( -> <>@SERVER)`.
    *   `next`: `(<<>@SERVER, {<index=int32,state=T>}@CLIENTS> -> <state=<>@SERVER,
        result=<index=int32[?],state=T*>@SERVER, measurements=<>@SERVER>)`, where
        `T*` has the tensors of `T` with one more, leading dimension: the clients.
    """

    def create(self, value_type: compat.Type) -> tff.templates.AggregationProcess:
        """Creates the aggregation process for one type of values.

        Args:
          value_type: The type `<index=int32,state=T>`.

        Returns:
          A `tff.templates.AggregationProcess`.

        Raises:
          TypeError: If `value_type` is something else.
        """
        checks.check_instance("value_type", value_type, compat.StructType)
        specs = compat.type_to_tf_tensor_specs(value_type)
        stacked_type = compat.tensorflow_to_type(
            tf.nest.map_structure(
                lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), specs
            )
        )

        @compat.tf_computation
        def zero() -> Any:
            return tf.nest.map_structure(
                lambda spec: tf.zeros([0, *spec.shape], spec.dtype), specs
            )

        @compat.tf_computation(stacked_type, value_type)
        def accumulate(stacked: Any, value: Any) -> Any:
            return tf.nest.map_structure(
                lambda all_before, one: tf.concat(
                    [all_before, one[tf.newaxis]], axis=0
                ),
                stacked,
                value,
            )

        @compat.tf_computation(stacked_type, stacked_type)
        def merge(first: Any, second: Any) -> Any:
            return tf.nest.map_structure(
                lambda one, other: tf.concat([one, other], axis=0), first, second
            )

        @compat.tf_computation(stacked_type)
        def report(stacked: Any) -> Any:
            return stacked

        @compat.federated_computation
        def initialize() -> Any:
            return compat.federated_value((), compat.SERVER)

        @compat.federated_computation(
            initialize.type_signature.result,
            compat.FederatedType(value_type, compat.CLIENTS),
        )
        def next_fn(state: Any, value: Any) -> tff.templates.MeasuredProcessOutput:
            stacked = compat.federated_aggregate(
                value, zero(), accumulate, merge, report
            )
            return tff.templates.MeasuredProcessOutput(
                state=state,
                result=stacked,
                measurements=compat.federated_value((), compat.SERVER),
            )

        return tff.templates.AggregationProcess(initialize, next_fn)


def collected_type(state_type: compat.Type) -> compat.StructType:
    """Returns the type that clients send to the collection.

    Args:
      state_type: The type `T` of one client's state.

    Returns:
      The type `<index=int32,state=T>`.
    """
    checks.check_instance("state_type", state_type, compat.Type)
    return compat.to_type(collections.OrderedDict(index=np.int32, state=state_type))
