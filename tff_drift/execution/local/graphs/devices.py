"""Placement: datasets stay on the CPU, wherever the computation goes."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tff_drift import checks
from tff_drift.execution.local import patterns

_CPU = "/device:CPU:0"
_VARIANT = tf.variant.as_datatype_enum
# Parts of the names of operations on datasets, iterators and their elements.
_DATASET_OPERATIONS = ("Dataset", "Iterator", "Optional", "SeedGenerator")
# What passes on a dataset without looking at it, and the attribute of its type.
_PASSING_ON = {"Identity": "T", "Placeholder": "dtype"}


def pin_datasets_to_cpu(graph_def: tf.compat.v1.GraphDef) -> None:
    """Places what concerns datasets on the CPU, in a graph and its library.

    A device around the call of a function moves everything in it that has no
    device of its own, iterators included, for which a GPU has no kernels.

    Args:
      graph_def: The graph; it is changed in place.
    """
    for node in patterns.all_nodes(graph_def):
        passes_on = (
            node.op in _PASSING_ON and node.attr[_PASSING_ON[node.op]].type == _VARIANT
        )
        if passes_on or any(part in node.op for part in _DATASET_OPERATIONS):
            node.device = _CPU


def check_devices(name: str, devices: Sequence[str]) -> tuple[str, ...]:
    """Checks names of devices.

    Args:
      name: The argument that holds them.
      devices: The names, such as `/GPU:0`.

    Returns:
      The names.

    Raises:
      TypeError: If `devices` is not a sequence of strings.
      ValueError: If it is empty, or TensorFlow sees no such device.
    """
    if not isinstance(devices, (list, tuple)) or not all(
        isinstance(device, str) for device in devices
    ):
        raise TypeError(
            f"{name} must hold names of devices such as '/GPU:0', found "
            f"{checks.shown(devices)}."
        )
    if not devices:
        raise ValueError(f"{name} must hold at least one device, found none.")
    present = [device.name for device in tf.config.list_logical_devices()]
    for device in devices:
        if not any(_is_named(device, other) for other in present):
            raise ValueError(
                f"{name} must hold devices of this machine, found "
                f"{checks.shown(device)}. There are {', '.join(present)}."
            )
    return tuple(devices)


def _is_named(name: str, device: str) -> bool:
    try:
        wanted = tf.DeviceSpec.from_string(name)
    except ValueError:
        return False
    found = tf.DeviceSpec.from_string(device)
    return (wanted.device_type or "").upper() == found.device_type and (
        wanted.device_index or 0
    ) == found.device_index
