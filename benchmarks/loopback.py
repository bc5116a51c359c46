"""What processes of this machine have used, and what goes to and fro between them."""

from __future__ import annotations

import os
import pathlib


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes_received() -> float:
    """Returns what went over the loopback interface so far."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0]) / 1e6
    raise SystemExit("/proc/net/dev has no interface 'lo'.")
