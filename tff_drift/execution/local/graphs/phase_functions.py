"""The operations of a phase of a plan, as TensorFlow functions."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from tff_drift.execution.local.graphs import functions
from tff_drift.execution.local.graphs.prepare import GraphCache
from tff_drift.execution.local.plans import trees
from tff_drift.execution.local.plans.plan import Leaf, Operation, distinct
from tff_drift.execution.local.tensors import give_back_attributes
from tff_drift.execution.local.values.sequences import is_sequence


class PhaseFunction:
    """The operations of a phase at one place, as one TensorFlow function.

    It is built when it is first asked for.

    Args:
      steps: The operations, in an order in which they can run.
      wanted: The leaves that are wanted of what they compute, among others.
      graphs: Where the graphs of compiled computations come from.

    Attributes:
      inputs: The leaves that it takes.
      outputs: The leaves that it returns.
    """

    def __init__(
        self, steps: Sequence[Operation], wanted: Iterable[Leaf], graphs: GraphCache
    ) -> None:
        made = dict.fromkeys(leaf for step in steps for leaf in step.outputs)
        wanted = set(wanted)
        self.outputs = tuple(leaf for leaf in made if leaf in wanted)
        self.inputs = distinct(
            leaf for step in steps for leaf in step.inputs if leaf not in made
        )
        self._steps = steps
        self._builder = functions.GraphBuilder(graphs)

    @functools.cached_property
    def function(self) -> functions.TensorFunction:
        """The TensorFlow function."""

        def body(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            values = dict(zip(self.inputs, tensors))
            last_pass: dict[Leaf, Sequence[tf.Tensor]] = {}
            for step in self._steps:
                _pass_after(step, values, last_pass)
                function = trees.substitute(step.function, values)
                argument = trees.substitute(step.argument, values)
                results = self._builder.call(function, argument)
                values.update(zip(step.outputs, trees.leaves(results)))
                outputs = [values[leaf] for leaf in step.outputs]
                last_pass.update(dict.fromkeys(_sequences(step), outputs))
            return [values[leaf] for leaf in self.outputs]

        types = [leaf.type_signature for leaf in self.inputs]
        return functions.build_function(body, types)

    def build(self) -> None:
        """Builds the function, unless it has been done.

        Raises:
          NotImplementedError: If a graph holds something that is not supported.
        """
        assert self.function is not None

    @property
    def one_at_a_time(self) -> bool:
        """See `prepare.PreparedGraph`."""
        # The graphs are looked at where they are imported.
        self.build()
        return self._builder.one_at_a_time

    def __call__(
        self, tensors: Iterable[tf.Tensor], device: str | None
    ) -> Sequence[tf.Tensor]:
        """Runs the function on a device."""
        if device is None:
            results = self.function(*tensors)
        else:
            with tf.device(device):
                results = self.function(*tensors)
        give_back_attributes(results)
        return results


def _sequences(step: Operation) -> list[Leaf]:
    return [leaf for leaf in step.inputs if is_sequence(leaf.type_signature)]


def _pass_after(
    step: Operation,
    values: dict[Leaf, tf.Tensor],
    last_pass: Mapping[Leaf, Sequence[tf.Tensor]],
) -> None:
    """Has an operation use datasets after those before it have passed over them."""
    for leaf in _sequences(step):
        if leaf in last_pass:
            with tf.control_dependencies(last_pass[leaf]), tf.device("/CPU:0"):
                values[leaf] = tf.identity(values[leaf])
