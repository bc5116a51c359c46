"""A file of numbered slots of one size."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable

import numpy as np

from tff_drift import files, system


class SlotFile:
    """Reads and writes slots of a file, and knows which of them are free.

    Which slots are in use is for others to keep: a slot that `write` has returned
    stays in use until it is released. A call of `write` that failed leaves its slot
    free.
    """

    def __init__(
        self, path: pathlib.Path, slot_nbytes: int, slots_in_use: Iterable[int]
    ) -> None:
        """Opens a file that exists.

        Args:
          path: The file.
          slot_nbytes: The bytes of a slot.
          slots_in_use: The slots in use, ascending; all others are free.

        Raises:
          OSError: If the file cannot be opened, or is a link.
        """
        self._slot_nbytes = slot_nbytes
        self._free: list[int] = []
        # Slots that nothing has been released from yet: of a file with large holes,
        # which takes no space, they are many.
        self._gaps: list[range] = []
        self._end = 0
        for slot in slots_in_use:
            if slot > self._end:
                self._gaps.append(range(self._end, slot))
            self._end = slot + 1
        self._file = files.open_in_place(path, os.O_RDWR)

    def read(self, slot: int) -> np.ndarray:
        """Returns a slot's bytes, `uint8[slot_nbytes]`, in a new array.

        Raises:
          EOFError: If the file ends before the slot does.
          OSError: If the file cannot be read.
        """
        row = np.empty(self._slot_nbytes, np.uint8)
        done = 0
        while done < self._slot_nbytes:
            count = os.preadv(self._file, [row[done:].data], self._offset(slot) + done)
            if count == 0:
                raise EOFError(f"The file ends inside slot {slot}.")
            done += count
        return row

    def write(self, row: np.ndarray) -> int:
        """Writes bytes, `uint8[slot_nbytes]`, to a free slot and returns the slot.

        Raises:
          OSError: If the file cannot be written.
        """
        slot = self._take()
        try:
            done = 0
            while done < self._slot_nbytes:
                offset = self._offset(slot) + done
                done += os.pwritev(self._file, [row[done:].data], offset)
        except BaseException:
            self._free.append(slot)
            raise
        return slot

    def _take(self) -> int:
        """Returns a slot that was free."""
        if self._free:
            return self._free.pop()
        if self._gaps:
            gap = self._gaps.pop()
            if len(gap) > 1:
                self._gaps.append(gap[:-1])
            return gap[-1]
        self._end += 1
        return self._end - 1

    def release(self, slots: Iterable[int]) -> None:
        """Marks slots as free."""
        self._free.extend(slots)

    def is_deleted(self) -> bool:
        """Returns whether the file has no name any more."""
        return os.fstat(self._file).st_nlink == 0

    def sync(self) -> None:
        """Makes everything written durable."""
        system.write_through(self._file)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _offset(self, slot: int) -> int:
        return slot * self._slot_nbytes
