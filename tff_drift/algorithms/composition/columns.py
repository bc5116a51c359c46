"""`next` of a process whose clients keep a state, in the form of federated programs."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import tree

from tff_drift import compat


def build_next_of_columns(
    process_next: compat.Computation, initial_client_state: Any
) -> compat.Computation:
    """Builds `next` on a list per tensor of the clients' data, and one of examples.

    TFF's contexts of federated programs take datasets and tensors at the clients,
    but no structures of them.

    Args:
      process_next: The process's `next`.
      initial_client_state: A client's state.
    """
    parameter: Any = process_next.type_signature.parameter
    leaf_types = [
        compat.FederatedType(compat.TensorType(leaf.dtype, leaf.shape), compat.CLIENTS)
        for leaf in map(np.asarray, tree.flatten(initial_client_state))
    ]

    @compat.federated_computation(
        parameter[0],
        compat.FederatedType(parameter[1].member.examples, compat.CLIENTS),
        compat.to_type(leaf_types),
        compat.FederatedType(np.int32, compat.CLIENTS),
    )
    def next_of_columns(state: Any, examples: Any, leaves: Any, indices: Any) -> Any:
        columns = [leaves[index] for index in range(len(leaf_types))]
        client_data = collections.OrderedDict(
            examples=examples,
            state=tree.unflatten_as(initial_client_state, columns),
            index=indices,
        )
        return process_next(state, compat.federated_zip(client_data))

    return next_of_columns
