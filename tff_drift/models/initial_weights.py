"""Weights to begin with, in the forms in which people have them."""

from __future__ import annotations

import json
import os
import pathlib
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat
from tff_drift.models import shared_values
from tff_drift.models.stateless import split_variables, unbuilt_layers
from tff_drift.models.weight_places import WeightPlaces, ordered_weights
from tff_drift.tensors import eagerly

_FORMS = (
    "a Keras model, the path of one that was saved (.keras, .h5 or the folder of a "
    "SavedModel), a tff.learning.models.ModelWeights, or a list of arrays"
)
# What works where other weights train, of which a process knows the shapes alone.
_OTHERS_TRAIN = (
    "Freeze the same layers of a Keras model that you give. Where the model has "
    "adapters (enable_lora) besides, load the weights where it is built, in "
    "build_keras_model or model_fn, and leave initial_weights out."
)
# Files of a SavedModel's folder: of all, and of those that Keras 2 saves.
_SAVED_MODEL = "saved_model.pb"
_OF_KERAS_2 = "keras_metadata.pb"
# What Keras 3 calls the state of a layer that draws numbers.
_SEED_STATE = "/seed_generator_state:0"


def initial_weights_of(
    given: Any, weights_type: compat.Type, places: WeightPlaces | None = None
) -> tff.learning.models.ModelWeights:
    """Returns weights that were given to begin with as a process takes them.

    Args:
      given: The weights.
      weights_type: The TFF type of the process's model.
      places: See `find_weight_places`; `None` if they are not known. Then layers of a
        Keras model that is given must be frozen as those of the process's model.

    Returns:
      The weights, NumPy arrays of the structure and types of the process's model.

    Raises:
      TypeError: If `given` is none of the forms.
      ValueError: If a file cannot be read, or the weights are not those of the model,
        or not finite.
    """
    wanted = compat.type_to_tf_tensor_specs(weights_type)
    num_others = len(tf.nest.flatten(wanted.non_trainable))
    trainable, others = _parts(given, num_others, places)
    return tff.learning.models.ModelWeights(
        _fitting("trainable", trainable, wanted.trainable),
        _fitting("non-trainable", others, wanted.non_trainable),
    )


def initial_weights_for(process: Any, given: Any) -> tff.learning.models.ModelWeights:
    """Returns weights that were given to begin with as a process takes them.

    Args:
      process: A `tff.learning.templates.LearningProcess`; those of TFF, and of users,
        do not tell the places of their weights.
      given: The weights, see `initial_weights_of`.

    Raises:
      TypeError: As `initial_weights_of`.
      ValueError: Likewise.
    """
    weights_type = process.get_model_weights.type_signature.result
    places = getattr(process, "weight_places", None)
    return initial_weights_of(given, weights_type, places)


def _parts(
    given: Any, num_non_trainable: int, places: WeightPlaces | None
) -> tuple[list[Any], list[Any]]:
    """Returns the trainable and the other weights."""
    if isinstance(given, (str, os.PathLike)):
        given = _load(pathlib.Path(given))
    if _is_keras_model(given):
        _check_built(given, places)
        trainable, others = _parts_of_keras(given, places)
        of_keras3 = checks.is_of_keras3(given)
        shared_values.remember(each.value if of_keras3 else each for each in others)
        return trainable, others
    if isinstance(given, tff.learning.models.ModelWeights):
        return tf.nest.flatten(given.trainable), tf.nest.flatten(given.non_trainable)
    if isinstance(given, (list, tuple)):
        if num_non_trainable:
            raise ValueError(
                "initial_weights is a list of arrays, and the model of process also "
                f"has {num_non_trainable} non-trainable weights, whose places in a "
                "list differ. Give the Keras model, or tff.learning.models."
                "ModelWeights(trainable, non_trainable)."
            )
        return list(given), []
    raise TypeError(f"initial_weights must be {_FORMS}, found {checks.shown(given)}.")


def _is_keras_model(given: Any) -> bool:
    if checks.is_of_keras3(given):
        return hasattr(given, "trainable_variables")
    return isinstance(given, tf.keras.Model)


def _parts_of_keras(
    model: Any, places: WeightPlaces | None
) -> tuple[list[Any], list[Any]]:
    weights = ordered_weights(model)
    if places is not None and places.are_all(weights):
        trainable, others = ([weights[place] for place in part] for part in places)
        return trainable, others
    if checks.is_of_keras3(model):
        trainable, others, _ = split_variables(model)
        return trainable, others
    return list(model.trainable_variables), list(model.non_trainable_variables)


