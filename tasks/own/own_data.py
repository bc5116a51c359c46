"""A user's own data as a task: `--task=own_data --data=FOLDER|FILE`.

What `tasks.from_folder`, `from_frame`, `from_json`, `from_image_folder` and
`from_sqlite` make of a folder or a file, with the options of a task, so that the
command line trains on it. The net is their softmax regression; a plugin registers a
task with another. Of numbers there is the task `own_numbers`.
"""

from __future__ import annotations

import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tasks import definitions
from tasks import options as shared
from tasks.own import (
    targets,
    user_data,
    user_files,
    user_folders,
    user_images,
    user_json,
    user_tables,
)
from tasks.registry import TaskDefinition
from tasks.sources import example_checks
from tff_drift import checks

_TABLE = "a table of all clients"
_FOLDER = "a folder with a file per client"
_JSON = "JSON"
_IMAGES = "a folder of images"
_SQLITE = "a SQLite file"
_JSON_ENDING = ".json"
_ENDINGS = {
    _TABLE: (".csv", ".csv.gz", ".parquet"),
    _JSON: (_JSON_ENDING,),
    _SQLITE: (".sqlite", ".db"),
}
# The data that an option is for; others are for all. A file of SQLite has its own
# examples to test on, and images the names of their classes.
_KINDS_OF = {
    "client_column": (_TABLE,),
    "label": (_TABLE, _FOLDER, _SQLITE),
    "features": (_TABLE, _FOLDER),
    "num_classes": (_TABLE, _FOLDER, _JSON, _SQLITE),
    "test_fraction": (_TABLE, _FOLDER, _JSON, _IMAGES),
    "time_column": (_TABLE,),
    "window": (_TABLE,),
}


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
    task = load(seed, options, None)
    if task.options["target"] != targets.CLASS:
        raise example_checks.DataError(
            f"{options['data']}: the labels have fractions, and classes have none. "
            "Give --task=own_numbers to predict numbers."
        )
    return clients(task, options), task.model_fn


def load(seed: int, options: Mapping[str, Any], target: str | None) -> definitions.Task:
    """Returns the task of a folder or a file.

    Args:
      seed: The seed of everything that is drawn.
      options: The value of every option of the task.
      target: What is predicted, as for `tasks.from_frame`.
    """
    if options["data"] is None:
        raise ValueError(
            "data must be a folder with a file per client, a CSV or Parquet table, "
            "JSON in LEAF's layout, a folder of images, or a SQLite file of TFF's "
            "format, found None. Give --data=FOLDER or --data=FILE."
        )
    path = pathlib.Path(options["data"]).expanduser()
    names = ("num_classes", "batch_size", "epochs", "max_examples")
    class_weight = _read_class_weight(options.get("class_weight"))
    training: dict[str, Any] = {
        "seed": seed,
        "target": target,
        "class_weight": class_weight,
        **{name: options[name] for name in names if name in options},
    }
    split = {"test_fraction": options["test_fraction"]}
    kind = _kind(path, target)
    _check_options(kind, path, options)
    if kind == _JSON:
        return user_json.from_json(path, **split, **training)
    if kind == _IMAGES:
        del training["target"], training["num_classes"]
        return user_images.from_image_folder(path, **split, **training)
    if kind in (_FOLDER, _TABLE):
        features = _read_features(options["features"])
        of_tables = {"features": features, **split, **training}
        if kind == _TABLE:
            return _from_table(path, options, of_tables)
        return user_data.from_folder(path, label=options["label"], **of_tables)
    if target != targets.NUMBER and options["num_classes"] is None:
        raise ValueError(
            "num_classes must be given for a SQLite file, found None. "
            "Give --num_classes=N."
        )
    return user_data.from_sqlite(path, label=options["label"], **training)


def _kind(path: pathlib.Path, target: str | None) -> str:
    """Returns what kind of data a folder or a file is, in words.

    Args:
      path: The folder or the file.
      target: What is predicted. Images are no data for numbers.

    Raises:
      DataError: If a client has two files.
      FileNotFoundError: If there is no such folder or file.
      ValueError: If the file is of no kind that is read.
    """
    if path.is_dir():
        # These first: pictures and notes may lie beside clients' files.
        if any(map(user_folders.files_in, _places(path))):
            return _FOLDER
        if _holds(path, f"*{_JSON_ENDING}"):
            return _JSON
        is_images = target != targets.NUMBER and _holds(path, "*/*/")
        return _IMAGES if is_images else _FOLDER
    for kind, endings in _ENDINGS.items():
        if path.name.endswith(endings):
            return kind
    if not path.exists():
        raise FileNotFoundError(
            f"data: there is no file or folder {checks.shown(str(path))}. Give another "
            "by --data=FOLDER or --data=FILE."
        )
    known = ", ".join(itertools.chain(*_ENDINGS.values()))
    raise ValueError(
        f"data must be a folder, or a file that ends in {known}, found "
        f"{checks.shown(str(path))}. Give --data=FOLDER or --data=FILE."
    )


