"""What a task lets one choose; without TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_drift import kinds


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a task.

    Attributes:
      name: The keyword of `tasks.load`.
      kind: What values it takes: one of `tff_drift.kinds.KINDS`, or "choice".
      default: The value if it is not given.
      help: One line on what it does.
      may_be_none: Whether `None` is a value too.
      choices: The values of the kind "choice".
    """

    name: str
    kind: str
    default: Any
    help: str
    may_be_none: bool = False
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> None:
        """Raises unless `value` is a value of this option.

        Args:
          value: The value to check.

        Raises:
          TypeError: If it has the wrong type.
          ValueError: If it is out of range.
        """
        kinds.check(self.name, value, self.kind, self.choices, self.may_be_none)


def batch_size(default: int) -> Option:
    """Returns the option for the number of examples in a training batch."""
    return Option("batch_size", "count", default, "Examples in a training batch.")


def max_examples(default: int | None) -> Option:
    """Returns the option for the number of examples kept of a training client."""
    return Option(
        "max_examples",
        "count",
        default,
        "Keep only the first examples of a training client; none keeps all.",
        may_be_none=True,
    )


def num_clients(default: int, text: str = "Clients to split over.") -> Option:
    """Returns the option for the number of clients."""
    return Option("num_clients", "count", default, text)


EPOCHS = Option("epochs", "count", 1, "Passes over a client's data per round.")
BATCHING = (EPOCHS, max_examples(None))

ALPHA = Option(
    "alpha",
    "positive",
    0.3,
    "Dirichlet concentration; small: few classes; none: IID.",
    may_be_none=True,
)
# Of one data set that is split over clients.
SPLIT = (
    num_clients(100),
    ALPHA,
    Option(
        "size_sigma",
        "non_negative",
        0.0,
        "Standard deviation of the logarithm of clients' sizes; 0: all alike.",
    ),
    Option(
        "similarity",
        "probability",
        None,
        "Share of a client's examples at random, the rest by label; none: by alpha.",
        may_be_none=True,
    ),
    Option(
        "last_batch",
        "choice",
        "short",
        "What becomes of an epoch's last, short batch.",
        choices=("short", "drop", "bootstrap"),
    ),
)
SPLIT_VALIDATION = Option(
    "validation_fraction",
    "rate",
    0.1,
    "Clients held out for tuning, as a share of num_clients, besides these.",
)
IMAGE_FILES = (
    Option(
        "download",
        "flag",
        False,
        "Fetch the data through TensorFlow Datasets if it is absent.",
    ),
    Option(
        "synthetic",
        "flag",
        False,
        "Run on a small synthetic stand-in, for a first try without data.",
    ),
)
# Of the federated data sets that TFF distributes.
OFFICIAL_FILES = (
    Option(
        "download",
        "flag",
        False,
        "Download TFF's official file into cache_dir if it is absent.",
    ),
    Option(
        "synthetic",
        "flag",
        False,
        "Run on TFF's tiny built-in stand-in, for a first try without data.",
    ),
)
OFFICIAL_VALIDATION = Option(
    "validation_fraction",
    "rate",
    0.0,
    "Share of the training clients that is held out for tuning.",
)
STACKOVERFLOW = (
    Option("vocabulary_size", "count", 10_000, "Words known, the most frequent ones."),
    Option(
        "test_clients",
        "count",
        100,
        "Test clients, and clients to tune on, drawn by the seed; none takes all.",
        may_be_none=True,
    ),
    *OFFICIAL_FILES,
)
