"""Finds the values that a cast would change."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tensorflow as tf


def changed_values(values: np.ndarray, wanted: tf.DType) -> np.ndarray | None:
    """Returns which values a cast would change, None if it can change none.

    A float may lose digits, which is what a smaller float is for, but not its size.

    Args:
      values: Numbers or booleans.
      wanted: The dtype to which they are cast.
    """
    kind = values.dtype.kind
    if wanted.is_bool:
        return (values != 0) & (values != 1)
    if kind == "b":
        return None
    if wanted.is_integer:
        low, high = int(wanted.min), int(wanted.max)
        if kind in "iu":
            own = np.iinfo(values.dtype)
            if low <= own.min and own.max <= high:
                return None
            # NumPy compares integers of different kinds as floats.
            below = values < low if own.min < low else np.zeros(values.shape, bool)
            above = values > high if own.max > high else np.zeros(values.shape, bool)
            return below | above
        # In floats `high` may be one more than it is.
        inside = (values >= low) & (values < float(high) + 1)
        with np.errstate(invalid="ignore"):
            return ~(inside & (np.floor(values) == values))
    if kind in "iu" and wanted.is_floating:
        exact = 2 ** (ml_dtypes.finfo(wanted.as_numpy_dtype).nmant + 1)
        own = np.iinfo(values.dtype)
        if -exact <= own.min and own.max <= exact:
            return None
        # Long doubles hold every integer of 64 bits.
        with np.errstate(over="ignore"):
            there = values.astype(wanted.as_numpy_dtype).astype(np.float64)
        return there.astype(np.longdouble) != values.astype(np.longdouble)
    if wanted.is_complex:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return np.isfinite(values) & ~np.isfinite(values.astype(wanted.as_numpy_dtype))
