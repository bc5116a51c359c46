"""The shape of a client's state, and its form as one row of bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tree

from tff_drift import aligned_memory, checks

# Booleans, integers, unsigned integers, floats, complex numbers.
_NUMBER_KINDS = "biufc"


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """An array of a state: its place in the structure, its type, its bytes."""

    path: tuple[Any, ...]
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


def _layout(paths_and_arrays: Sequence[tuple[Any, np.ndarray]]) -> list[_Leaf]:
    """Returns the leaves in their order, with offsets that need no padding.

    Arrays of wide elements come first: every array then starts at a multiple of
    its element's size, so that views into a row of bytes are aligned.
    """
    by_width = sorted(
        range(len(paths_and_arrays)),
        key=lambda index: -paths_and_arrays[index][1].itemsize,
    )
    leaves: dict[int, _Leaf] = {}
    offset = 0
    for index in by_width:
        path, array = paths_and_arrays[index]
        leaves[index] = _Leaf(tuple(path), array.dtype, array.shape, offset)
        offset = leaves[index].end
    return [leaves[index] for index in range(len(paths_and_arrays))]


class StateTemplate:
    """Checks states against the initial one, and packs them into bytes.

    Attributes:
      nbytes: The bytes of a packed state.
    """

    def __init__(self, initial_state: Any) -> None:
        """Reads the structure, shapes and dtypes of a state.

        Args:
          initial_state: A structure (dictionary, tuple, named tuple, ...) of
            arrays, or of what NumPy makes arrays of.

        Raises:
          TypeError: If a leaf is neither numbers nor booleans of NumPy's own dtypes;
            bfloat16 is none.
          ValueError: If there is no array.
        """
        arrays = [
            (path, np.asarray(leaf))
            for path, leaf in tree.flatten_with_path(initial_state)
        ]
        if not arrays:
            raise ValueError(
                f"initial_state {checks.shown(initial_state)} holds no array. Give "
                "what a client remembers at first, such as control variates of zeros."
            )
        self._leaves = _layout(arrays)
        for leaf in self._leaves:
            if leaf.dtype.kind not in _NUMBER_KINDS:
                # Numbers of other packages, bfloat16 among them, are void to NumPy.
                raise TypeError(
                    f"initial_state has dtype {leaf.dtype} at "
                    f"{checks.shown(leaf.name)}. A state holds numbers and booleans "
                    "of NumPy's own dtypes: leave it out, or convert it, and what "
                    "clients return in its place, by .astype(np.float32) for instance."
                )
        self._structure = tree.map_structure(lambda _: None, initial_state)
        self.nbytes = max(leaf.end for leaf in self._leaves)
        self._initial = aligned_memory.make_read_only(
            self.pack([array for _, array in arrays])
        )

    @property
    def num_leaves(self) -> int:
        """The number of arrays in a state."""
        return len(self._leaves)

    def initial_state(self) -> Any:
        """Returns a new copy of the initial state."""
        return self.build([array.copy() for array in self.initial_arrays()])

    def initial_arrays(self) -> list[np.ndarray]:
        """Returns the arrays of the initial state, read-only."""
        return self.unpack(self._initial)

    def checked_arrays(self, client_id: str, state: Any) -> list[np.ndarray]:
        """Returns a state's arrays, not copied, in the template's order.

        Args:
          client_id: The client's id, for messages.
          state: A structure with the names or positions of the initial state; the
            kind of container may differ.

        Raises:
          TypeError: If a dtype differs.
          ValueError: If the structure or a shape differs.
        """
        found = {
            tuple(path): np.asarray(leaf)
            for path, leaf in tree.flatten_with_path(state)
        }
        expected = [leaf.path for leaf in self._leaves]
        client = f"The state of client {checks.shown(client_id)}"
        remedy = "Give states the structure, dtypes and shapes of initial_state."
        if set(found) != set(expected):
            names = ["/".join(map(str, path)) for path in found]
            raise ValueError(
                f"{client} has the leaves {checks.listed(names)}, expected "
                f"{checks.listed(leaf.name for leaf in self._leaves)}. {remedy}"
            )
        for leaf in self._leaves:
            array = found[leaf.path]
            problem = f"{client} has at {checks.shown(leaf.name)}"
            if array.dtype != leaf.dtype:
                raise TypeError(
                    f"{problem} dtype {array.dtype}, expected {leaf.dtype}. {remedy}"
                )
            if array.shape != leaf.shape:
                raise ValueError(
                    f"{problem} shape {array.shape}, expected {leaf.shape}. {remedy}"
                )
        return [found[path] for path in expected]

    def pack(self, arrays: Iterable[np.ndarray]) -> np.ndarray:
        """Returns checked arrays as one new row of bytes, `uint8[nbytes]`."""
        row = aligned_memory.aligned_bytes(self.nbytes)
        for view, array in zip(self.unpack(row), arrays, strict=True):
            view[...] = array
        return row

    def unpack(self, row: np.ndarray) -> list[np.ndarray]:
        """Returns a state's arrays as views of `row`, a row of bytes."""
        return [
            row[leaf.offset : leaf.end].view(leaf.dtype).reshape(leaf.shape)
            for leaf in self._leaves
        ]

    def build(self, arrays: Sequence[np.ndarray]) -> Any:
        """Returns the state of these arrays, not copied.

        Leaves without dimensions are NumPy scalars.
        """
        return tree.unflatten_as(self._structure, [array[()] for array in arrays])

    def stack(self, states: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """Returns, for each leaf, the arrays of many states, stacked."""
        stacked = [
            np.empty((len(states), *leaf.shape), leaf.dtype) for leaf in self._leaves
        ]
        for index, arrays in enumerate(states):
            for stack, array in zip(stacked, arrays, strict=True):
                stack[index] = array
        return stacked

    def fits_stack(self, index: int, array: np.ndarray, num_states: int) -> bool:
        """Returns whether `array` may be leaf `index` of a result of `stack`."""
        leaf = self._leaves[index]
        return array.dtype == leaf.dtype and array.shape == (num_states, *leaf.shape)

    def identity(self) -> str:
        """Returns a line for each leaf and one for the values of the initial state."""
        digest = hashlib.sha256(self._initial.data).hexdigest()
        return "\n".join([*map(str, self._leaves), f"values of sha256 {digest}"])

    def describe_difference(self, identity: str) -> str:
        """Returns where the identity of another template differs from this one."""
        theirs, ours = identity.split("\n"), self.identity().split("\n")
        pairs = itertools.zip_longest(theirs, ours, fillvalue="nothing")
        before, now = next(pair for pair in pairs if pair[0] != pair[1])
        return f"it had {before}, now it has {now}"
