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


def first_row(marked: np.ndarray) -> int | None:
    """Returns the first example of an array with a value that is marked.

    Args:
      marked: Whether each value is.

    Returns:
      The example; `None` if there is none.
    """
    rows = np.flatnonzero(marked.reshape(len(marked), -1).any(axis=1))
    return int(rows[0]) if rows.size else None


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
        client_id.encode()  # Half a character is no text.
    if len(set(checked)) < len(checked):
        twice = collections.Counter(checked).most_common(1)[0][0]
        raise ValueError(
            f"client_ids holds {checks.shown(twice)} more than once. Give each id once."
        )
    return checked


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
    try:
        arrays = _arrays(examples)
        _check_arrays(arrays)
    except ValueError as error:
        text = checks.shortened(error, checks.LONGEST_MESSAGE // 2)
        raise ValueError(f"Client {checks.shown(client_id)}: {text}") from error
    return arrays


def _arrays(examples: Examples) -> Examples:
    _check_names(examples)
    return tf.nest.map_structure(
        lambda leaf: np.asarray(_of_numpy(leaf)), lists.without_lists(examples)
    )


def _check_names(examples: Any) -> None:
    """Raises if an array's name is none that TFF's types can have."""
    if isinstance(examples, Mapping):
        for name in examples:
            if not isinstance(name, str):
                raise ValueError(
                    f"{checks.shown(name)} names an array, and names must be strings. "
                    f"Name it {checks.shown(str(name))}."
                )
        examples = tuple(examples.values())
    if isinstance(examples, tuple):
        for each in examples:
            _check_names(each)


def _check_arrays(arrays: Examples) -> None:
    leaves = _leaves(arrays)
    if not leaves:
        raise ValueError(
            f"{checks.shown(arrays)} holds no array. Give a structure of arrays, such "
            "as (x, y)."
        )
    shapes = [leaf.shape for leaf in leaves]
    for leaf in leaves:
        if not leaf.shape:
            raise ValueError(
                f"{checks.shown(leaf.item())} is without a first dimension for the "
                f"examples; the shapes are {checks.shown(shapes)}. Stack the examples: "
                "np.asarray makes an array of a tuple."
            )
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            "arrays have different first dimensions: the shapes are "
            f"{checks.shown(shapes)}. Give every array one row per example."
        )
    if shapes[0][0] == 0:
        raise ValueError("it has no examples. Leave it out of `client_ids`.")
    for leaf in leaves:
        if not _has_type(leaf):
            if any(isinstance(item, (list, np.ndarray)) for item in leaf.flat):
                raise lists.ragged("an array holds lists")
            # Of strings and others, the first of the others is at fault.
            odd = [each for each in leaf.flat if not isinstance(each, str | bytes)]
            raise ValueError(
                f"for an array of {leaf.dtype}, such as {checks.shown(odd[:1])}, "
                "TensorFlow Federated has no type. Give numbers or strings."
            )


def _of_numpy(leaf: Any) -> Any:
    """Returns a table or a column of pandas in NumPy's types, and others as they are.

    NumPy makes objects of pandas' nullable types, of those of pyarrow, and of columns
    of numbers beside columns of truth values.

    Raises:
      ValueError: If a value is missing or masked, rows are ragged or sparse, or it is
        None.
    """
    if leaf is None:
        raise ValueError("None is no array. Leave it out, or give an array for it.")
    if isinstance(leaf, tf.data.Dataset):
        raise ValueError(
            "it is a tf.data.Dataset. Give its arrays, which "
            "next(dataset.batch(1_000_000).as_numpy_iterator()) returns, or give "
            "TFF's ClientData to ClientDatasets.from_client_data."
        )
    is_of_scipy = hasattr(leaf, "toarray")
    if is_of_scipy or isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)):
        of_tensorflow = "to_tensor(), or tf.sparse.to_dense of it"
        remedy = "toarray()" if is_of_scipy else of_tensorflow
        raise ValueError(
            f"models here take no {type(leaf).__name__}. Give its {remedy}."
        )
    if isinstance(leaf, np.ma.MaskedArray):
        # An array of its own would hold what is below the mask.
        _check_given(np.ma.getmaskarray(leaf))
    dtypes = list(getattr(leaf, "dtypes", ())) if hasattr(leaf, "columns") else []
    if hasattr(leaf, "isna") and hasattr(leaf, "dtype"):
        dtypes = [leaf.dtype]
    plain = [getattr(dtype, "numpy_dtype", dtype) for dtype in dtypes]
    is_plain = all(one is other for one, other in zip(plain, dtypes, strict=True))
    if is_plain and len(set(plain)) < 2:
        return leaf
    if not is_plain:
        _check_given(np.asarray(leaf.isna()))
    if not all(isinstance(each, np.dtype) and each.kind in "biufc" for each in plain):
        return leaf  # Texts, of which NumPy makes an array itself, dates and the like.
    return leaf.to_numpy(np.result_type(*plain))


def _check_given(missing: np.ndarray) -> None:
    example = first_row(missing)
    if example is not None:
        remedy = "Fill such values, or leave these examples out."
        raise ValueError(f"example {example} has a missing or masked value. {remedy}")


def _has_type(array: np.ndarray) -> bool:
    if array.dtype == object:
        return all(isinstance(item, (str, bytes)) for item in array.flat)
    return array.dtype.kind == "U" or _is_of_tff(array.dtype)


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
