"""A user's own data as a task: `--task=own_data --data=FOLDER|FILE`.

What `tasks.from_folder`, `from_frame` and `from_sqlite` make of a folder, a table or a
file, with the options of a task, so that the command line trains on it. The net is
their softmax regression; a plugin registers a task with another.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from tasks import definitions
from tasks import options as shared
from tasks.own import user_data, user_files
from tasks.registry import TaskDefinition

_TABLES = (".csv", ".csv.gz", ".parquet")
_SQLITE = (".sqlite", ".db")


def build(
    cache_dir: str | None, seed: int, options: Mapping[str, Any]
) -> tuple[definitions.Clients, definitions.ModelFn]:
    """Builds the task.

    Args:
      cache_dir: Not used.
      seed: The seed of everything that is drawn.
      options: The value of every option of the task.

    Returns:
      The clients and the model function.
    """
    del cache_dir
    if options["data"] is None:
        raise ValueError(
            "data must be a folder with a file per client, a CSV or Parquet table or "
            "a SQLite file of TFF's format, found None. Give --data=FOLDER or "
            "--data=FILE."
        )
    path = pathlib.Path(options["data"]).expanduser()
    shared: dict[str, Any] = {
        name: options[name]
        for name in ("label", "num_classes", "batch_size", "epochs", "max_examples")
    }
    shared["seed"] = seed
    if path.is_dir():
        task = user_data.from_folder(
            path, test_fraction=options["test_fraction"], **shared
        )
    elif path.name.endswith(_TABLES):
        if not path.is_file():
            raise FileNotFoundError(
                f"data: there is no file {str(path)!r}. Give another by --data=FILE."
            )
        task = user_data.from_frame(
            user_files.read_table(
                path,
                f"data: {path}",
                label=options["label"],
                texts=[options["client_column"]],
            ),
            client_id=options["client_column"],
            test_fraction=options["test_fraction"],
            **shared,
        )
    elif path.name.endswith(_SQLITE):
        if options["num_classes"] is None:
            raise ValueError(
                "num_classes must be given for a SQLite file, found None. "
                "Give --num_classes=N."
            )
        task = user_data.from_sqlite(path, **shared)
    else:
        raise ValueError(
            f"data must be a folder, or a file that ends in "
            f"{', '.join((*_TABLES, *_SQLITE))}, found {str(path)!r}. "
            "Give --data=FOLDER or --data=FILE."
        )
    train = task.train.replace(last_batch=options["last_batch"])
    return definitions.Clients(train, task.test), task.model_fn


TASK = TaskDefinition(
    "own_data",
    "Your own data: a folder with a file per client, a CSV or Parquet table, or a "
    "SQLite file; softmax regression.",
    (
        *shared.OWN_DATA,
        *shared.batching(20),
    ),
    build,
    files=("a folder or file of yours, by --data",),
)
