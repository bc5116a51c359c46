"""Reading of result files that somebody else may have written.

Nothing but regular files in the folder is opened, links are not followed, sizes are
limited, and what is read is held against a schema: a damaged or a crafted file is one
`ValueError` that names it.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import pathlib
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from tff_drift import files

if TYPE_CHECKING:
    import pandas as pd

_MOST_BYTES = 2**24
# Of all that is read in a folder and below.
_MOST_METRICS = 2**30
_MOST_COLUMNS = 10_000
_DEEPEST = 32
_MOST_FOLDERS = 100_000

# Beyond, tables and figures have no room for them.
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Value = bool | Integer | float | str | None
Settings = Annotated[
    dict[str, bool | Integer | float | str | list[Value] | None],
    msgspec.Meta(max_length=1000),
]


class RunSettings(msgspec.Struct):
    """The settings of a run that every reader needs."""

    task: str
    seed: Integer
    rounds: Integer
    clients_per_round: Integer


class RunEntry(RunSettings):
    """A run in the configuration of a comparison."""

    folder: str


class Circumstances(msgspec.Struct):
    """The circumstances of a run, on which its results do not depend."""

    plugin: list[str] | None = None


class Configuration(msgspec.Struct):
    """config.json: of a run or of a comparison."""

    format: str | None = None
    configuration: Settings | None = None
    runs: list[Settings] = []
    flags: Settings = {}
    circumstances: Circumstances | None = None


class Totals(msgspec.Struct):
    """Sums over a run, or over the runs of a comparison."""

    seconds: float
    seconds_evaluation: float


class Machine(msgspec.Struct):
    """The machine on which a run ran."""

    processor: str | None = None
    processors: Integer | None = None
    ram: float | None = None
    accelerators: list[str] = []
    system: str | None = None


class Summary(msgspec.Struct):
    """summary.json: of a run or of a comparison."""

    task: str | None = None
    rounds: Integer | None = None
    clients: Integer | None = None
    totals: Totals | None = None
    versions: dict[str, str] | None = None
    git_revision: str | None = None
    machine: Machine | None = None


class Sweep(msgspec.Struct):
    """sweep.json: the protocol of a search."""

    flags: Settings = {}


class FoundSettings(msgspec.Struct):
    """best.json: the settings that a search found."""

    format: str
    task: str
    algorithm: str
    flags: Settings


class Allowance:
    """The bytes that may still be read of a folder: small files may be many.

    Attributes:
      left: The bytes.
    """

    def __init__(self, most: int | None = None) -> None:
        """Begins with all of them; by default as many as metrics of runs may have."""
        self.left = _MOST_METRICS if most is None else most

    def take(self, path: pathlib.Path, nbytes: int) -> None:
        """Takes the bytes of a file that was read.

        Args:
          path: The file.
          nbytes: How many it holds.

        Raises:
          ValueError: If they are more than are left.
        """
        self.left -= nbytes
        if self.left < 0:
            raise ValueError(
                f"{str(path)!r} is too large, with the files beside it that were read "
                "before. Leave it out, or name fewer folders."
            )


def find(folder: pathlib.Path, names: Collection[str]) -> Iterator[pathlib.Path]:
    """Yields the files of some names in a folder and below, without following links.

    Args:
      folder: The folder.
      names: The names of the files.

    Raises:
      ValueError: If folders lie too deep in one another, or are too many.
    """
    start = len(folder.parts)
    for number, (place, folders, found) in enumerate(os.walk(folder)):
        path = pathlib.Path(place)
        if len(path.parts) - start > _DEEPEST or number > _MOST_FOLDERS:
            raise ValueError(
                f"{str(folder)!r} has more than {_DEEPEST} folders in one another, or "
                f"more than {_MOST_FOLDERS:,} in all. Name the folder of the results."
            )
        folders.sort()
        yield from (path / name for name in sorted(set(found) & set(names)))


def is_file(path: pathlib.Path) -> bool:
    """Returns whether there is a regular file, rather than a link or a device."""
    return files.is_file(path)


def read_bytes(
    path: pathlib.Path,
    most: int = _MOST_BYTES,
    inside: pathlib.Path | None = None,
    allowance: Allowance | None = None,
) -> bytes:
    """Returns what a regular file holds.

    Args:
      path: The file.
      most: The largest number of bytes to read.
      inside: The folder that it must lie in, wherever links lead; default: not checked.
      allowance: What may be read with it.

    Raises:
      FileNotFoundError: If there is no such file.
      OSError: If it cannot be read.
      ValueError: If it is not a regular file, too large, or elsewhere.
    """
    if inside is not None and not path.resolve().is_relative_to(inside.resolve()):
        raise ValueError(f"{str(path)!r} is not in {str(inside)!r}. Copy it there.")
    if allowance is not None:
        most = min(most, allowance.left)
    try:
        content = files.read_bytes(path, most, follow_links=False)
    except OSError as error:
        if error.errno == errno.EINVAL:
            what = "a link, not a file" if path.is_symlink() else "not a regular file"
            raise ValueError(f"{str(path)!r} is {what}. Leave it out.") from error
        if error.errno == errno.EFBIG:
            raise ValueError(
                f"{str(path)!r} is larger than {most:,} bytes"
                f"{', which are left of those of all files here' * bool(allowance)}. "
                "Leave it out."
            ) from error
        raise
    if allowance is not None:
        allowance.take(path, len(content))
    return content


def read_text(path: pathlib.Path, allowance: Allowance | None = None) -> str:
    """Returns the text of a file, see `read_bytes`, which raises what this does."""
    try:
        return read_bytes(path, allowance=allowance).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error


def read_json(
    path: pathlib.Path,
    schema: Any,
    inside: pathlib.Path | None = None,
    allowance: Allowance | None = None,
) -> dict[str, Any]:
    """Returns what a JSON file says, nothing if there is none.

    Args:
      path: The file.
      schema: The `msgspec.Struct` that it must fit; it may say more.
      inside: As for `read_bytes`.
      allowance: Likewise.

    Raises:
      ValueError: If it is damaged, or not as it should be.
    """
    try:
        content = msgspec.json.decode(
            read_bytes(path, inside=inside, allowance=allowance)
        )
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{str(path)!r} is damaged: it holds no JSON object.")
    check(path, content, schema)
    return content


def check(path: pathlib.Path, content: Any, schema: Any) -> None:
    """Raises a `ValueError` unless what a file says fits a schema.

    Args:
      path: The file.
      content: What it says, or a part of it.
      schema: A type that msgspec knows.
    """
    try:
        msgspec.convert(content, schema)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error


def read_metrics(
    path: pathlib.Path,
    names: Sequence[str] = (),
    allowance: Allowance | None = None,
) -> pd.DataFrame:
    """Returns the metrics of runs: numbers, in a row per round.

    Args:
      path: The file, which may be compressed.
      names: The columns of names, which must be there as `round` must.
      allowance: What may be read with it, decompressed.

    Raises:
      ValueError: If it is damaged: no table, texts among the numbers, or a run's
        rounds in another order.
    """
    # Here: it takes a while to import, and flags are read without it.
    import pandas as pd

    try:
        allowance = allowance or Allowance()
        content = read_bytes(path, _MOST_METRICS, allowance=allowance)
        if path.suffix == ".gz":
            content = _decompressed(content, allowance.left)
            allowance.take(path, len(content))
        if content.split(b"\n", 1)[0].count(b",") >= _MOST_COLUMNS:
            raise ValueError(f"there are more than {_MOST_COLUMNS:,} columns")
        frame = pd.read_csv(
            io.BytesIO(content), dtype=dict.fromkeys(names, str), low_memory=False
        )
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("its rows have more fields than its header")
        for name in (*names, *(["seed"] if names else []), "round"):
            if name not in frame:
                raise ValueError(f"there is no column {name!r}")
        for name in frame:
            if name not in names and frame[name].dtype.kind not in "biuf":
                raise ValueError(f"the column {name!r} holds what is not a number")
        if frame.empty or frame["round"].dtype.kind not in "iu":
            raise ValueError("there are no rounds in it, counted from 0")
        rounds = frame["round"]
        if not names and not (rounds.is_monotonic_increasing and rounds.is_unique):
            raise ValueError("its rounds are not in order, each once")
    except (ValueError, EOFError, OSError, zlib.error) as error:
        if str(error).startswith(repr(str(path))):
            raise
        raise ValueError(f"{str(path)!r} is damaged: {error}.") from error
    return frame


def _decompressed(content: bytes, most: int) -> bytes:
    """Returns compressed bytes as they were, unless they were too many."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        whole = file.read(most + 1)
    if len(whole) > most:
        raise ValueError(f"it holds more than {most:,} bytes")
    return whole
