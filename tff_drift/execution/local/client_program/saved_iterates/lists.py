"""TensorFlow's lists in a graph that is evaluated as a function of tensors.

A computation that passes over its batches again puts them into lists, and loops over
those; what a later loop needs of an earlier one goes through lists, too. Where many
clients take such loops side by side, whose turn it is to read what is not for the
graph of one client to say. So lists are Python objects here: a step of a loop is given
what it reads of them, and what it writes is taken from them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_drift.execution.local.client_program.variables import UnsupportedGraphError


class ListInGraph:
    """A list while its graph is evaluated."""

    def use(self, node: Any, inputs: list[Any]) -> tuple[list[Any], dict[str, int]]:
        """Evaluates an operation on the list.

        Args:
          node: The operation's node.
          inputs: Its inputs, the list first.

        Returns:
          The outputs, and where each named output starts.

        Raises:
          UnsupportedGraphError: If it is not supported here.
        """
        if inputs[0] is self and not any(
            isinstance(x, ListInGraph) for x in inputs[1:]
        ):
            if node.op == "Identity":
                return [self], {"output": 0}
            if node.op == "TensorListPushBack":
                return [self.push(inputs[1])], {"output_handle": 0}
            if node.op == "TensorListGetItem":
                dtype = tf.as_dtype(node.attr["element_dtype"].type)
                return [self.get(inputs[1], dtype)], {"item": 0}
            if node.op == "TensorListSetItem":
                return [self.set(inputs[1], inputs[2])], {"output_handle": 0}
        raise UnsupportedGraphError(f"it has the operation {node.op!r} on a list")

    def push(self, item: tf.Tensor) -> ListInGraph:
        """Returns the list with an item more."""
        raise UnsupportedGraphError("it adds to a list in a loop over it")

    def get(self, index: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Returns an item."""
        raise UnsupportedGraphError("it reads a list outside of a loop over it")

    def set(self, index: tf.Tensor, item: tf.Tensor) -> ListInGraph:
        """Returns the list with another item."""
        raise UnsupportedGraphError("it changes a list outside of a loop")


class Pushed(ListInGraph):
    """A list to which a step adds one item.

    Attributes:
      items: What it has added.
    """

    def __init__(self) -> None:
        self.items: list[tf.Tensor] = []

    def push(self, item: tf.Tensor) -> ListInGraph:
        """See `ListInGraph.push`."""
        self.items.append(item)
        return self


class GatheredBatches(ListInGraph):
    """The components of one kind of a client's batches, outside of a step.

    Args:
      dataset: The position of the dataset among the inputs.
      component: Which component.
    """

    def __init__(self, dataset: int, component: int) -> None:
        self.dataset = dataset
        self.component = component


class SavedIterates(ListInGraph):
    """What a loop writes for a later one, outside of a step.

    Args:
      number: Which ones.
    """

    def __init__(self, number: int) -> None:
        self.number = number


class InStep(ListInGraph):
    """A list in a step that reads or writes one item of it.

    Args:
      item: What it reads; None if that is not known: a placeholder then.

    Attributes:
      item: The same, with the placeholder.
      indices: At which indices it has been read and written.
      written: What has been written.
    """

    def __init__(self, item: tf.Tensor | None = None) -> None:
        self.item = item
        self.indices: list[tf.Tensor] = []
        self.written: list[tf.Tensor] = []

    def get(self, index: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """See `ListInGraph.get`."""
        if self.item is None:
            self.item = tf.compat.v1.placeholder(dtype)
        self.indices.append(index)
        return self.item

    def set(self, index: tf.Tensor, item: tf.Tensor) -> ListInGraph:
        """See `ListInGraph.set`."""
        self.indices.append(index)
        self.written.append(item)
        return self
