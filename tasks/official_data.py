"""Train and test clients of TFF's federated data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions, sqlite_files
from tff_drift.simulation import ClientDatasets

Examples = Any

DATA_OPTIONS = (
    definitions.Option(
        "download",
        "flag",
        False,
        "Download TFF's official file into cache_dir if it is absent.",
    ),
    definitions.Option(
        "synthetic",
        "flag",
        False,
        "Run on TFF's tiny built-in stand-in, for a first try without data.",
    ),
)


@dataclasses.dataclass(frozen=True)
class OfficialData:
    """A federated data set that TFF distributes as a SQLite file.

    Attributes:
      file_name: The name of the unpacked file.
      train_split: The name of the split to train on.
      test_split: The name of the split to test on.
      element_spec: The name, type and shape of every feature of an example.
      load_data: TFF's loader: given a folder, the train and test clients. It
        downloads the file into the folder if it is absent.
      get_synthetic: TFF's stand-in, clients of the same format.
    """

    file_name: str
    train_split: str
    test_split: str
    element_spec: Mapping[str, tf.TensorSpec]
    load_data: Callable[[str], Any]
    get_synthetic: Callable[[], tff.simulation.datasets.ClientData]


def load_clients(
    data: OfficialData,
    preprocess: Callable[[Examples], Examples],
    *,
    task_name: str,
    cache_dir: str | None,
    seed: int,
    options: Mapping[str, Any],
) -> tuple[ClientDatasets, ClientDatasets]:
    """Returns the train and test clients of a data set; few are read yet.

    Args:
      data: The data set.
      preprocess: Turns the stacked features of one client into its examples.
      task_name: The task that needs the data, for messages.
      cache_dir: The folder that holds the file; `None` is TFF's own, `~/.tff`.
      seed: The seed of the shuffles.
      options: The values of `DATA_OPTIONS` and of the options of
        `ClientDatasets`. `max_examples` cuts training clients alone.

    Returns:
      The train and the test clients, in the order of their ids. The stand-in is
      both.

    Raises:
      FileNotFoundError: If the file is absent and is not to be downloaded.
      OSError: If the download fails.
      ValueError: If the file is damaged or another data set's.
    """
    batching = {**definitions.batching(options), "seed": seed}
    if options["synthetic"]:
        train = ClientDatasets.from_client_data(
            data.get_synthetic(), preprocess, **batching
        )
        return train, train.replace(max_examples=None)
    path = sqlite_files.find_file(
        cache_dir,
        data.file_name,
        task_name=task_name,
        download=options["download"],
        load_data=data.load_data,
    )
    reader = sqlite_files.SqliteExamples(
        path, (data.train_split, data.test_split), data.element_spec
    )

    def clients(split_name: str, **batching: Any) -> ClientDatasets:
        return ClientDatasets(
            reader.client_ids(split_name),
            lambda client_id: preprocess(reader.read(split_name, client_id)),
            **batching,
        )

    return (
        clients(data.train_split, **batching),
        clients(data.test_split, **{**batching, "max_examples": None}),
    )
