"""Clients to train and to test on: found in a user's data, held out, cut into windows.

Tables, folders, JSON and images all become `Found`; from there on they are alike.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tasks import seeds
from tasks.own import class_numbers, targets
from tasks.sources import example_checks
from tff_drift import checks
from tff_drift.simulation.data import examples_digest

Examples = tuple[np.ndarray, np.ndarray]


class Part(NamedTuple):
    """Clients, and how to read one."""

    client_ids: Iterable[str]
    load: Callable[[str], Examples]


@dataclasses.dataclass
class Found:
    """Clients as they were found, whose labels are not encoded yet.

    Attributes:
      load: Returns a client's features and its labels as they are.
      field: Returns where a client's labels stand, for messages: file, client, field.
      labels: Each client's distinct labels.
      sizes: Each client's number of examples.
      sha256: A hash of the clients and of all their examples.
      cuts: The numbers of first examples after which each client's time changes, if
        examples are in the order of time.
    """

    load: Callable[[str], Examples]
    field: Callable[[str], str]
    labels: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    sha256: str = ""
    cuts: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def add(self, owner: str, examples: Examples) -> None:
        """Adds a client, given its features and its labels.

        Raises:
          DataError: If labels cannot be compared.
        """
        _, labels = examples
        self.labels[owner] = class_numbers.distinct(labels, self.field(owner))
        self.sizes[owner] = len(labels)
        self.sha256 = examples_digest.chained(self.sha256, owner, examples)

    @classmethod
    def in_ram(
        cls, clients: Mapping[str, Examples], field: Callable[[str], str]
    ) -> Found:
        """Returns clients whose examples are in RAM."""
        found = cls(clients.__getitem__, field)
        for owner, examples in clients.items():
            found.add(owner, examples)
        return found


@dataclasses.dataclass(frozen=True)
class Split:
    """The rule by which test examples are held out, where there are none.

    Attributes:
      fraction: The share held out of each client with at least two.
      seed: The seed of the draw.
      by_time: Whether the last examples of each client are held out; else they are
        drawn at random. Examples of one time are all trained on or all held out: the
        split is where the time changes, as near to `fraction` as there is a change.
      window: The number of successive examples that make one, whose label is that of
        the last of them. A window lies within what is trained on, or within what is
        held out.

    Raises:
      TypeError: If `fraction` is not a number, or `window` not an integer.
      ValueError: If one is out of its range.
    """

    fraction: float
    seed: int
    by_time: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        checks.check_probability("test_fraction", self.fraction)
        if not 0 < self.fraction < 1:
            raise ValueError(
                "test_fraction must be between 0 and 1, found "
                f"{checks.shown(self.fraction)}: both training and tests need examples."
            )
        if self.window is not None:
            checks.check_integer("window", self.window)
            if not self.by_time:
                raise ValueError(
                    f"window is {checks.shown(self.window)}, but windows are of rows "
                    "in the order of time. Name the column of time by time "
                    "(--time_column)."
                )


def encoded(found: Sequence[Found], target: targets.Target) -> list[Part]:
    """Returns clients with labels as the loss takes them.

    Args:
      found: The clients of each part.
      target: What is predicted.

    Raises:
      DataError: If a label is of another kind; the message names the example.
    """

    def load(of_part: Found, owner: str) -> Examples:
        x, labels = of_part.load(owner)
        return x, target.encode(labels, of_part.field(owner))

    for of_part in found:
        for owner, labels in of_part.labels.items():
            try:
                target.encode(labels, of_part.field(owner))
            except example_checks.DataError:
                load(of_part, owner)  # Fails too, and names the example.
                raise
    return [Part(of_part.labels, functools.partial(load, of_part)) for of_part in found]


def parted(found: Sequence[Found], target: targets.Target, split: Split) -> list[Part]:
    """Returns the clients to train and those to test on.

    Args:
      found: The clients to train on, and those to test on if there are any.
      target: What is predicted.
      split: How examples are held out if there are none to test on.

    Raises:
      DataError: If a label is of another kind, no client has two examples, or two of
        different times, or a client has fewer than make a window.
    """
    parts = encoded(found, target)
    sizes: list[Mapping[str, int]] = [of_part.sizes for of_part in found]
    if len(parts) == 1:
        counts = {
            owner: _num_held_out(size, split.fraction, found[0].cuts.get(owner))
            for owner, size in sizes[0].items()
        }
        parts = held_out(parts[0], counts, split)
        sizes = [{each: sizes[0][each] - counts[each] for each in counts}, counts]
    if split.window is None:
        return parts
    return [
        _windows(part, part_sizes, split.window, is_test)
        for part, part_sizes, is_test in zip(parts, sizes, (False, True), strict=True)
    ]


def held_out(part: Part, counts: Mapping[str, int], split: Split) -> list[Part]:
    """Splits each client's examples into those to train and those to test on.

    Args:
      part: The clients.
      counts: The number of examples of each that are held out.
      split: How to.

    Returns:
      The clients to train and those to test on.

    Raises:
      DataError: If none is held out.
    """
    testing = [owner for owner in part.client_ids if counts[owner]]
    if not testing:
        what = (
            "examples of more than one time"
            if split.by_time
            else "more than one example"
        )
        raise example_checks.DataError(
            f"No client has {what}, so that none can be held out to test on. Give "
            "examples to test on."
        )

    def load(of_test: bool, owner: str) -> Examples:
        x, y = part.load(owner)
        count = counts[owner]
        order = np.arange(len(y))[::-1]
        if not split.by_time:
            draw = seeds.generator(split.seed, f"held-out examples of {owner}")
            order = draw.permutation(len(y))
        # In the order of the file, which `max_examples` may refer to.
        rows = np.sort(order[:count] if of_test else order[count:])
        return x[rows], y[rows]

    return [
        Part(part.client_ids, functools.partial(load, False)),
        Part(testing, functools.partial(load, True)),
    ]


def _num_held_out(size: int, fraction: float, cuts: np.ndarray | None) -> int:
    """Returns how many of a client's examples to hold out, given where one may cut."""
    count = min(max(1, round(fraction * size)), size - 1)
    if cuts is None:
        return count
    if not len(cuts):
        return 0
    # Of two that are as near, the first: more is held out.
    return size - int(cuts[np.argmin(np.abs(cuts - (size - count)))])


def _windows(part: Part, sizes: Mapping[str, int], window: int, is_test: bool) -> Part:
    """Returns clients with a window of successive examples in place of each.

    Clients without a window are not tested on; to train on, each has to have one.
    """
    enough = [owner for owner in part.client_ids if sizes[owner] >= window]
    short = [owner for owner in part.client_ids if sizes[owner] < window]
    if short and not (is_test and enough):
        what = "to test on" if is_test else "to train on"
        raise example_checks.DataError(
            f"window is {window}, but client {checks.shown(short[0])} has "
            f"{sizes[short[0]]} rows {what}. Take a smaller window, or leave out "
            "clients with few rows."
        )

    def load(owner: str) -> Examples:
        x, y = part.load(owner)
        views = np.lib.stride_tricks.sliding_window_view(x, window, axis=0)
        return np.ascontiguousarray(np.moveaxis(views, -1, 1)), y[window - 1 :]

    return Part(enough, load)
