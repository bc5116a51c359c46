"""What stands in for secure aggregation in a simulation.

The sums are those of the protocols, without their cryptography, as in
`tff.backends.test`: the values are added up, after a check that they are in the
range for which the protocol is set up.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_drift import compat
from tff_drift.execution.local.plan import trees

# A secure sum has 63 bits, one of which has to hold the sum of two values.
_MAX_BITWIDTH = 62


def zeros(type_signature: compat.Type) -> trees.TreeFunction:
    """Returns a function without a parameter that returns zeros of a type."""

    def body(argument: None) -> Any:
        del argument
        return trees.pack(
            type_signature,
            (
                tf.zeros(leaf.shape, leaf.dtype)
                for leaf in trees.leaf_types(type_signature)
            ),
        )

    return trees.TreeFunction(body)


def _leafwise(function: Any, tree: Any, other: Any) -> Any:
    """Applies a function to the leaves of two trees; one leaf serves for all."""
    others = list(trees.leaves(other))
    leaves = list(trees.leaves(tree))
    if len(others) == 1:
        others *= len(leaves)
    results = [
        function(leaf, other) for leaf, other in zip(leaves, others, strict=True)
    ]
    if isinstance(tree, compat.structure.Struct):
        return compat.structure.pack_sequence_as(tree, results)
    return results[0]


def _checked(value: tf.Tensor, maximum: tf.Tensor) -> tf.Tensor:
    within = tf.reduce_all(tf.cast(value, tf.int64) <= tf.cast(maximum, tf.int64))
    check = tf.raw_ops.Assert(
        condition=within,
        data=[
            "client value larger than maximum specified for secure sum",
            value,
            "not less than or equal to",
            maximum,
        ],
    )
    with tf.control_dependencies([check]):
        return tf.identity(value)


def _add_within(argument: Any) -> Any:
    total, (value, maximum) = argument
    return _leafwise(tf.add, total, _leafwise(_checked, value, maximum))


def _add(argument: Any) -> Any:
    return _leafwise(tf.add, *argument)


def _modulo(argument: Any) -> Any:
    return _leafwise(tf.math.floormod, *argument)


def _maximum_of_bitwidth(bitwidth: Any) -> Any:
    def maximum(bits: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
        check = tf.raw_ops.Assert(
            condition=bits <= _MAX_BITWIDTH,
            data=[bits, f"is greater than maximum bitwidth {_MAX_BITWIDTH}"],
        )
        with tf.control_dependencies([check]):
            return 2 ** tf.cast(bits, tf.int64) - 1

    return _leafwise(maximum, bitwidth, bitwidth)


# From the sum so far and <value, maximum> to the next sum.
ADD_WITHIN = trees.TreeFunction(_add_within)
# From two values to their sum.
ADD = trees.TreeFunction(_add)
# From a value and a modulus to the value modulo the modulus.
MODULO = trees.TreeFunction(_modulo)
# From bit widths to the greatest values of so many bits.
MAXIMUM_OF_BITWIDTH = trees.TreeFunction(_maximum_of_bitwidth)
