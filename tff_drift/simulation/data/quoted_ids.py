"""Clients of TFF's SQLite files, found by their ids whatever is in these.

`tff.simulation.datasets.SqlClientData` writes a client's id into a query as it is: an
apostrophe ends the text there, and what follows is part of the query. By the id
`x' OR 'a'='a` it finds all clients' examples.
"""

from __future__ import annotations

import copy
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff


class _QuotedIds(tff.simulation.datasets.SqlClientData):
    """`SqlClientData` that doubles the apostrophes of an id, as SQL wants them."""

    def _create_dataset(self, client_id: Any) -> tf.data.Dataset:
        return super()._create_dataset(tf.strings.regex_replace(client_id, "'", "''"))


def with_quoted_ids(
    client_data: tff.simulation.datasets.ClientData,
) -> tff.simulation.datasets.ClientData:
    """Returns the same clients, each with its own rows of a SQLite file alone.

    Args:
      client_data: The clients. If they are of a SQLite file, they may be preprocessed
        and transformed in TFF's ways.

    Returns:
      A copy; the clients themselves if they are of no such file, or wrapped in a way
      that is not TFF's.
    """
    if type(client_data) is tff.simulation.datasets.SqlClientData:
        quoted = copy.copy(client_data)
        quoted.__class__ = _QuotedIds
        return quoted
    if type(client_data) is tff.simulation.datasets.TransformingClientData:
        name = "_base_client_data"
    elif type(client_data).__name__ == "PreprocessClientData":
        name = "_underlying_client_data"
    else:
        return client_data
    wrapped: Any = getattr(client_data, name)
    quoted = with_quoted_ids(wrapped)
    if quoted is wrapped:
        return client_data
    other: Any = copy.copy(client_data)
    setattr(other, name, quoted)
    if name == "_underlying_client_data":
        preprocess = other._preprocess_fn
        other._serializable_dataset_fn = lambda client_id: preprocess(
            quoted.serializable_dataset_fn(client_id)
        )
    return other


def queries_sqlite(function: Any) -> bool:
    """Returns whether a function reads from a SQLite file by TensorFlow's means.

    Args:
      function: A `tf.types.experimental.ConcreteFunction`.
    """
    graph = function.graph.as_graph_def()
    bodies = [graph.node, *(body.node_def for body in graph.library.function)]
    return any(node.op == "SqlDataset" for nodes in bodies for node in nodes)
