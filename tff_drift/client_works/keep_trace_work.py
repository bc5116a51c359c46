"""The client's half of UGA."""

from __future__ import annotations

import collections
import functools
import re
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks, compat
from tff_drift.client_works.keep_trace import run_keep_trace
from tff_drift.client_works.local_sgd import LocalSgd, check_sgd_rate
from tff_drift.client_works.local_work import ClientWork, RunWork
from tff_drift.client_works.model_spec import ModelSpec
from tff_drift.models.first_trace import nodes_of

# Operations that draw other numbers each time that they run.
_RANDOM = re.compile(
    r"Random(Uniform|UniformInt|StandardNormal|Gamma|Poisson(V2)?|Shuffle)"
    r"|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial"
    r"|Stateful(?!Partitioned).*|Rng(ReadAnd)?Skip"
)
# How TensorFlow names the operation that it cannot differentiate.
_NO_GRADIENT = re.compile(r"no entry for: (\w+)|op type: (\w+)")


class KeepTraceSgd(ClientWork):
    """Plain SGD that sends the gradient through its steps, see `run_keep_trace`.

    The local model takes the steps of all epochs but the last. The update is a
    gradient with respect to the server's weights.

    Args:
      client_learning_rate: η of the traced steps.
      local_epochs: E, the epochs that every client's dataset holds.
      client_weight_decay: See `LocalOptions`.
      gradient_clipping_norm: See `LocalOptions`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        client_learning_rate: float,
        local_epochs: int,
        client_weight_decay: float = 0.0,
        gradient_clipping_norm: float | None = None,
    ) -> None:
        check_sgd_rate(
            client_learning_rate, "the gradient is sent through steps of plain SGD"
        )
        checks.check_integer("local_epochs", local_epochs)
        self._sgd = LocalSgd(
            client_learning_rate, client_weight_decay, gradient_clipping_norm
        )
        self._local_epochs = local_epochs

    def initial_hparams(self) -> collections.OrderedDict[str, Any]:
        """Returns the learning rate."""
        return self._sgd.initial_hparams()

    def check_model(self, spec: ModelSpec) -> None:
        """Raises unless a step of the model can be repeated and differentiated twice.

        Args:
          spec: The model.

        Raises:
          ValueError: If the model has an operation without a second-order gradient
            or one that draws other random numbers at every call, or sets its weights.
        """
        if self._local_epochs > 1:
            _check_replay(spec)

    def prepare(
        self, spec: ModelSpec, loop_implementation: tff.learning.LoopImplementation
    ) -> RunWork:
        """Builds the model twice; the loops are over the batches in RAM."""
        del loop_implementation
        # The metrics of steps that are differentiated once more must not count.
        model, replay = spec.build(), spec.build()
        return functools.partial(
            run_keep_trace, self._sgd, model, replay, local_epochs=self._local_epochs
        )


def _check_replay(spec: ModelSpec) -> None:
    """Raises unless a step of the model can be repeated and differentiated twice."""
    # Alone in a graph, so that what goes wrong is not reported from the depths of a
    # TFF computation.
    with tf.Graph().as_default():
        model = spec.build()

        @tf.function
        @autograph.as_written
        def probe(weights: Any, batch: Any, seed: tf.Tensor) -> Any:
            state = model.start(weights)
            return model.hessian_product(
                state, batch, seed, lambda gradients: gradients
            )

        try:
            function = probe.get_concrete_function(
                compat.type_to_tf_tensor_specs(spec.weights_type),
                compat.type_to_tf_tensor_specs(spec.data_type.element),
                tf.TensorSpec([2], tf.int64),
            )
        except Exception as error:
            # TensorFlow raises a LookupError, which AutoGraph turns into a private
            # kind of error.
            match = _NO_GRADIENT.search(str(error))
            if match is None:
                raise
            raise ValueError(
                f"model_fn: the model's operation {match[1] or match[2]} has no "
                "gradient, so that its loss cannot be differentiated twice, as UGA "
                "does with local_epochs above 1. Replace that part of the model."
            ) from error
        if model.sets_weights:
            raise ValueError(
                "model_fn: the model sets a trainable weight when it is called, and "
                "UGA's gradient with local_epochs above 1 does not pass through that. "
                "Compute with a changed weight in the layer, and do not assign it."
            )
    for node in nodes_of(function):
        if _RANDOM.fullmatch(node.op):
            raise ValueError(
                f"model_fn: the model's operation {node.op} draws other numbers at "
                "every call, and UGA must repeat local steps. Use "
                "tff_drift.layers.Dropout for tf.keras.layers.Dropout, or leave "
                "the random layer out."
            )
