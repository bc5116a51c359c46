"""Memory that TensorFlow takes as it is."""

from __future__ import annotations

import numpy as np

# TensorFlow copies an array whose memory starts elsewhere than at a multiple of this.
BOUNDARY = 64


def aligned_bytes(num_bytes: int) -> np.ndarray:
    """Returns uninitialized memory that TensorFlow takes without copying it.

    Args:
      num_bytes: Its size.

    Returns:
      An array `uint8[num_bytes]`, whose parts can be viewed as of any dtype.
    """
    memory = np.empty(num_bytes + BOUNDARY, np.uint8)
    start = -memory.ctypes.data % BOUNDARY
    return memory[start : start + num_bytes]


def make_read_only(array: np.ndarray) -> np.ndarray:
    """Lets nobody write to an array, nor to the memory that it is a view of.

    Args:
      array: The array, of whose memory the caller has no other use.

    Returns:
      The same.
    """
    owner: np.ndarray | None = array
    while isinstance(owner, np.ndarray):
        owner.flags.writeable = False
        owner = owner.base
    return array


def read_only(array: np.ndarray) -> np.ndarray:
    """Returns a view of an array that cannot be written to.

    Args:
      array: The array, which its owner may write to.
    """
    view = array.view()
    view.flags.writeable = False
    return view
