"""Remedies for model functions that are right for Keras and not for TFF."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import checks
from tff_drift.models.keras2_arguments import check_built
from tff_drift.models.stateless import ADAPT_OUTSIDE

# TFF's functions that take models, losses and metrics of Keras 2.
_OF_KERAS_2 = ("from_keras_model", "functional_model_from_keras")
_ARGUMENTS = ("keras_model", "loss", "loss_fn", "metrics", "metrics_constructor")


def explain(error: Exception) -> None:
    """Raises what to do where a model function is right for Keras and not for TFF.

    Args:
      error: What it raised.

    Raises:
      ValueError: If it adapts a layer, has one count its tokens, gives one a name that
        graphs do not take, clones a compiled model of Keras 3, or gives TFF's function
        weights of examples or a model of Keras 2 without weights.
    """
    # Of Keras 3, whose own functions are no part of the traceback.
    if "Cannot convert '(None, <tf.Tensor" in str(error):
        raise _counts_tokens(error) from error
    name = re.match("'(.+?)/?' is not a valid (root )?scope name", str(error))
    if name:
        raise ValueError(
            f"model_fn gives something the name {checks.shown(name[1])}, which "
            "TensorFlow does not take in a graph. Name layers and metrics by letters "
            "of English, digits and _ . - there, the first a letter or a digit."
        ) from error
    for function, module, values in _calls(error.__traceback__):
        if function == "adapt" and module.startswith(("keras.", "tf_keras.")):
            layer = type(values.get("self")).__name__
            raise ValueError(
                f"model_fn adapts a {layer} layer. {ADAPT_OUTSIDE}"
            ) from error
        if function == "get_compile_config" and module.startswith("keras."):
            raise ValueError(
                "model_fn clones a Keras model that is compiled, whose optimizer has "
                "no values in TFF's graphs. Load it by load_model(path, "
                "compile=False), or clone it outside of model_fn and give the clone to "
                "from_keras3."
            ) from error
        # Where Keras 2 counts tokens, of a lookup layer's table here.
        if function == "dense_bincount" and tf.is_symbolic_tensor(values.get("depth")):
            raise _counts_tokens(error) from error
        spec = values.get("input_spec")
        is_of_tff = module.startswith("tensorflow_federated.")
        if not is_of_tff or function not in _OF_KERAS_2:
            continue
        keras_model = values.get("keras_model")
        check_built("keras_model", keras_model)
        if getattr(keras_model, "_is_compiled", False):
            raise ValueError(
                f"model_fn gives tff.learning.models.{function} a model that is "
                "compiled, as load_model returns it. Load it by load_model(path, "
                "compile=False), or call tff_drift.models.from_keras2 with the same "
                "arguments in its place."
            ) from error
        if _has_weights(spec):
            raise ValueError(
                f"model_fn gives tff.learning.models.{function} batches of three "
                "components, and it takes inputs and labels alone. For weights of "
                "examples call tff_drift.models.from_keras2 with the same arguments in "
                "its place."
            ) from error


def _counts_tokens(error: Exception) -> ValueError:
    return ValueError(
        "model_fn calls a layer, such as StringLookup or TextVectorization, that has a "
        "column for each token and reads their number from its table, which has no "
        f"value in TFF's graphs ({type(error).__name__}: {checks.shown(str(error))}). "
        "Give the layer max_tokens=<number of columns> and pad_to_max_tokens=True, or "
        'apply it to the data, outside of the model, the one way for output_mode="'
        'tf_idf".'
    )


def _has_weights(input_spec: Any) -> bool:
    return isinstance(input_spec, (Mapping, Sequence)) and len(input_spec) == 3


def _calls(
    traceback: types.TracebackType | None,
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields the functions that an error passed: name, module, and values by name."""
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__", "")
        yield frame.f_code.co_name, module, frame.f_locals
        traceback = traceback.tb_next


def keras3_arguments(error: Exception) -> Iterator[tuple[str, Any]]:
    """Yields TFF's functions that an error passed, each with an object of Keras 3.

    Args:
      error: What a model function raised.
    """
    for function, module, values in _calls(error.__traceback__):
        if function in _OF_KERAS_2 and module.startswith("tensorflow_federated."):
            for name in _ARGUMENTS:
                for value in tf.nest.flatten(values.get(name)):
                    if checks.is_of_keras3(value):
                        yield function, value
