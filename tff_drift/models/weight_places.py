"""Where the weights of a process's model are among those of a Keras model.

TFF keeps the trainable weights of a model apart from the others, both without names.
Where the places of both among all weights are known, those of another Keras model of
the same form are found, whichever of its layers are frozen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow_federated as tff

from tff_drift import checks


class WeightPlaces(NamedTuple):
    """The places of a model's weights among those that `ordered_weights` returns.

    Attributes:
      trainable: Those of the trainable weights, in TFF's order.
      non_trainable: Those of the others.
    """

    trainable: tuple[int, ...]
    non_trainable: tuple[int, ...]

    def are_all(self, weights: list[Any]) -> bool:
        """Returns whether a list of weights has as many as there are places."""
        return len(weights) == len(self.trainable) + len(self.non_trainable)


def ordered_weights(keras_model: Any) -> list[Any]:
    """Returns all weights, layer by layer, whichever train.

    Args:
      keras_model: A built model of Keras 2 or 3.
    """
    if checks.is_of_keras3(keras_model):
        return list(keras_model.weights)
    # The public `weights` of a layer of layers begins with those that train.
    weights = [
        weight
        for layer in keras_model._flatten_layers()
        for weight in layer._trainable_weights + layer._non_trainable_weights
    ]
    return list({id(weight): weight for weight in weights}.values())


class HasKerasWeights:
    """Marks models of TFF whose weights are those of a Keras model, in its order.

    A model of a user's may have a Keras model too, and train other weights.

    Attributes:
      _keras_model: The Keras model.
      losses_and_metrics: What takes its outputs, objects of Keras or functions.
    """

    _keras_model: Any
    losses_and_metrics: list[Any]


def find_weight_places(
    model: tff.learning.models.VariableModel,
) -> WeightPlaces | None:
    """Returns the places of a model's weights in the Keras model that it was made of.

    Args:
      model: A model; `None` is returned of one that is not marked `HasKerasWeights`.
    """
    if not isinstance(model, HasKerasWeights):
        return None
    keras_model = model._keras_model
    weights = ordered_weights(keras_model)
    place_of = {id(weight): place for place, weight in enumerate(weights)}
    parts = (
        tuple(place_of[id(each)] for each in part if id(each) in place_of)
        for part in (
            keras_model.trainable_variables,
            keras_model.non_trainable_variables,
        )
    )
    places = WeightPlaces(*parts)
    return places if places.are_all(weights) else None
