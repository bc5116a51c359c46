"""Addresses of workers, as users write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAX_PORT = 65_535
# A name or an IPv4 address, or an IPv6 address in brackets; then a port.
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>\d{1,5})")


def check_addresses(addresses: Sequence[str]) -> tuple[str, ...]:
    """Returns addresses of workers, checked.

    Args:
      addresses: Such as `["10.0.0.5:8000", "worker-2:8000", "[fe80::1]:8000"]`.

    Returns:
      The addresses as a tuple.

    Raises:
      TypeError: If `addresses` is no list or tuple of strings.
      ValueError: If there is none, one is no `host:port`, or one is there twice.
    """
    if isinstance(addresses, str) or not isinstance(addresses, Sequence):
        raise TypeError(
            f"addresses must be a list of strings 'host:port', found {addresses!r}."
        )
    if not addresses:
        raise ValueError("addresses must name at least one worker, found none.")
    for address in addresses:
        if not isinstance(address, str):
            raise TypeError(
                f"addresses must be strings 'host:port', found {address!r}."
            )
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
            raise ValueError(
                f"addresses must be written 'host:port' with a port from 1 to "
                f"{_MAX_PORT}, such as '10.0.0.5:8000', found {address!r}."
            )
        if addresses.count(address) > 1:
            raise ValueError(
                f"addresses must differ, found {address!r} more than once. One worker "
                "trains several clients at a time by itself, see its "
                "--max_concurrent_clients."
            )
    return tuple(addresses)
