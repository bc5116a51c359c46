"""Models for TFF: those of Keras, and the checks that all models pass."""

from tff_drift.models.initial_weights import initial_weights_for, initial_weights_of
from tff_drift.models.keras2 import from_keras2
from tff_drift.models.keras3 import assign_to_keras3, from_keras3
from tff_drift.models.loaded_weights import loaded_weights
from tff_drift.models.model_fn import ModelFn, build_variable_model, check_model_fn
from tff_drift.models.weight_places import HasKerasWeights, WeightPlaces

__all__ = [
    "HasKerasWeights",
    "ModelFn",
    "WeightPlaces",
    "assign_to_keras3",
    "build_variable_model",
    "check_model_fn",
    "from_keras2",
    "from_keras3",
    "initial_weights_for",
    "initial_weights_of",
    "loaded_weights",
]
