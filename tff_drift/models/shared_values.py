"""Frozen weights that a run's state shares with the model of its user.

A process reads the weights of a large model from files, into RAM of their own, and the
user's model has them in RAM already. The buffers of TensorFlow's variables are never
written to while somebody else has them, so that a state can have those of the model: if
that is given other values later, it gets other buffers.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from tff_drift.models.value_files import LARGEST_CONSTANT
from tff_drift.tensors import eagerly

# Of models that live, by `id`: variables have no hashes.
_variables: dict[int, weakref.ref[Any]] = {}
# As many bytes tell most weights of one shape apart.
_FIRST_BYTES = 256


def remember(variables: Iterable[Any]) -> None:
    """Takes note of variables, as long as they live, whose values states may share.

    Args:
      variables: Variables of TensorFlow; those of graphs have no values, and no part in
        this.
    """
    for variable in variables:
        key, handle = id(variable), getattr(variable, "handle", None)
        if key in _variables or not isinstance(handle, tf.__internal__.EagerTensor):
            continue
        count = variable.shape.num_elements() or 0
        if count * variable.dtype.size > LARGEST_CONSTANT:
            forget = functools.partial(_forget, key)
            _variables[key] = weakref.ref(variable, forget)


def _forget(key: int, _: object) -> None:
    _variables.pop(key, None)


def shared(state: Any) -> Any:
    """Returns a structure in which arrays that a model has too are the model's.

    Args:
      state: A structure with arrays.

    Returns:
      The structure, with the same values.
    """
    known = [each() for each in list(_variables.values())]
    candidates = [each for each in known if each is not None]
    if not candidates:
        return state
    return tree.map_structure(lambda leaf: _of_model(leaf, candidates), state)


def _of_model(leaf: Any, candidates: Iterable[Any]) -> Any:
    if not isinstance(leaf, np.ndarray) or leaf.nbytes <= LARGEST_CONSTANT:
        return leaf
    for variable in candidates:
        if variable.shape == leaf.shape and variable.dtype.as_numpy_dtype == leaf.dtype:
            value = eagerly(functools.partial(_view, variable))
            if _are_same(leaf, value):
                return value
    return leaf


def _view(variable: Any) -> np.ndarray:
    """Returns the value of a variable, without a copy where it is in RAM."""
    return np.asarray(variable.read_value())


def _are_same(one: np.ndarray, two: np.ndarray) -> bool:
    """Whether two arrays of one shape and type are equal, bit for bit."""
    first, second = (
        np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, two)
    )
    return np.array_equal(
        first[:_FIRST_BYTES], second[:_FIRST_BYTES]
    ) and np.array_equal(first, second)
