"""Validation of examples against a model's input: refused if other, never changed.

TFF and TensorFlow cast silently. A label of 3.9 is a 3 to a model of integers, a token
2**32 + 5 is a 5 to one of 32 bits, a NaN is -2147483648. Here structure, shapes and
kinds are compared once, before anything runs, and the values of each client that a cast
could change are looked at once, when its examples are first read.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from absl import logging

from tff_drift import casts, checks, compat
from tff_drift.models.example_weights import CLIENT_WEIGHT
from tff_drift.simulation.data import client_weights
from tff_drift.simulation.data.examples import Examples, first_row

# How to get to an array in a structure: by names and numbers.
_Path = tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class _Cast:
    """An array that the model takes in another dtype.

    Attributes:
      path: Where it is in the examples.
      name: What to call it, such as `y` or `[1]`.
      wanted: The model's dtype.
    """

    path: _Path
    name: str
    wanted: tf.DType


class ValueCheck:
    """Looks at each client's values once.

    Whether a cast would change one, and whether a client's weight can be one.
    """

    def __init__(self, casts: Sequence[_Cast], has_weights: bool) -> None:
        self._casts = casts
        self._has_weights = has_weights
        self._checked: set[str] = set()

    def __call__(self, client_id: str, read: Callable[[], Examples]) -> None:
        """Checks a client, unless it has been checked before.

        Args:
          client_id: The client.
          read: Returns its examples in the order in which they were loaded.

        Raises:
          ValueError: If a value would become another one, or a client's weight is
            none.
        """
        if client_id in self._checked:
            return
        examples = read()
        if self._has_weights:
            _check_weight(client_id, np.asarray(examples[CLIENT_WEIGHT]))
        for cast in self._casts:
            leaf = np.asarray(_at(examples, cast.path))
            changes = casts.changed_values(leaf, cast.wanted)
            example = None if changes is None else first_row(changes)
            if example is not None:
                value = leaf[changes][0]
                raise ValueError(
                    f"client {checks.shown(client_id)}, example {example}: found "
                    f"{value!s} of {leaf.dtype} in {cast.name}, which the model takes "
                    f"as {cast.wanted.name}, another value. Correct it or the model."
                )
        self._checked.add(client_id)

    def cast(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns batches in the model's dtypes, which TFF's own contexts want.

        Args:
          dataset: Batches of a client that has been checked.
        """
        if not self._casts:
            return dataset
        wanted = {cast.path: cast.wanted for cast in self._casts}
        # `map` takes a tuple apart.
        is_tuple = type(dataset.element_spec) is tuple

        def in_dtypes(*elements: Any) -> Any:
            return tree.map_structure_with_path(
                lambda path, leaf: tf.cast(leaf, wanted.get(path, leaf.dtype)),
                elements if is_tuple else elements[0],
            )

        return dataset.map(in_dtypes)


def _check_weight(client_id: str, weights: np.ndarray) -> None:
    """Raises unless the examples of a client have one weight that a mean can take."""
    wrong = ~((weights >= 0) & np.isfinite(weights) & (weights == weights[0]))
    example = first_row(wrong)
    if example is not None:
        raise ValueError(
            f"client {checks.shown(client_id)}, example {example}: found "
            f"{weights[wrong][0]!s} as {CLIENT_WEIGHT}, and {weights.flat[0]!s} in its "
            "first example. Give all one finite number of at least 0; weights of "
            "examples are sample_weight."
        )


