"""What goes to and fro between processes of this machine."""

from __future__ import annotations

import pathlib


def megabytes_received() -> float:
    """Returns what went over the loopback interface so far."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0]) / 1e6
    raise SystemExit("/proc/net/dev has no interface 'lo'.")