def _check_built(model: Any, places: WeightPlaces | None) -> None:
    given = f"initial_weights is the Keras model {checks.shown(model.name)}"
    if not model.built:
        raise ValueError(
            f"{given}, which is not built and has no weights yet. Call it once on a "
            "batch."
        )
    if places is None or places.are_all(ordered_weights(model)):
        return
    if checks.is_of_keras3(model) and (unbuilt := unbuilt_layers(model)):
        raise ValueError(
            f"{given}, whose layers {checks.listed(unbuilt)} are not built and have no "
            "weights yet. Call it once on a batch."
        )


def _fitting(kind: str, values: Sequence[Any], wanted: Any) -> Any:
    """Returns weights as arrays of the model's types, in their structure."""
    specs = tf.nest.flatten(wanted)
    if len(values) != len(specs):
        raise ValueError(
            f"initial_weights has {len(values)} {kind} weights, and the model of "
            f"process has {len(specs)}. Give the weights of the same model, with the "
            f"same layers trainable. {_OTHERS_TRAIN}"
        )
    arrays = [
        _array(f"initial_weights, {kind} weight {place}", value, spec)
        for place, (value, spec) in enumerate(zip(values, specs, strict=True))
    ]
    return tf.nest.pack_sequence_as(wanted, arrays)


def _array(name: str, value: Any, spec: tf.TensorSpec) -> np.ndarray:
    array = eagerly(lambda: np.asarray(value))
    if array.dtype.kind not in "fiub" and array.dtype != spec.dtype.as_numpy_dtype:
        raise TypeError(
            f"{name}, must be an array of numbers that NumPy has, found values of type "
            f"{array.dtype}. Give np.asarray(value, np.float32)."
        )
    if array.shape != tuple(spec.shape):
        raise ValueError(
            f"{name}, has the shape {array.shape}, and in the model of process "
            f"{tuple(spec.shape)}. Give the weights of the same model, in the order of "
            f"its layers. {_OTHERS_TRAIN}"
        )
    array = array.astype(spec.dtype.as_numpy_dtype)
    if not np.isfinite(array.astype(np.float64)).all():
        raise ValueError(
            f"{name}, has values that are not finite. Training cannot begin there."
        )
    return array


def _load(path: pathlib.Path) -> Any:
    """Returns the Keras model of a file, or what a SavedModel holds of it."""
    if not path.exists():
        raise ValueError(
            f"initial_weights: there is no file {checks.shown(str(path))}."
        )
    try:
        if path.is_dir():
            return _load_folder(path)
        if path.suffix not in (".keras", ".h5", ".hdf5"):
            raise ValueError("its name ends in neither .keras nor .h5")
        if path.name.endswith(".weights.h5") or not _holds_a_model(path):
            raise ValueError("it holds weights alone, and not the model")
        return _keras_of(path).models.load_model(path, compile=False)
    except Exception as error:
        raise ValueError(
            f"initial_weights: {checks.shown(str(path))} cannot be read as a saved "
            f"Keras model ({checks.shown(str(error))}). Load it yourself, such as with "
            "tf.keras.models.load_model or load_weights, and give the Keras model."
        ) from error


def _load_folder(path: pathlib.Path) -> Any:
    if not (path / _SAVED_MODEL).is_file():
        raise ValueError(f"the folder has no {_SAVED_MODEL}")
    if (path / _OF_KERAS_2).is_file():
        return tf.keras.models.load_model(path, compile=False)
    # What Keras 3 exports has no model, and the variables under these names.
    loaded = eagerly(lambda: tf.saved_model.load(str(path)))
    # What layers that draw numbers keep is there too, and is no weight.
    others = [
        each
        for each in loaded.non_trainable_variables
        if not each.name.endswith(_SEED_STATE)
    ]
    return tff.learning.models.ModelWeights(list(loaded.trainable_variables), others)


def _holds_a_model(path: pathlib.Path) -> bool:
    if path.suffix == ".keras":
        return True
    import h5py

    with h5py.File(path, "r") as file:
        return "model_config" in file.attrs


def _keras_of(path: pathlib.Path) -> Any:
    """Returns the Keras whose release a file was saved with: `tf.keras` is Keras 2."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as file:
            version = json.loads(file.read("metadata.json"))["keras_version"]
    else:
        import h5py

        with h5py.File(path, "r") as file:
            version = str(file.attrs.get("keras_version", "2"))
    if version.startswith("3"):
        import keras

        return keras
    return tf.keras
