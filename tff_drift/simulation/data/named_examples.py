"""Examples whose arrays have names of their own, such as `input_ids` and `labels`."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from tff_drift import checks
from tff_drift.models.example_weights import WEIGHTS

# The name of an array, or of several that the model takes as a mapping.
Names = str | Sequence[str] | None


def as_pairs(clients: Any, x: Names, y: Names) -> Any:
    """Returns clients' examples as pairs of inputs and labels.

    Args:
      clients: Each client's arrays by their names, by its id.
      x: The name of the inputs, or several names.
      y: That of the labels, or several names.

    Returns:
      The clients, as they are where neither `x` nor `y` is given.

    Raises:
      TypeError: If a name is not a string, or a client's examples are not a mapping.
      ValueError: If one of the two is not given, a client lacks an array, or it has
        weights beside them.
    """
    if x is None and y is None:
        return clients
    for name, names, other in (("x", x, "y"), ("y", y, "x")):
        if names is None:
            raise ValueError(f"{other} is given without {name}. Give both, or neither.")
        for each in names if isinstance(names, (list, tuple)) else [names]:
            checks.check_text(name, each)
    if not isinstance(clients, Mapping):
        return clients  # Refused with the others of this kind.
    pairs = {
        each: (_pick("x", each, examples, x), _pick("y", each, examples, y))
        for each, examples in clients.items()
    }
    named = {each for names in (x, y) for each in _listed(names)}
    for client_id, examples in clients.items():
        for each in WEIGHTS:
            if each in examples and each not in named:
                raise ValueError(
                    f"x and y name no weights, but client {checks.shown(client_id)} "
                    f"has {each!r}, which would not count. Leave it out, or x and y: "
                    "call the arrays 'x' and 'y' themselves."
                )
    return pairs


def _listed(names: Any) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _pick(argument: str, client_id: Any, examples: Any, names: Any) -> Any:
    if not isinstance(examples, Mapping):
        raise TypeError(
            f"{argument} names arrays, but the examples of client "
            f"{checks.shown(client_id)} are a {type(examples).__name__}. Name them."
        )
    missing = [each for each in _listed(names) if each not in examples]
    if missing:
        raise ValueError(
            f"{argument} names {checks.shown(missing[0])}, but client "
            f"{checks.shown(client_id)} has {checks.listed(map(repr, examples))}. Name "
            "one of these."
        )
    if isinstance(names, str):
        return examples[names]
    return collections.OrderedDict((each, examples[each]) for each in names)
