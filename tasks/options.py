"""The options that tasks share; without TensorFlow."""

from __future__ import annotations

from tff_drift.value_types import Option


def batching(batch_size: int, max_examples: int | None = None) -> tuple[Option, ...]:
    """Returns the options for how a client's examples become batches.

    Args:
      batch_size: The examples in a batch, by default.
      max_examples: The examples kept of a training client, by default.
    """
    size = Option("batch_size", "count", "Examples in a training batch.", batch_size)
    return (size, *batching_but_size(max_examples))


def batching_but_size(max_examples: int | None = None) -> tuple[Option, ...]:
    """Returns the options of `batching` without the first, the size of batches."""
    kept = Option(
        "max_examples",
        "count",
        "Keep only the first examples of a training client; none keeps all.",
        max_examples,
        may_be_none=True,
    )
    return (_EPOCHS, kept, _LAST_BATCH)


def num_clients(default: int, text: str = "Clients to split over.") -> Option:
    """Returns the option for the number of clients."""
    return Option("num_clients", "count", text, default)


_EPOCHS = Option("epochs", "batches", "Passes over a client's data per round.", 1)
_LAST_BATCH = Option(
    "last_batch",
    "choice",
    "What happens to an epoch's last, short batch.",
    "short",
    choices=("short", "drop", "bootstrap"),
)

ALPHA = Option(
    "alpha",
    "positive",
    "Dirichlet concentration; small: few classes; none: IID.",
    0.3,
    may_be_none=True,
)
# Of one data set that is split over clients.
SPLIT = (
    num_clients(100),
    ALPHA,
    Option(
        "size_sigma",
        "non_negative",
        "Standard deviation of the logarithm of clients' sizes; 0: all alike.",
        0.0,
    ),
    Option(
        "similarity",
        "probability",
        "Share of a client's examples at random, the rest by label; none: by alpha.",
        None,
        may_be_none=True,
    ),
)
SPLIT_VALIDATION = Option(
    "validation_fraction",
    "rate",
    "Clients held out for tuning, as a share of num_clients, besides these.",
    0.1,
)


def _files(download: str, stand_in: str) -> tuple[Option, ...]:
    without_data = f"Run on {stand_in}, for a first try without data."
    return (
        Option("download", "flag", f"{download} if it is absent.", False),
        Option("synthetic", "flag", without_data, False),
    )


IMAGE_FILES = _files(
    "Fetch the data through TensorFlow Datasets", "a small synthetic stand-in"
)
# Of the federated data sets that TFF distributes.
OFFICIAL_FILES = _files(
    "Download TFF's official file into cache_dir", "TFF's tiny built-in stand-in"
)
OFFICIAL = (
    Option(
        "validation_fraction",
        "rate",
        "Share of the training clients that is held out for tuning.",
        0.0,
    ),
    *OFFICIAL_FILES,
)
STACKOVERFLOW = (
    Option("vocabulary_size", "count", "Words known, the most frequent ones.", 10_000),
    Option(
        "test_clients",
        "count",
        "Test clients, and clients to tune on, drawn by the seed; none takes all.",
        100,
        may_be_none=True,
    ),
    *OFFICIAL_FILES,
)
LOSS = Option(
    "loss",
    "choice",
    "A batch's loss: the sum over its examples, as tuned, or their mean.",
    "sum",
    choices=("sum", "mean"),
)
OWN_NUMBERS = (
    Option("data", "path", "The folder or the file.", None, may_be_none=True),
    Option("client_column", "text", "A table's column of clients.", "client"),
    Option("label", "text", "The column or feature that is predicted.", "label"),
    Option(
        "features",
        "text",
        "A table's columns to predict from, separated by commas; none: all others.",
        None,
        may_be_none=True,
    ),
    Option(
        "test_fraction",
        "fraction",
        "Share of a client's examples to test on; a SQLite file has its own.",
        0.2,
    ),
    Option(
        "time_column",
        "text",
        "A table's column of times: a client's last examples are held out.",
        None,
        may_be_none=True,
    ),
    Option(
        "window",
        "count",
        "Predict from this many rows at a time, in the order of time_column.",
        None,
        may_be_none=True,
    ),
)
OWN_DATA = (
    *OWN_NUMBERS[:4],
    Option(
        "num_classes",
        "count",
        "Classes numbered from 0; none: those there are.",
        None,
        may_be_none=True,
    ),
    Option(
        "class_weight",
        "text",
        "Weights of classes in training, such as 0:1,1:20; others weigh 1.",
        None,
        may_be_none=True,
    ),
    *OWN_NUMBERS[4:],
)
