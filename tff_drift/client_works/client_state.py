"""Client states between rounds, and the result of local training."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.tensors import Tensors, to_vector

# What a client keeps between rounds: tensors by name.
ClientState = collections.OrderedDict[str, Any]


class ClientOutput(NamedTuple):
    """A client's new state, and what it sends to the server besides its update.

    Attributes:
      client_state: The client's new state; `()` for methods whose clients keep none.
      message: Tensors for the server, such as the change of a control variate;
        `()` for methods that send nothing besides the update.
    """

    client_state: Any = ()
    message: Any = ()


class LocalResult(NamedTuple):
    """The result of one client's local training.

    Attributes:
      update: The update that the client sends, a flat tuple of tensors: zeros if it
        is not finite.
      trainable: The local weights y_i after the last step, alike.
      num_steps: K_i, the minibatches trained on, a scalar of the weights' dtype.
      num_examples: The examples trained on, epochs included, alike.
      full_gradient: The gradient of the whole local loss at x, a vector; None
        unless the work asks for it by `needs_full_gradient`.
      work_state: The state of the local work after its last step: of `LocalSgd` the
        pair of its optimizer's state and the round's correction.
    """

    update: Tensors
    trainable: Tensors
    num_steps: tf.Tensor
    num_examples: tf.Tensor
    full_gradient: tf.Tensor | None
    work_state: Any

    @property
    def pseudo_gradient(self) -> tf.Tensor:
        """The update as a vector: x - y_i, unless the work sends another."""
        return to_vector(self.update)
