"""Train, test and validation clients of TFF's federated data sets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tasks import definitions, partitioners, seeds
from tasks.sources import sqlite_files
from tff_drift.simulation import ClientDatasets
from tff_drift.simulation.data.examples import Transform

Examples = Any


@dataclasses.dataclass(frozen=True)
class OfficialData:
    """A federated data set that TFF distributes as a SQLite file.

    Attributes:
      file_name: The name of the unpacked file.
      train_split: The name of the split to train on.
      test_split: The name of the split to test on.
      element_spec: The name, type and shape of every feature of an example that is
        read.
      load_data: TFF's loader: given a folder, the train and test clients. It
        downloads the file into the folder if it is absent.
      get_synthetic: TFF's stand-in, clients of the same format.
      num_classes: The number of classes of those features that are labels.
      validation_split: The name of the split to tune on; `None` if there is none,
        and a share of the training clients serves.
    """

    file_name: str
    train_split: str
    test_split: str
    element_spec: Mapping[str, tf.TensorSpec]
    load_data: Callable[[str], Any]
    get_synthetic: Callable[[], tff.simulation.datasets.ClientData]
    num_classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    validation_split: str | None = None


def load_clients(
    data: OfficialData,
    preprocess: Callable[[Examples], Examples],
    *,
    task_name: str,
    cache_dir: str | None,
    seed: int,
    options: Mapping[str, Any],
    transform: Transform | None = None,
    drawn: str = "",
) -> definitions.Clients:
    """Returns the clients of a data set; few are read yet.

    Args:
      data: The data set.
      preprocess: Turns the stacked features of one client into its examples.
      task_name: The task that needs the data, for messages.
      cache_dir: The folder that holds the file; `None` is TFF's own, `~/.tff`.
      seed: The seed of the shuffles and of the clients held out.
      options: The values of the task's options, see `tasks.describe`.
        `max_examples` cuts training clients alone.
      transform: What to do with examples at each use, see `ClientDatasets`.
      drawn: What the clients are, if the option `num_clients` has some of them drawn.
        Of the stand-in, which has few, none are.

    Returns:
      The clients of each part, in the order of their ids. The stand-in is both
      train and test.

    Raises:
      FileNotFoundError: If the file is absent and is not to be downloaded.
      OSError: If the download fails.
      ValueError: If the file is damaged or another data set's.
    """
    batching = {**definitions.batching(options), "seed": seed, "transform": transform}
    if options["synthetic"]:
        train = ClientDatasets.from_client_data(
            data.get_synthetic(), preprocess, **batching
        )
        return definitions.Clients(train, train.replace(max_examples=None))
    path = sqlite_files.find_file(
        cache_dir,
        data.file_name,
        task_name=task_name,
        download=options["download"],
        load_data=data.load_data,
    )
    splits = [data.train_split, data.test_split]
    if data.validation_split:
        splits.append(data.validation_split)
    reader = sqlite_files.SqliteExamples(
        path, splits, data.element_spec, data.num_classes
    )

    def clients(split_name: str, **batching: Any) -> ClientDatasets:
        return ClientDatasets(
            reader.client_ids(split_name),
            lambda client_id: preprocess(reader.read(split_name, client_id)),
            **batching,
        )

    train = clients(data.train_split, **batching)
    batching["max_examples"] = None
    test = clients(data.test_split, **batching)
    if data.validation_split:
        validation = clients(data.validation_split, **batching)
        return definitions.Clients(train, test, validation)
    fraction = options.get("validation_fraction", 0.0)
    train, held_out = hold_out(train, fraction, seed)
    found = definitions.Clients(train, test, held_out)
    if drawn and options["num_clients"] is not None:
        found = draw_clients(found, options["num_clients"], seed, drawn)
    return found


def hold_out(
    train: ClientDatasets, fraction: float, seed: int
) -> tuple[ClientDatasets, ClientDatasets | None]:
    """Sets a share of the training clients aside for tuning.

    Args:
      train: The training clients.
      fraction: The share to hold out, at least 0 and below 1.
      seed: The seed of the draw.

    Returns:
      The clients left to train on, and those held out with all their examples;
      `None` if the share is 0.

    Raises:
      ValueError: If no client would be left to train on.
    """
    if fraction == 0:
        return train, None
    num_held_out = max(1, round(fraction * len(train)))
    kept, held_out = partitioners.hold_out_clients(train.client_ids, num_held_out, seed)
    return train.subset(kept), train.subset(held_out).replace(max_examples=None)


def draw_clients(
    clients: definitions.Clients, num_clients: int, seed: int, purpose: str
) -> definitions.Clients:
    """Returns some of the clients that both train and test.

    Args:
      clients: The clients.
      num_clients: The number of clients to draw, without replacement.
      seed: The seed of the draw.
      purpose: What the clients are, for the draw and for messages.

    Returns:
      The same clients to train and to test, in the order of their ids; those held out
      stay.

    Raises:
      ValueError: If there are fewer clients.
    """
    with_test = set(clients.test.client_ids)
    both = [each for each in clients.train.client_ids if each in with_test]
    if num_clients > len(both):
        raise ValueError(
            f"num_clients is {num_clients}, but the data has only {len(both)} "
            f"{purpose}. Ask for fewer, or get the whole data set."
        )
    draw = seeds.generator(seed, purpose)
    drawn = sorted(draw.choice(both, num_clients, replace=False).tolist())
    return definitions.Clients(
        clients.train.subset(drawn), clients.test.subset(drawn), clients.validation
    )
