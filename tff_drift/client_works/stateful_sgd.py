"""Local training of clients that keep a state between rounds."""

from __future__ import annotations

import abc
import collections
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tff_drift.client_works.local_sgd import LocalSgd
from tff_drift.client_works.local_work import LocalContext

# What a client keeps between rounds: tensors by name.
ClientState = collections.OrderedDict[str, Any]


class ClientOutput(NamedTuple):
    """What a client keeps, and what it tells the server besides its update.

    Attributes:
      client_state: The client's new state.
      message: A vector for the server, such as the change of a control variate;
        `()` for methods that send nothing besides the update.
    """

    client_state: ClientState
    message: Any = ()


class LocalResult(NamedTuple):
    """What one client's local training came to.

    Attributes:
      pseudo_gradient: x - y_i, a vector.
      num_steps: K_i, the minibatches trained on, a scalar of the weights' dtype.
      num_examples: The examples trained on, epochs included, alike.
      full_gradient: The gradient of the whole local loss at x, a vector; None
        unless the work asks for it by `needs_full_gradient`.
    """

    pseudo_gradient: tf.Tensor
    num_steps: tf.Tensor
    num_examples: tf.Tensor
    full_gradient: tf.Tensor | None


class StatefulSgd(LocalSgd):
    """`LocalSgd` of a client that keeps a state between rounds.

    A method says what a client starts with (`initial_client_state`), how the state
    corrects the local steps (`correction`, `direction`), and what becomes of it
    (`remember`).
    """

    # Whether `remember` wants the gradient of the whole local loss at x, which
    # costs another pass over the client's data.
    needs_full_gradient = False
    # Whether the work wants `LocalContext.num_examples`, for a pass that counts.
    needs_num_examples = False

    @abc.abstractmethod
    def initial_client_state(self, zeros: np.ndarray) -> ClientState:
        """Returns the state of a client that has not taken part yet.

        Args:
          zeros: A zero vector of the size and dtype of the trainable weights.
        """

    @abc.abstractmethod
    def remember(self, context: LocalContext, local: LocalResult) -> ClientOutput:
        """Returns the client's new state.

        Args:
          context: The fixed part of the round, the present state among it.
          local: What local training came to.
        """
