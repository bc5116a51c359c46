"""Clients' examples: structures of arrays, and what they must be."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_drift import checks, compat
from tff_drift.simulation.data import lists

# A structure (tuple, dictionary, ...) of arrays whose first dimensions are
# equal: row i of every array belongs to example i.
Examples = Any

# `examples, generator -> examples`: see `ClientDatasets`.
Transform = Callable[[Examples, "np.random.Generator | None"], Examples]


def _leaves(examples: Examples) -> list[np.ndarray]:
    return tf.nest.flatten(examples)


def num_rows(examples: Examples) -> int:
    """Returns the number of examples."""
    return len(_leaves(examples)[0])


def take(examples: Examples, rows: Any) -> Examples:
    """Returns the examples at `rows`, an index array or a slice; all if it is None."""
    if rows is None:
        return examples
    return tf.nest.map_structure(lambda leaf: leaf[rows], examples)


def num_bytes(examples: Examples) -> int:
    """Returns the RAM that `examples` hold, strings included."""
    total = 0
    for leaf in _leaves(examples):
        total += leaf.nbytes
        if leaf.dtype == object:
            total += sum(len(item) for item in leaf.flat)
    return total


def batch_spec(examples: Examples) -> Any:
    """Returns the `tf.TensorSpec`s of a batch of such examples."""
    return tf.nest.map_structure(
        lambda leaf: tf.TensorSpec((None, *leaf.shape[1:]), tf.as_dtype(leaf.dtype)),
        examples,
    )


def checked_ids(client_ids: Iterable[str]) -> tuple[str, ...]:
    """Returns the ids of clients.

    Args:
      client_ids: The ids.

    Raises:
      TypeError: If they are not strings.
      ValueError: If there is none, or one appears twice.
    """
    checks.check_list("client_ids", client_ids, "a sequence of strings", Iterable)
    checked = tuple(client_ids)
    if not checked:
        raise ValueError("client_ids is empty. Give at least one client id.")
    for client_id in checked:
        remedy = "Give str() of it."
        checks.check_instance("client_ids", client_id, str, "strings", remedy)
        if not client_id.isascii():
            _check_is_text(client_id)
    if len(set(checked)) < len(checked):
        twice = collections.Counter(checked).most_common(1)[0][0]
        raise ValueError(
            f"client_ids holds {checks.shown(twice)} more than once. Give each id once."
        )
    return checked


def _check_is_text(client_id: str) -> None:
    try:
        client_id.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"client_ids holds {checks.shown(client_id)}, which is not valid text: it "
            "has half a character. Read the ids in their own encoding."
        ) from error


def checked(client_id: str, examples: Examples) -> Examples:
    """Returns a client's examples as arrays.

    Args:
      client_id: The client's id, for messages.
      examples: The structure of arrays or of what NumPy makes arrays of.

    Returns:
      The structure of arrays, with tuples for lists.

    Raises:
      ValueError: If there is no array or no example, if the arrays differ in their
        first dimension, or if TFF has no type for an array.
    """
    examples = lists.without_lists(client_id, examples)
    _check_plain(client_id, examples)
    try:
        arrays = tf.nest.map_structure(
            lambda leaf: np.asarray(_of_numpy(client_id, leaf)), examples
        )
    except ValueError as error:
        raise lists.ragged(
            f"Client {checks.shown(client_id)}", checks.shortened(str(error))
        ) from error
    leaves = _leaves(arrays)
    if not leaves:
        raise ValueError(
            f"Client {checks.shown(client_id)} has examples without any array: "
            f"{checks.shown(examples)}. "
            "Give a structure of arrays, such as (x, y)."
        )
    shapes = [leaf.shape for leaf in leaves]
    if any(not shape for shape in shapes):
        raise ValueError(
            f"Client {checks.shown(client_id)} has an array without a first dimension "
            f"for the examples; the shapes are {checks.shown(shapes)}. Stack the "
            "examples of each array."
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            f"Client {checks.shown(client_id)} has arrays with different first "
            f"dimensions: the shapes are {checks.shown(shapes)}. Give every array one "
            "row per example."
        )
    if shapes[0][0] == 0:
        raise ValueError(
            f"Client {checks.shown(client_id)} has no examples. Leave it out of "
            "`client_ids`."
        )
    for leaf in leaves:
        if not _has_type(leaf):
            if any(isinstance(item, (list, np.ndarray)) for item in leaf.flat):
                raise lists.ragged(
                    f"Client {checks.shown(client_id)}", "it holds lists"
                )
            raise ValueError(
                f"Client {checks.shown(client_id)} has an array of {leaf.dtype}, such "
                f"as {checks.shown(leaf.ravel()[:1].tolist())}, for which TensorFlow "
                "Federated has no type. Give numbers or strings."
            )
    return arrays


def _check_plain(client_id: str, examples: Examples) -> None:
    """Raises if a value is masked, or rows are ragged or sparse.

    An array of its own would hold what is below the mask.
    """
    for leaf in tf.nest.flatten(examples):
        if isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError(
                f"Client {checks.shown(client_id)} has a {type(leaf).__name__}, of "
                "which models here take none. Give its to_tensor(), or "
                "tf.sparse.to_dense of it."
            )
        if isinstance(leaf, np.ma.MaskedArray) and np.ma.getmaskarray(leaf).any():
            hidden = np.ma.getmaskarray(leaf).reshape(len(leaf), -1).any(axis=1)
            raise ValueError(
                f"Client {checks.shown(client_id)}, example {int(np.argmax(hidden))}, "
                "has a masked value. Fill masked values, or leave such examples out."
            )


def _of_numpy(client_id: str, leaf: Any) -> Any:
    """Returns a table or a column of pandas in NumPy's types, and others as they are.

    NumPy makes objects of pandas' nullable types and of those of pyarrow.

    Raises:
      ValueError: If such a type has a missing value.
    """
    dtypes = list(getattr(leaf, "dtypes", ())) if hasattr(leaf, "columns") else []
    if hasattr(leaf, "isna") and hasattr(leaf, "dtype"):
        dtypes = [leaf.dtype]
    plain = [getattr(dtype, "numpy_dtype", dtype) for dtype in dtypes]
    if not any(one is not other for one, other in zip(plain, dtypes, strict=True)):
        return leaf
    missing = np.asarray(leaf.isna()).reshape(len(leaf), -1).any(axis=1)
    if missing.any():
        raise ValueError(
            f"Client {checks.shown(client_id)}, example {int(np.argmax(missing))}, has "
            "a missing value. Fill missing values, or leave such examples out."
        )
    if not all(isinstance(each, np.dtype) and each.kind in "biufc" for each in plain):
        return leaf  # Texts, of which NumPy makes an array itself, dates and the like.
    return leaf.to_numpy(np.result_type(*plain))


def _has_type(array: np.ndarray) -> bool:
    if array.dtype == object:
        return all(isinstance(item, (str, bytes)) for item in array.flat)
    if array.dtype.kind == "U":
        return True
    return _is_of_tff(array.dtype)


@functools.lru_cache
def _is_of_tff(dtype: np.dtype[Any]) -> bool:
    try:
        compat.tensorflow_to_type(tf.TensorSpec([None], dtype))
    except (NotImplementedError, TypeError):  # Of floats of eight bits, of dates.
        return False
    return True


def checked_clients(clients: Mapping[str, Examples]) -> dict[str, Examples]:
    """Returns the examples of clients as arrays.

    Args:
      clients: Each client's examples by its id.

    Raises:
      TypeError: If `clients` is not a mapping.
      ValueError: If it is empty; and as in `checked`.
    """
    what = 'a mapping of ids to arrays, such as {"ann": (x, y)}'
    checks.check_instance("clients", clients, Mapping, what)
    if not clients:
        raise ValueError("clients is empty. Give at least one client's arrays.")
    return {each: checked(each, examples) for each, examples in clients.items()}
