"""Memory that TensorFlow takes as it is."""

from __future__ import annotations

import numpy as np

# TensorFlow copies an array whose memory starts elsewhere than at a multiple of this.
_BOUNDARY = 64


def aligned_bytes(num_bytes: int) -> np.ndarray:
    """Returns uninitialized memory that TensorFlow takes without copying it.

    Args:
      num_bytes: Its size.

    Returns:
      An array `uint8[num_bytes]`, whose parts can be viewed as of any dtype.
    """
    memory = np.empty(num_bytes + _BOUNDARY, np.uint8)
    start = -memory.ctypes.data % _BOUNDARY
    return memory[start : start + num_bytes]