def check_fit(name: str, found: Any, wanted: Any) -> ValueCheck | None:
    """Compares the types of batches with what a model takes.

    Args:
      name: The argument that the batches are of, for messages.
      found: The `tf.TensorSpec`s of a batch.
      wanted: The `tf.TensorSpec`s, or the TFF type, of what the model takes.

    Returns:
      A check of clients' values; `None` if types say that all is well.

    Raises:
      TypeError: If structure, shapes or kinds differ.
    """
    found_type, wanted_type = _to_type(found), _to_type(wanted)
    casts = []
    try:
        for path, label, have, want in _pairs(found_type, wanted_type, (), ""):
            _check_tensor(name, label, have, want)
            if tf.as_dtype(have.dtype) != tf.as_dtype(want.dtype):
                casts.append(_Cast(path, label, tf.as_dtype(want.dtype)))
                _say_once(
                    f"{name} has {label} as {tf.as_dtype(have.dtype).name}, and the "
                    f"model takes {tf.as_dtype(want.dtype).name}: it is cast. A value "
                    "that would be another one is refused."
                )
    except _MismatchError as error:
        raise TypeError(
            f"{name} has examples of {checks.shortened(found_type)}, but the model "
            f"takes {checks.shortened(wanted_type)}. Give both one structure."
        ) from error
    has_weights = client_weights.are_in(found)
    return ValueCheck(casts, has_weights) if casts or has_weights else None


def as_taken(found: Any, wanted: Any) -> Any:
    """Returns the types of batches in the dtypes that a model takes.

    Args:
      found: The `tf.TensorSpec`s of a batch, which `check_fit` has let pass.
      wanted: The `tf.TensorSpec`s, or the TFF type, of what the model takes.
    """
    dtypes = {
        path: tf.as_dtype(want.dtype)
        for path, _, _, want in _pairs(_to_type(found), _to_type(wanted), (), "")
    }
    return tree.map_structure_with_path(
        lambda path, spec: tf.TensorSpec(spec.shape, dtypes[path]), found
    )


def _to_type(spec: Any) -> Any:
    return spec if isinstance(spec, compat.Type) else compat.tensorflow_to_type(spec)


class _MismatchError(Exception):
    """Two types that differ in structure."""


def _pairs(
    found: Any, wanted: Any, path: _Path, label: str
) -> Iterator[tuple[_Path, str, Any, Any]]:
    """Yields each tensor of two types, with its path in the first and its name."""
    if isinstance(found, compat.TensorType) and isinstance(wanted, compat.TensorType):
        yield path, checks.shortened(label) or "them", found, wanted
        return
    if not isinstance(found, compat.StructType) or not isinstance(
        wanted, compat.StructType
    ):
        raise _MismatchError
    have, want = map(compat.structure_names, (found, wanted))
    if len(have) != len(want):
        raise _MismatchError
    by_name = None not in (*have, *want)
    if by_name and set(have) != set(want):
        raise _MismatchError
    # A tuple may take the model's names; a dictionary has no order for a tuple.
    if any(own and not name for own, name in zip(have, want, strict=True)):
        raise _MismatchError
    for index, name in enumerate(have):
        # Tuples take the names of the model's elements.
        shown = name or want[index]
        inner = f"{label}/{shown}" if label and shown else shown or f"{label}[{index}]"
        yield from _pairs(
            found[index],
            wanted[want.index(name)] if by_name else wanted[index],
            (*path, index if name is None else name),
            inner,
        )


def _at(examples: Examples, path: _Path) -> Any:
    for step in path:
        is_field = isinstance(step, str) and not isinstance(examples, Mapping)
        examples = getattr(examples, str(step)) if is_field else examples[step]
    return examples


def _check_tensor(name: str, label: str, have: Any, want: Any) -> None:
    """Raises a `TypeError` if a tensor's shape or kind is not the model's."""
    shape, wanted = tf.TensorShape(have.shape), tf.TensorShape(want.shape)
    found, takes = tf.as_dtype(have.dtype), tf.as_dtype(want.dtype)
    has, wants = f"as {found.name}", takes.name
    if not shape.is_compatible_with(wanted):
        has, wants = f"of shape {shape}", str(wanted)
        remedy = "Reshape the examples, or build the model for their shape."
    elif found == tf.string and takes != tf.string:
        remedy = "Number them: np.unique(strings, return_inverse=True)[1] does."
    elif takes == tf.string and found != tf.string:
        remedy = "Give strings, or build a model that takes numbers."
    elif found.is_complex and not takes.is_complex:
        remedy = "Give real and imaginary part as two numbers."
    else:
        return
    raise TypeError(f"{name} has {label} {has}, but the model takes {wants}. {remedy}")


@functools.cache
def _say_once(text: str) -> None:
    """Warns of something, unless the program has said it already."""
    logging.warning("%s", text)
