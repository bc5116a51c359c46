"""Which examples make the batches of an epoch, by seed, round and client."""

from __future__ import annotations

import hashlib

import numpy as np

from tff_drift import checks
from tff_drift.simulation.example_store import Examples, num_rows, take

# What becomes of an epoch's last batch if it is short, see `ClientDatasets`.
LAST_BATCHES = ("short", "drop", "bootstrap")


def check(
    batch_size: int, epochs: int, shuffle: bool, seed: int, last_batch: str
) -> None:
    """Raises unless arguments of `ClientDatasets` are what they must be.

    Args:
      batch_size: The argument of this name, and so on.
      epochs: As above.
      shuffle: As above.
      seed: As above.
      last_batch: As above.

    Raises:
      TypeError: If one has the wrong type.
      ValueError: If one is out of its range.
    """
    checks.check_integer("batch_size", batch_size)
    checks.check_integer("epochs", epochs)
    checks.check_flag("shuffle", shuffle)
    checks.check_integer("seed", seed, at_least=0)
    checks.check_one_of("last_batch", last_batch, LAST_BATCHES)


def generator(seed: int, round_number: int, client_id: str) -> np.random.Generator:
    """Returns the random generator of a client in a round.

    Args:
      seed: The seed of all clients and rounds.
      round_number: The round.
      client_id: The client.
    """
    # Python's `hash` of a string changes from one process to the next.
    digest = hashlib.sha256(client_id.encode()).digest()[:16]
    words = np.frombuffer(digest, dtype="<u4").tolist()
    sequence = np.random.SeedSequence((seed, round_number, *words))
    return np.random.Generator(np.random.PCG64(sequence))


def epoch_of(
    examples: Examples,
    batch_size: int,
    shuffle: bool,
    last_batch: str,
    draw: np.random.Generator,
) -> Examples:
    """Returns the examples of an epoch, to be cut into batches in their order.

    Args:
      examples: A client's examples.
      batch_size: The number of examples in a batch.
      shuffle: Whether their order is drawn.
      last_batch: One of `LAST_BATCHES`.
      draw: The generator of the client's round; the order is drawn first, then what
        fills up the last batch.
    """
    count = num_rows(examples)
    missing = -count % batch_size
    if not shuffle and (last_batch == "short" or not missing):
        return examples
    rows = draw.permutation(count) if shuffle else np.arange(count)
    if missing and last_batch == "bootstrap":
        rows = np.concatenate([rows, draw.integers(count, size=missing)])
    elif missing and last_batch == "drop" and count > batch_size:
        rows = rows[: count - count % batch_size]
    return take(examples, rows)


def split(examples: Examples, batch_size: int) -> list[Examples]:
    """Returns examples in batches, the last of which may be short.

    Args:
      examples: The examples.
      batch_size: The number of examples in a batch.
    """
    return [
        take(examples, slice(start, start + batch_size))
        for start in range(0, num_rows(examples), batch_size)
    ]
