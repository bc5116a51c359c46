"""Checks of what users' functions return: it must fit what it takes the place of.

Arithmetic and `tf.where` broadcast: a scalar where a tensor should be goes over the
whole of it, without a word.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tree

from tff_drift import autograph, checks


@autograph.as_written
def not_none(owner: object, name: str, found: Any) -> Any:
    """Returns what a user's method returned, unless that is `None`.

    Args:
      owner: The object whose method it is.
      name: The method's name.
      found: What it returned.

    Raises:
      TypeError: If `found` is `None`, as of a method without `return`.
    """
    if found is None:
        raise TypeError(
            f"What {name} of {type(owner).__name__} returns must not be None. Is its "
            "return missing?"
        )
    return found


def result_of(owner: object, name: str, *arguments: Any) -> Any:
    """Calls a user's method as it is written, and returns the result, see `not_none`.

    Args:
      owner: The object whose method it is.
      name: The method's name.
      *arguments: Its arguments.
    """
    return not_none(owner, name, getattr(owner, name)(*arguments))


@autograph.as_written
def as_like(what: str, found: Any, expected: Any) -> Any:
    """Returns what a user's function returned, in the structure that it should have.

    Args:
      what: What was returned, and by which function, for the message.
      found: A structure of tensors, or of what becomes one. The kinds of its containers
        may differ from those of `expected`. What a shape leaves open may be anything.
      expected: The structure of tensors whose place it takes.

    Returns:
      The tensors of `found`, in a structure like `expected`.

    Raises:
      TypeError: If a tensor is missing, is not expected, or has another shape or dtype.
    """
    leaves = {tuple(path): leaf for path, leaf in tree.flatten_with_path(found)}
    paths = [tuple(path) for path, _ in tree.flatten_with_path(expected)]
    if set(leaves) != set(paths):
        wanted = checks.listed(_name(path) or "one tensor" for path in paths)
        given = checks.listed(
            _name(path) or checks.shown(leaves[path]) for path in leaves
        )
        raise TypeError(
            f"{what} must hold {wanted or 'nothing'}, found {given or 'nothing'}."
        )
    return tree.map_structure_with_path(
        lambda path, leaf: _tensor_like(what, path, leaves[tuple(path)], leaf),
        expected,
    )


def _name(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def _tensor_like(
    what: str, path: tuple[Any, ...], found: Any, expected: tf.Tensor
) -> tf.Tensor:
    place = f" at {checks.shown(_name(path))}" if path else ""
    wanted = (
        f"{what} must have{place} shape {expected.shape} and dtype "
        f"{expected.dtype.name}, found "
    )
    try:
        # Python's numbers have no dtype of their own.
        tensor = tf.convert_to_tensor(found, dtype_hint=expected.dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{wanted}{checks.shown(found)}.") from error
    fits = tensor.shape.is_compatible_with(expected.shape)
    if not fits or tensor.dtype != expected.dtype:
        raise TypeError(f"{wanted}shape {tensor.shape}, dtype {tensor.dtype.name}.")
    return tensor
