"""Properties of the machine, which Linux and macOS report in different ways."""

from __future__ import annotations

import os
import platform

MISSING_TFF = (
    "TensorFlow Federated, which tff_drift needs, is not installed here. Install it: "
    "tff-drift install-tff, or python -m tff_drift.install."
)


def lacks_tff(error: ImportError) -> bool:
    """Returns whether something could not be imported because there is no TFF."""
    return error.name == "tensorflow_federated" and error.path is None


def machine() -> str:
    """Returns the system and its processor in words, such as `Linux x86_64`."""
    return f"{platform.system()} {platform.machine()}"


def runs_tff_worker() -> bool:
    """Returns whether TFF's worker, a program for Linux on x86-64, runs here."""
    return machine() == "Linux x86_64"


def processors() -> int:
    """Returns the number of processors that this process may use.

    Where the system cannot limit a process to some of them, as on macOS, these are the
    machine's.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Returns the bytes of RAM that are free.

    Where the system does not report it, as on macOS, this is half of the machine's.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * page
    return os.sysconf("SC_PHYS_PAGES") * page // 2


def write_through(descriptor: int) -> None:
    """Returns when what was written to a file is on its disk.

    Args:
      descriptor: The open file's.

    Raises:
      OSError: If the disk reports an error.
    """
    # Linux may leave out the file's times, which nobody reads.
    getattr(os, "fdatasync", os.fsync)(descriptor)
