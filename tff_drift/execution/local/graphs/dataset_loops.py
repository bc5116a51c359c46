"""Loops over datasets, taken out of the operation that hides them.

`Dataset.reduce`, with which most of TFF's client training loops over batches,
is one operation, `ReduceDataset`. It instantiates the function of the training
step anew at every call, which for a small model takes far longer than running
it. The rewrite replaces the operation by what it does, as a loop in the graph:

    iterator = make iterator(dataset)
    next = first element of the iterator, or none
    while next has a value:
        state = step(state, next, arguments)
        next = next element of the iterator, or none

An operation of an unknown form is left as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import dataset_options_pb2

_REDUCE = "ReduceDataset"
# Optimizing a pipeline takes longer than running it over a client's few batches.
_UNOPTIMIZED = dataset_options_pb2.Options(
    autotune_options={"enabled": False},
    optimization_options={"apply_default_optimizations": False},
).SerializeToString()
_VARIANT = tf.variant.as_datatype_enum
_RESOURCE = tf.resource.as_datatype_enum
_BOOL = tf.bool.as_datatype_enum


def splice_dataset_loops(graph_def: tf.compat.v1.GraphDef) -> None:
    """Replaces every `ReduceDataset` of a graph and its library by a loop.

    Args:
      graph_def: The graph; it is changed in place.
    """
    functions = {
        function.signature.name: function for function in graph_def.library.function
    }
    numbers = itertools.count()
    for node in list(graph_def.node):
        loop = _Reduction.of(node, functions, in_function=False)
        if loop is not None:
            graph_def.node.extend(loop.replace(node, graph_def.library, next(numbers)))
    for function in list(graph_def.library.function):
        for node in list(function.node_def):
            loop = _Reduction.of(node, functions, in_function=True)
            if loop is not None:
                function.node_def.extend(
                    loop.replace(node, graph_def.library, next(numbers))
                )
                _rename_outputs(function, node.name)


class _Reduction:
    """One `ReduceDataset` that is known well enough to be replaced."""

    def __init__(self, node: Any, step: Any, in_function: bool) -> None:
        self._step = step
        self._in_function = in_function
        self._call = node.attr["f"].func
        self._state_types = list(node.attr["Tstate"].list.type)
        self._argument_types = list(node.attr["Targuments"].list.type)
        self._state_shapes = list(node.attr["output_shapes"].list.shape)
        types = [argument.type for argument in step.signature.input_arg]
        first, last = len(self._state_types), len(types) - len(self._argument_types)
        self._element_types = types[first:last]
        self._element_shapes = [_shape(step, index) for index in range(first, last)]

    @classmethod
    def of(
        cls, node: Any, functions: Mapping[str, Any], in_function: bool
    ) -> _Reduction | None:
        """Returns the loop that `node` is, None if it is none that is known."""
        if node.op != _REDUCE:
            return None
        step = functions.get(node.attr["f"].func.name)
        if step is None:
            return None
        signature = step.signature
        arguments = [*signature.input_arg, *signature.output_arg]
        if any(
            argument.number_attr or argument.type_list_attr or argument.type_attr
            for argument in arguments
        ):
            return None
        loop = cls(node, step, in_function)
        state = loop._state_types
        taken = [argument.type for argument in signature.input_arg]
        returned = [argument.type for argument in signature.output_arg]
        num_inputs = sum(not name.startswith("^") for name in node.input)
        known = (
            returned == state
            and taken == state + loop._element_types + loop._argument_types
            and bool(loop._element_types)
            and len(loop._state_shapes) == len(state)
            and num_inputs == 1 + len(state) + len(loop._argument_types)
        )
        return loop if known else None

    def replace(self, node: Any, library: Any, number: int) -> list[Any]:
        """Turns `node` into the loop.

        Args:
          node: The operation; it becomes the loop under its old name.
          library: Gets the condition and the body.
          number: Tells the loops of a graph apart.

        Returns:
          The nodes to add: those that make the iterator.
        """
        inputs = [name for name in node.input if not name.startswith("^")]
        control = [name for name in node.input if name.startswith("^")]
        dataset, state = inputs[0], inputs[1 : 1 + len(self._state_types)]
        arguments = inputs[1 + len(self._state_types) :]
        options, iterator, start, first = (
            f"{node.name}/{part}" for part in ("options", "iterator", "start", "first")
        )
        added = [
            self._iterating("OptionsDataset", options, [dataset]),
            self._iterating("AnonymousIteratorV3", iterator, []),
            _node(
                "MakeIterator",
                start,
                [self._output(options, "handle"), self._output(iterator, "handle")],
            ),
            self._iterating(
                "IteratorGetNextAsOptional",
                first,
                [self._output(iterator, "handle"), f"^{start}"],
            ),
        ]
        added[0].attr["serialized_options"].s = _UNOPTIMIZED
        added[2].input.extend(control)
        name = f"{self._step.signature.name}_loop_{number}"
        library.function.extend([self._condition(name), self._body(name)])
        device = node.device
        for other in added:
            other.device = device
        node.op = "While"
        node.ClearField("attr")
        node.ClearField("input")
        node.input.extend(state)
        node.input.append(self._output(first, "optional"))
        node.input.append(self._output(iterator, "handle"))
        node.input.extend(arguments)
        node.input.extend(control)
        node.attr["T"].list.type.extend(self._loop_types())
        node.attr["cond"].func.name = f"{name}_condition"
        node.attr["body"].func.name = f"{name}_body"
        node.attr["parallel_iterations"].i = 1
        node.attr["_lower_using_switch_merge"].b = True
        shapes = node.attr["output_shapes"].list.shape
        shapes.extend(self._state_shapes)
        for _ in range(2 + len(self._argument_types)):
            shapes.add().unknown_rank = True
        return added

    def _output(self, node: str, name: str) -> str:
        """Returns how the only output of a node is called here."""
        return f"{node}:{name}:0" if self._in_function else node

    def _loop_types(self) -> list[int]:
        return [*self._state_types, _VARIANT, _RESOURCE, *self._argument_types]

    def _iterating(self, operation: str, name: str, inputs: Sequence[str]) -> Any:
        node = _node(operation, name, inputs)
        node.attr["output_types"].list.type.extend(self._element_types)
        node.attr["output_shapes"].list.shape.extend(self._element_shapes)
        return node

    def _function(self, name: str) -> Any:
        """Returns a function of the loop's variables, without nodes."""
        function = type(self._step)()
        function.signature.name = name
        function.signature.is_stateful = True
        for variable, dtype in zip(self._variables(), self._loop_types()):
            function.signature.input_arg.add(name=variable, type=dtype)
        return function

    def _variables(self) -> list[str]:
        return [
            *(f"state_{index}" for index in range(len(self._state_types))),
            "optional",
            "iterator",
            *(f"argument_{index}" for index in range(len(self._argument_types))),
        ]

    def _condition(self, name: str) -> Any:
        function = self._function(f"{name}_condition")
        function.signature.output_arg.add(name="continues", type=_BOOL)
        function.node_def.append(_node("OptionalHasValue", "has_value", ["optional"]))
        function.ret["continues"] = "has_value:has_value:0"
        return function

    def _body(self, name: str) -> Any:
        function = self._function(f"{name}_body")
        variables = self._variables()
        num_state = len(self._state_types)
        step = _node(
            "StatefulPartitionedCall",
            "step",
            [
                *variables[:num_state],
                *(
                    f"element:components:{index}"
                    for index in range(len(self._element_types))
                ),
                *variables[num_state + 2 :],
            ],
        )
        step.attr["Tin"].list.type.extend(
            [*self._state_types, *self._element_types, *self._argument_types]
        )
        step.attr["Tout"].list.type.extend(self._state_types)
        step.attr["f"].func.name = self._call.name
        for attribute in ("config", "config_proto", "executor_type"):
            step.attr[attribute].s = b""
        function.node_def.extend(
            [
                self._iterating("OptionalGetValue", "element", ["optional"]),
                step,
                # The step first: it may be what the dataset reads from.
                self._iterating(
                    "IteratorGetNextAsOptional", "next", ["iterator", "^step"]
                ),
            ]
        )
        results = {
            **{
                variable: f"step:output:{index}"
                for index, variable in enumerate(variables[:num_state])
            },
            "optional": "next:optional:0",
        }
        for variable, dtype in zip(variables, self._loop_types()):
            function.signature.output_arg.add(name=f"{variable}_out", type=dtype)
            function.ret[f"{variable}_out"] = results.get(variable, variable)
        return function


def _node(operation: str, name: str, inputs: Sequence[str]) -> Any:
    node = tf.compat.v1.NodeDef()
    node.op = operation
    node.name = name
    node.input.extend(inputs)
    return node


def _shape(function: Any, index: int) -> Any:
    """Returns the shape of a function's argument, as far as it is recorded."""
    if index in function.arg_attr:
        attributes = function.arg_attr[index].attr
        if "_output_shapes" in attributes:
            shapes = attributes["_output_shapes"].list.shape
            if len(shapes) == 1:
                return shapes[0]
    return tf.TensorShape(None).as_proto()


def _rename_outputs(function: Any, name: str) -> None:
    """Gives the outputs of a `ReduceDataset` the name that a loop's have."""
    old, new = f"{name}:components:", f"{name}:output:"
    for node in function.node_def:
        for index, source in enumerate(node.input):
            if source.startswith(old):
                node.input[index] = new + source[len(old) :]
    for output, source in function.ret.items():
        if source.startswith(old):
            function.ret[output] = new + source[len(old) :]
