"""Weights of a Keras model of which other layers train than of a process's.

A process knows the shapes of its weights, those that train apart from the others. The
given model knows the order of all: each part of the process's is a part of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import checks

Parts = tuple[list[Any], list[Any]]
# Where each weight goes, the last one first: `(path before, whether it trains)`.
_Path = tuple[Any, ...]
# Weights that train together or not at all, and whether they can.
_Unit = tuple[list[Any], bool]


def split_like(
    model: Any, parts: Parts, shapes: tuple[Sequence[Any], Sequence[Any]]
) -> Parts | None:
    """Returns the weights of a model as those of a process that trains other layers.

    Args:
      model: The given model, of Keras 2 or 3.
      parts: Its trainable and its other weights.
      shapes: The shapes of the trainable and of the other weights of the process.

    Returns:
      The weights that the process trains, and the others. `None` if there are no such
      ones, or several choices: shapes alone then say too little.
    """
    wanted = {id(weight) for part in parts for weight in part}
    units = _units(model)
    if units is None:
        return None
    order = [weight for unit, _ in units for weight in unit if id(weight) in wanted]
    if len(order) != len(wanted) or sum(map(len, shapes)) != len(order):
        return None
    if not all(_is_in_order(part, order) for part in parts):
        return None
    units = [
        ([each for each in some if id(each) in wanted], can) for some, can in units
    ]
    # Of no weights, one way is enough.
    units = [unit for unit in units if unit[0]]
    choices = _choices(units, shapes)
    if not choices and checks.is_of_keras3(model):
        # There, each weight has a `trainable` of its own, which few set.
        choices = _choices(
            [([each], can) for some, can in units for each in some], shapes
        )
    if len(choices) != 1:
        return None
    of_kinds: dict[bool, list[Any]] = {True: [], False: []}
    for weight, is_trained in zip(order, choices[0], strict=True):
        of_kinds[is_trained].append(weight)
    return of_kinds[True], of_kinds[False]


def _units(model: Any) -> list[_Unit] | None:
    """Returns a model's weights in the order in which each part of them is.

    `None` if `trainable` of its layers may change that order, as of Keras 2 in models
    within models, and in layers of layers with weights that never train.
    """
    layers = list(model._flatten_layers())
    if checks.is_of_keras3(model):
        owners = {
            id(each): (id(layer), can_train)
            for layer in layers
            for part, can_train in (
                (layer._trainable_variables, True),
                (layer._non_trainable_variables, False),
            )
            for each in part
        }
        groups = itertools.groupby(
            model.variables, lambda each: owners.get(id(each), (0, False))
        )
        return [(list(group), can_train) for (_, can_train), group in groups]
    if any(_may_reorder(layer) for layer in layers if layer is not model):
        return None
    return [
        unit
        for layer in layers
        for unit in (
            (layer._trainable_weights, True),
            (layer._non_trainable_weights, False),
        )
    ]


def _may_reorder(layer: Any) -> bool:
    below = layer._flatten_layers(include_self=False)
    has_fixed = any(each._non_trainable_weights for each in below)
    return isinstance(layer, tf.keras.Model) or has_fixed


def _is_in_order(part: Sequence[Any], order: Sequence[Any]) -> bool:
    places = {id(weight): place for place, weight in enumerate(order)}
    found = [places.get(id(weight), -1) for weight in part]
    return found == sorted(found)


def _choices(
    units: Sequence[_Unit], shapes: tuple[Sequence[Any], Sequence[Any]]
) -> list[list[bool]]:
    """Returns of each weight whether it trains: one or two ways that shapes allow."""
    # By how many weights train so far: two paths are as good as many.
    paths: dict[int, list[_Path]] = {0: [()]}
    done = 0
    for weights, can_train in units:
        found, count = [tuple(each.shape) for each in weights], len(weights)
        new: dict[int, list[_Path]] = {}
        for trained, some in paths.items():
            for trains in {can_train, False}:
                begin = trained if trains else done - trained
                part = shapes[0] if trains else shapes[1]
                if list(part[begin : begin + count]) == found:
                    longer = [_longer(path, trains, count) for path in some]
                    key = trained + trains * count
                    new[key] = [*new.get(key, []), *longer][:2]
        paths, done = new, done + count
    return [list(_flags(path))[::-1] for path in paths.get(len(shapes[0]), [])]


def _longer(path: _Path, trains: bool, count: int) -> _Path:
    for _ in range(count):
        path = (path, trains)
    return path


def _flags(path: _Path) -> Iterator[bool]:
    while path:
        path, trains = path
        yield trains
