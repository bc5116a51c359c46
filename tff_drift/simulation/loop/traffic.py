"""The traffic of a round over the network."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat

# The client weight that goes up beside the pseudo-gradient is one float32.
_CLIENT_WEIGHT_BYTES = np.dtype(np.float32).itemsize
_PROCESS_MEMBERS = ("initialize", "next", "get_model_weights", "get_hparams")


def check_process(process: Any) -> None:
    """Raises unless a value has the members of a learning process.

    Args:
      process: The value to check.

    Raises:
      TypeError: If it lacks one.
    """
    missing = [name for name in _PROCESS_MEMBERS if not hasattr(process, name)]
    if missing:
        raise TypeError(
            "process must be a tff.learning.templates.LearningProcess, such as of "
            f"build_fed_avg, found {checks.shown(process)}, which has no {missing[0]}."
        )


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The bytes that one client of a cohort receives and sends per round.

    Attributes:
      bytes_down: From the server to one client.
      bytes_up: From one client to the server.
      model_bytes: Those of the trainable weights, the unit n of the papers.
    """

    bytes_down: int
    bytes_up: int
    model_bytes: int

    @property
    def units_down(self) -> float:
        """A client's download, in units of n: 1 for FedAvg."""
        return self.bytes_down / self.model_bytes

    @property
    def units_up(self) -> float:
        """A client's upload, in units of n: 1 for FedAvg."""
        return self.bytes_up / self.model_bytes


def num_bytes(type_spec: compat.Type) -> int:
    """Returns the bytes of a value of a type.

    Args:
      type_spec: A TFF type of tensors with fully defined shapes.

    Returns:
      The sum over its tensors of elements times bytes per element.
    """
    specs = tf.nest.flatten(compat.type_to_tf_tensor_specs(type_spec))
    return sum(spec.shape.num_elements() * spec.dtype.size for spec in specs)


def model_traffic(process: tff.learning.templates.LearningProcess) -> Traffic:
    """Returns the traffic of a process that sends a model and a pseudo-gradient.

    Down go the trainable weights; up come the pseudo-gradient of these and one float32
    client weight. The other weights, such as those of frozen layers, change in no
    round: clients have them from the beginning. A method may send more both ways, such
    as a control variate; the client state itself stays on the client and is no traffic.
    Compression by a distributor or aggregator, and metrics, are not counted.

    Args:
      process: The learning process, whose model is the result of
        `get_model_weights`.

    Returns:
      The traffic of one client in one round.

    Raises:
      TypeError: If `process` is not a learning process.
    """
    check_process(process)
    weights_type: Any = process.get_model_weights.type_signature.result
    model_bytes = num_bytes(weights_type.trainable)
    # Processes that are not of this library do not say what else they send.
    nothing = compat.to_type(())
    beside_down = num_bytes(getattr(process, "message_down", nothing))
    beside_up = num_bytes(getattr(process, "message_up", nothing))
    return Traffic(
        bytes_down=model_bytes + beside_down,
        bytes_up=model_bytes + _CLIENT_WEIGHT_BYTES + beside_up,
        model_bytes=model_bytes,
    )
