"""Weights of clients, which their batches bring along."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tree

from tff_drift import checks
from tff_drift.models.example_weights import CLIENT_WEIGHT
from tff_drift.simulation.data import lists
from tff_drift.simulation.data.examples import Examples, Transform, num_rows

# Of the components of examples, in their order.
_NAMES = ("x", "y", "sample_weight")
_ALL_NAMES = {CLIENT_WEIGHT, *_NAMES}


def checked_weights(
    weights: Mapping[str, float], client_ids: Sequence[str]
) -> dict[str, float]:
    """Returns the weights of some clients.

    Args:
      weights: The weights by client id, perhaps of other clients too.
      client_ids: The clients.

    Raises:
      TypeError: If `weights` is no mapping of numbers.
      ValueError: If a client has no weight, or one that is negative or not finite.
    """
    what = "a mapping of client ids to numbers"
    checks.check_instance("weights", weights, Mapping, what)
    missing = [client_id for client_id in client_ids if client_id not in weights]
    if missing:
        raise ValueError(
            f"weights lacks {len(missing):,} of {len(client_ids):,} clients, such as "
            f"{checks.shown(missing[0])}. Give each client a weight, 0 to leave it out."
        )
    for client_id in client_ids:
        name = f"weights[{checks.shown(client_id)}]"
        checks.check_non_negative(name, weights[client_id])
    return {client_id: float(weights[client_id]) for client_id in client_ids}


def are_in(element_spec: Any) -> bool:
    """Returns whether batches have the weights of their clients.

    Args:
      element_spec: The types of a batch.
    """
    return isinstance(element_spec, Mapping) and CLIENT_WEIGHT in element_spec


@dataclasses.dataclass(frozen=True)
class WeightedClients:
    """Loads clients' examples, each with the weight of its client.

    Attributes:
      load_client: Returns a client's examples.
      weights: The weights by client id.
      are_replaced: Whether the examples have weights beside them, which are dropped.
    """

    load_client: Callable[[str], Examples]
    weights: Mapping[str, float]
    are_replaced: bool

    def __call__(self, client_id: str) -> Examples:
        """Returns a client's weights and examples, which `WeightedTransform` names."""
        loaded = self.load_client(client_id)
        examples = lists.without_lists(loaded[1] if self.are_replaced else loaded)
        weight = np.full(num_rows(examples), self.weights[client_id], np.float32)
        return weight, examples


@dataclasses.dataclass(frozen=True)
class WeightedTransform:
    """Names the examples that `WeightedClients` loads, and the weight beside them.

    Attributes:
      transform: The transform of examples without weights; `None` for none.
    """

    transform: Transform | None

    def __call__(
        self, examples: Examples, generator: np.random.Generator | None
    ) -> Examples:
        """Returns examples as models take them."""
        weight, without = examples
        if self.transform is not None:
            without = self.transform(without, generator)
        return _named(weight, without)


def weights_of(examples: Any, are_beside: bool) -> np.ndarray | None:
    """Returns the weights that loaded examples have, `None` if they have none.

    Args:
      examples: The examples.
      are_beside: Whether they are as `WeightedClients` loads them.
    """
    if are_beside:
        return examples[0]
    return examples.get(CLIENT_WEIGHT) if isinstance(examples, Mapping) else None


def with_weight(examples: Any, weight: float, are_beside: bool) -> Examples:
    """Returns loaded examples, all with one weight; without weights, as they are.

    Args:
      examples: The examples.
      weight: The weight.
      are_beside: See `weights_of`.
    """
    weights = weights_of(examples, are_beside)
    if weights is None:
        return examples
    filled = np.full_like(weights, weight)
    if are_beside:
        return filled, examples[1]
    return {**examples, CLIENT_WEIGHT: filled}


def as_loaded(named: Mapping[str, Any], like: tuple[Any, Any]) -> Examples:
    """Returns examples of clients with weights in the form in which they are loaded.

    Args:
      named: The examples by name, without a transform.
      like: A structure of that form.
    """
    _, form = like
    if isinstance(form, Mapping):
        parts: Any = {name: named[name] for name in form}
    else:
        parts = [named[name] for name in _NAMES[: len(form)]]
    return named[CLIENT_WEIGHT], tree.unflatten_as(form, tree.flatten(parts))


def _named(weight: np.ndarray, examples: Any) -> dict[str, Any]:
    """Returns examples by the names of their components, with the weight.

    It replaces one that a mapping has.
    """
    is_mapping = isinstance(examples, Mapping)
    if isinstance(examples, (tuple, list)) and len(examples) in (2, 3):
        examples = dict(zip(_NAMES, examples, strict=False))
    elif not is_mapping or not {"x", "y"} <= set(examples) <= _ALL_NAMES:
        found = list(examples) if is_mapping else type(examples).__name__
        raise ValueError(
            "clients with weights must have examples (x, y) or (x, y, sample_weight), "
            f"or a mapping of these, found {checks.shown(found)}. from_arrays(x=..., "
            "y=...) renames arrays."
        )
    # TFF's own contexts want the names in alphabetical order.
    return dict(sorted({**examples, CLIENT_WEIGHT: weight}.items()))
