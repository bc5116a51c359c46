"""The examples of each batch of an epoch, by seed, round and client."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from tff_drift import checks
from tff_drift.simulation.data.example_store import ExampleStore
from tff_drift.simulation.data.examples import Examples, num_rows, take

# What becomes of an epoch's last batch if it is short, see `ClientDatasets`.
LAST_BATCHES = ("short", "drop", "bootstrap")


@dataclasses.dataclass(frozen=True)
class Batching:
    """The options by which a client's examples become the batches of a round.

    Attributes:
      batch_size: The number of examples in a batch.
      epochs: The passes over a client's examples.
      shuffle: Whether the order is drawn, in each epoch anew.
      seed: The seed of what is drawn.
      last_batch: One of `LAST_BATCHES`.
      local_steps: The number of batches, in place of `epochs`; `None` for none.

    Raises:
      TypeError: If one has the wrong type.
      ValueError: If one is out of its range, or both `epochs` and `local_steps` say
        how long a client trains.
    """

    batch_size: int
    epochs: int = 1
    shuffle: bool = True
    seed: int = 0
    last_batch: str = "short"
    local_steps: int | None = None

    def __post_init__(self) -> None:
        checks.check_integer("batch_size", self.batch_size)
        checks.check_num_batches("epochs", self.epochs)
        checks.check_flag("shuffle", self.shuffle)
        checks.check_integer("seed", self.seed, at_least=0)
        checks.check_one_of("last_batch", self.last_batch, LAST_BATCHES)
        if self.local_steps is not None:
            checks.check_num_batches("local_steps", self.local_steps)
            if self.epochs != 1:
                raise ValueError(
                    f"epochs must be 1 with local_steps, found {self.epochs}: "
                    "local_steps passes over the examples as often as it takes."
                )
        for name in ("batch_size", "epochs", "seed", "local_steps"):
            value = getattr(self, name)
            if value is not None:
                # Of NumPy's integers, which JSON does not know.
                object.__setattr__(self, name, int(value))

    def num_examples(self, count: int) -> int:
        """Returns how many examples a client trains on in a round.

        Args:
          count: The number of examples that it has.

        Raises:
          ValueError: If it would train on more than ten million batches.
        """
        whole = self._rows_of_epoch(count)
        batches = -(-whole // self.batch_size)
        if self.local_steps is not None:
            epochs, steps = divmod(self.local_steps, batches)
            return epochs * whole + steps * self.batch_size
        if self.epochs * batches > checks.MOST_BATCHES:
            raise ValueError(
                f"epochs is {self.epochs:,}: a client would train on more than "
                f"{checks.MOST_BATCHES:,} batches in a round. Take fewer."
            )
        return self.epochs * whole

    def batch_sizes(self, count: int) -> list[int]:
        """Returns the sizes of the batches that a client trains on in a round.

        Args:
          count: The number of examples that it has.
        """
        missing, sizes = self.num_examples(count), []
        while missing:
            epoch = min(missing, self._rows_of_epoch(count))
            whole, short = divmod(epoch, self.batch_size)
            sizes += [self.batch_size] * whole + [short] * bool(short)
            missing -= whole * self.batch_size + short
        return sizes

    def _rows_of_epoch(self, count: int) -> int:
        """Returns the examples of an epoch, after what becomes of its last batch."""
        short = count % self.batch_size
        if short and self.last_batch == "bootstrap":
            return count - short + self.batch_size
        if short < count and self.last_batch == "drop":
            return count - short
        return count

    def of_round(
        self, store: ExampleStore, client_id: str, round_number: int
    ) -> Iterator[tuple[Examples, np.ndarray | None]]:
        """Yields, for each epoch of a client's round, what its batches are cut from.

        Args:
          store: The examples.
          client_id: The client.
          round_number: The round, from 0.

        Yields:
          Examples, and the numbers of those that the batches are of, in their order;
          None for all as they are.
        """
        examples = store.examples(client_id)
        draw = generator(self.seed, round_number, client_id)
        count = num_rows(examples)
        missing = self.num_examples(count)
        while missing:
            # The order is drawn first, then what fills up the last batch.
            rows = self._rows(count, draw)
            length = count if rows is None else len(rows)
            if length > missing:
                rows = np.arange(missing) if rows is None else rows[:missing]
            missing -= min(length, missing)
            if store.transform is None:
                yield examples, rows
            else:
                yield store.transformed(client_id, take(examples, rows), draw), None

    def _rows(self, count: int, draw: np.random.Generator) -> np.ndarray | None:
        """Returns which examples of an epoch are cut into batches; None for all."""
        missing = -count % self.batch_size
        if not self.shuffle and (self.last_batch == "short" or not missing):
            return None
        rows = draw.permutation(count) if self.shuffle else np.arange(count)
        if missing and self.last_batch == "bootstrap":
            rows = np.concatenate([rows, draw.integers(count, size=missing)])
        return rows[: self._rows_of_epoch(count)]


def generator(seed: int, round_number: int, client_id: str) -> np.random.Generator:
    """Returns the random generator of a client in a round.

    Args:
      seed: The seed of all clients and rounds.
      round_number: The round.
      client_id: The client.
    """
    # Python's `hash` of a string changes from one process to the next.
    digest = hashlib.sha256(client_id.encode()).digest()[:16]
    # Of integers `SeedSequence` makes these words too, but takes twice as long.
    words = np.frombuffer(_words(seed) + _words(round_number) + digest, "<u4")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


def _words(number: int) -> bytes:
    """Returns the 32-bit words of an integer, the lowest first, and at least one."""
    number = int(number)
    return number.to_bytes(4 * max(1, -(-number.bit_length() // 32)), "little")


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


def to_dataset(epochs: Iterable[Examples], batch_size: int) -> tf.data.Dataset:
    """Returns the batches of epochs, none of which crosses the border of two.

    Args:
      epochs: The examples of each, at least one epoch.
      batch_size: The number of examples in a batch.
    """
    # Slices of arrays that are shuffled already, not `Dataset.shuffle` and `map`:
    # these would trace functions at every call and leave them behind.
    parts = [
        # A batch larger than all examples may be too large for TensorFlow.
        tf.data.Dataset.from_tensor_slices(epoch).batch(
            min(batch_size, num_rows(epoch))
        )
        for epoch in epochs
    ]
    # A tree of pairs: TensorFlow's stack overflows in a chain of a few thousand.
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        last = parts[-1:] if len(parts) % 2 else []
        parts = [first.concatenate(second) for first, second in pairs] + last
    return parts[0]