def _check_options(kind: str, path: pathlib.Path, options: Mapping[str, Any]) -> None:
    """Raises if an option is given that has no meaning for a kind of data."""
    for option in shared.OWN_DATA:
        name, kinds = option.name, _KINDS_OF.get(option.name, (kind,))
        if kind not in kinds and options.get(name, option.default) != option.default:
            raise ValueError(
                f"{name} is for {' or '.join(kinds)}, but data is {kind}, "
                f"{checks.shown(str(path))}. Leave --{name} out."
            )


def _read_features(text: str | None) -> list[str] | None:
    """Returns the columns that are named as the first line of a CSV table does."""
    return None if text is None else user_files.fields(text)


def _read_class_weight(text: str | None) -> dict[str, float] | None:
    """Returns the weights of classes that are written as `sick:20,well:1`."""
    if text is None:
        return None
    try:
        pairs = [pair.rsplit(":", 1) for pair in text.split(",")]
        weights = {name.strip(): float(weight) for name, weight in pairs}
        if len(weights) < len(pairs):
            raise ValueError("a class has two weights")
    except ValueError as error:
        raise ValueError(
            "class_weight must be classes, each once, with their weights, such as "
            f"--class_weight=0:1,1:20, found {checks.shown(text)}."
        ) from error
    return weights


def _holds(path: pathlib.Path, pattern: str) -> bool:
    """Whether a folder has files or folders of a pattern, none of them hidden."""
    return any(
        not any(name.startswith(".") for name in found.relative_to(folder).parts)
        for folder in _places(path)
        for found in folder.glob(pattern)
    )


def _places(path: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Returns where a folder has its clients to train on."""
    return path, path / "train"


def _from_table(
    path: pathlib.Path, options: Mapping[str, Any], others: Mapping[str, Any]
) -> definitions.Task:
    if not path.is_file():
        raise FileNotFoundError(
            f"data: there is no file {checks.shown(str(path))}. Give another by "
            "--data=FILE."
        )
    where, time = f"data: {path}", options["time_column"]
    used = _named_columns(options, others["features"])
    is_number = others["target"] == targets.NUMBER
    table = user_files.read_table(
        path,
        where,
        None if others["features"] is None else list(used),
        written=None if is_number else user_files.WrittenLabels(options["label"]),
        texts=[options["client_column"]],
    )
    for name, flag in used.items():
        if name not in table:
            raise example_checks.DataError(
                f"{where} has no column {checks.shown(name)}; its columns are "
                f"{user_tables.listed(list(table.columns))}. Give one by {flag}."
            )
    if time in table:
        table[time] = user_tables.as_times(table[time], where)
    try:
        return user_data.from_frame(
            table,
            client_id=options["client_column"],
            label=options["label"],
            time=time,
            window=options["window"],
            **others,
        )
    except example_checks.DataError as error:
        # Of a file, users do not know the name of an argument.
        text = re.sub(
            r"^frame\b|(?<= of )frame(?=: client )", lambda _: where, str(error)
        )
        raise example_checks.DataError(text) from error


def _named_columns(
    options: Mapping[str, Any], features: Sequence[str] | None
) -> dict[str, str]:
    """Returns the flags that name columns, by these; raises if one is named twice."""
    single = ("client_column", "label", "time_column")
    named = [(f"--{option}", options[option]) for option in single]
    named += [("--features", name) for name in features or ()]
    flags: dict[str, str] = {}
    for flag, name in named:
        if name in flags:
            raise ValueError(
                f"{flag} names the column {checks.shown(name)}, which {flags[name]} "
                "names already. Use a column for one purpose, once."
            )
        if name is not None:
            flags[name] = flag
    return flags


def clients(task: definitions.Task, options: Mapping[str, Any]) -> definitions.Clients:
    """Returns the clients of a task, with the batches that an option asks for.

    Args:
      task: The task.
      options: The value of every option of the task.
    """
    train = task.train.replace(last_batch=options["last_batch"])
    return definitions.Clients(train, task.test)


TASK = TaskDefinition(
    "own_data",
    "Your own data: a folder with a file per client, a CSV or Parquet table, JSON in "
    "LEAF's layout, a folder of images, or a SQLite file; softmax regression.",
    (
        *shared.OWN_DATA,
        *shared.batching(20),
    ),
    build,
    files=("a folder or file of yours, by --data",),
)
