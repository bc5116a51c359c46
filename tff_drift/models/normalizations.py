"""`Normalization` layers that have learned what they normalize by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def normalizing_by_weights(model: Any) -> Iterator[None]:
    """Has a model normalize by the present values of its weights.

    A `Normalization` layer that is adapted keeps mean and variance as weights. When it
    is adapted or loaded it makes tensors of them, by which it normalizes: in a graph
    these have the weights' first values, whatever the weights get later.

    Args:
      model: A Keras model, of Keras 2 or 3.

    Yields:
      Nothing; the model is called inside.
    """
    learned = [(layer, layer.mean, layer.variance) for layer in learning_layers(model)]
    for layer, _, _ in learned:
        layer.finalize_state()
    try:
        yield
    finally:
        # What is made inside belongs to the graph of the call.
        for layer, mean, variance in learned:
            layer.mean, layer.variance = mean, variance


def learning_layers(model: Any) -> list[Any]:
    """Returns the `Normalization` layers of a model that were not given a mean.

    Args:
      model: A Keras model, of Keras 2 or 3.
    """
    return [
        layer
        for layer in model._flatten_layers()
        if layer.built and getattr(layer, "input_mean", 0) is None
    ]
