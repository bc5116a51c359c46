"""One view of the two kinds of models that TFF trains.

A `tff.learning.models.VariableModel` (what `from_keras_model` returns) keeps its
weights and metrics in TensorFlow variables; a
`tff.learning.models.FunctionalModel` takes weights as arguments and returns the
state of its metrics. Local training is written once, against `LocalModel`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph
from tff_drift.client_works.set_weights import may_be_set
from tff_drift.layers import step_seed
from tff_drift.models.functional import forward_pass
from tff_drift.tensors import Tensors

_SEED = "tff_drift/step_seed"


class StepResult(NamedTuple):
    """The result of one minibatch.

    Attributes:
      gradients: One dense tensor for each trainable weight, the gradient of the
        batch's mean loss.
      num_examples: Scalar `int64`, the number of examples in the batch.
      model_state: The model's state after the batch.
    """

    gradients: Tensors
    num_examples: tf.Tensor
    model_state: Any


class LocalModel(abc.ABC):
    """A model during one client's local training.

    Trainable weights are handled as a flat tuple of tensors. Whatever else
    changes from batch to batch travels in an opaque `model_state`.

    Attributes:
      sets_weights: Whether a call of the model may set its trainable weights, as some
        layers of Keras 2 do; known once `gradients` was called.
    """

    sets_weights = False

    @abc.abstractmethod
    def start(self, weights: tff.learning.models.ModelWeights) -> Any:
        """Returns the model state at the server's `weights`."""

    @abc.abstractmethod
    def trainable(self, model_state: Any) -> Tensors:
        """Returns the current trainable weights."""

    @abc.abstractmethod
    def non_trainable(self, weights: tff.learning.models.ModelWeights) -> Tensors:
        """Returns the other weights, after training that began at `weights`."""

    @abc.abstractmethod
    def replace_trainable(self, model_state: Any, trainable: Tensors) -> Any:
        """Returns the model state with other trainable weights."""

    @abc.abstractmethod
    def gradients(self, model_state: Any, batch: Any, seed: tf.Tensor) -> StepResult:
        """Runs the model on a batch, in training mode, and differentiates.

        Args:
          model_state: The state of the model.
          batch: A batch of the type of the model's `input_spec`.
          seed: An `int64[2]` tensor, the seed of this step's dropout masks.

        Returns:
          A `StepResult`.
        """

    def gradients_at(
        self, trainable: Tensors, model_state: Any, batch: Any, seed: tf.Tensor
    ) -> StepResult:
        """As `gradients`, of a model that stays where it is, whatever its call sets.

        Args:
          trainable: The trainable weights that `model_state` has.
          model_state: As for `gradients`, as the others.
          batch: Likewise.
          seed: Likewise.

        Returns:
          A `StepResult`.
        """
        result = self.gradients(model_state, batch, seed)
        if not self.sets_weights:
            return result
        return result._replace(
            model_state=self.replace_trainable(result.model_state, trainable)
        )

    def hessian_product(
        self,
        model_state: Any,
        batch: Any,
        seed: tf.Tensor,
        vector_of: Callable[[Tensors], Tensors],
    ) -> Tensors:
        """Returns H v, with H the Hessian of a batch's mean loss.

        It is the gradient of v'∇L, by differentiating the backward pass: the default
        recurrent layers of Keras give wrong numbers the other way round. The metrics
        count the batch once more.

        Args:
          model_state: The state of the model.
          batch: A batch of the type of the model's `input_spec`.
          seed: The seed of the dropout masks, as for `gradients`.
          vector_of: v, like the trainable weights, as a function of the batch's
            gradient.

        Returns:
          One dense tensor for each trainable weight.

        Raises:
          LookupError: If an operation of the backward pass has no gradient.
        """
        weights = self._differentiated(model_state)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            gradients = self.gradients(model_state, batch, seed).gradients
        products = tape.gradient(
            gradients,
            weights,
            output_gradients=list(vector_of(gradients)),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        # A sum of slices, as embeddings have, does not know its shape.
        return tuple(
            tf.ensure_shape(product, weight.shape)
            for product, weight in zip(_dense(products), weights, strict=True)
        )

    def _differentiated(self, model_state: Any) -> Sequence[Any]:
        """Returns by what `gradients` differentiates, tensors or variables."""
        return self.trainable(model_state)

    @abc.abstractmethod
    def metrics(self, model_state: Any, discard: tf.Tensor) -> Any:
        """Returns the unfinalized metrics of the batches seen.

        Args:
          model_state: The state of the model.
          discard: Scalar boolean; when true, the metrics of a model that has
            seen nothing.
        """


class _VariableLocalModel(LocalModel):
    """A `VariableModel`: all state is in its variables."""

    def __init__(self, model: tff.learning.models.VariableModel) -> None:
        # Methods that are a `tf.function` do not keep their object alive.
        self._model = model
        self._forward_pass = autograph.of_user(model.forward_pass)
        self._reset_metrics = autograph.of_user(model.reset_metrics)
        self._report_metrics = autograph.of_user(model.report_local_unfinalized_metrics)
        self._weights = tff.learning.models.ModelWeights.from_model(model)
        self._trainable = tf.nest.flatten(self._weights.trainable)
        self._seed = tf.Variable(tf.zeros([2], tf.int64), trainable=False)

    def start(self, weights: tff.learning.models.ModelWeights) -> Any:
        tf.nest.map_structure(
            lambda variable, value: variable.assign(value), self._weights, weights
        )
        return ()

    def trainable(self, model_state: Any) -> Tensors:
        return tuple(variable.read_value() for variable in self._trainable)

    def non_trainable(self, weights: tff.learning.models.ModelWeights) -> Tensors:
        return tuple(
            variable.read_value()
            for variable in tf.nest.flatten(self._weights.non_trainable)
        )

    def replace_trainable(self, model_state: Any, trainable: Tensors) -> Any:
        for variable, value in zip(self._trainable, trainable, strict=True):
            variable.assign(value)
        return model_state

    def gradients(self, model_state: Any, batch: Any, seed: tf.Tensor) -> StepResult:
        before = _operations()
        self._seed.assign(seed)
        with step_seed.step_seed(self._seed), tf.GradientTape() as tape:
            output = self._forward_pass(batch, training=True)
        # Nobody sees what was done eagerly.
        self.sets_weights = tf.executing_eagerly() or may_be_set(
            self._trainable, _operations()[len(before) :]
        )
        gradients = tape.gradient(
            output.loss,
            self._trainable,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        if output.num_examples is None:
            num_examples = tf.shape(tf.nest.flatten(output.predictions)[0])[0]
        else:
            num_examples = output.num_examples
        return StepResult(
            _dense(gradients), tf.cast(num_examples, tf.int64), model_state
        )

    def _differentiated(self, model_state: Any) -> Sequence[Any]:
        return self._trainable

    def metrics(self, model_state: Any, discard: tf.Tensor) -> Any:
        def reset() -> tf.Tensor:
            self._reset_metrics()
            return discard

        tf.cond(discard, reset, lambda: discard)
        return self._report_metrics()


class _FunctionalLocalModel(LocalModel):
    """A `FunctionalModel`: all state is in `(trainable, rest, metrics)`.

    Each of the three is a flat tuple: `dataset.reduce` takes a list for one tensor.
    """

    def __init__(self, model: tff.learning.models.FunctionalModel) -> None:
        self._model = model
        self._metrics_state: Any = None
        self._seed = _graph_seed()

    def start(self, weights: tff.learning.models.ModelWeights) -> Any:
        metrics_state = autograph.of_user(self._model.initialize_metrics_state)()
        self._metrics_state = tf.nest.map_structure(lambda _: None, metrics_state)
        return tuple(_flat(part) for part in (*weights, metrics_state))

    def trainable(self, model_state: Any) -> Tensors:
        return model_state[0]

    def non_trainable(self, weights: tff.learning.models.ModelWeights) -> Tensors:
        return _flat(weights.non_trainable)  # Which no call sets.

    def replace_trainable(self, model_state: Any, trainable: Tensors) -> Any:
        return (trainable, *model_state[1:])

    def gradients(self, model_state: Any, batch: Any, seed: tf.Tensor) -> StepResult:
        trainable, rest, metrics_state = model_state
        self._seed.assign(seed)
        with step_seed.step_seed(self._seed), tf.GradientTape() as tape:
            tape.watch(trainable)
            weights = tuple(
                tf.nest.pack_sequence_as(structure, part)
                for structure, part in zip(
                    self._model.initial_weights, (trainable, rest), strict=True
                )
            )
            output, update_metrics = forward_pass(self._model, weights, batch)
        gradients = tape.gradient(
            output.loss, trainable, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        new_metrics_state = update_metrics(self._pack_metrics(metrics_state))
        return StepResult(
            _dense(gradients),
            tf.cast(output.num_examples, tf.int64),
            (trainable, rest, _flat(new_metrics_state)),
        )

    def _pack_metrics(self, metrics_state: Tensors) -> Any:
        return tf.nest.pack_sequence_as(self._metrics_state, metrics_state)

    def metrics(self, model_state: Any, discard: tf.Tensor) -> Any:
        return tf.cond(
            discard,
            autograph.of_user(self._model.initialize_metrics_state),
            lambda: self._pack_metrics(model_state[2]),
        )


def build_local_model(
    model: tff.learning.models.VariableModel | tff.learning.models.FunctionalModel,
) -> LocalModel:
    """Returns the view of a model in the current graph.

    Args:
      model: The model.
    """
    if isinstance(model, tff.learning.models.FunctionalModel):
        return _FunctionalLocalModel(model)
    return _VariableLocalModel(model)


def _operations() -> list[tf.Operation]:
    """Returns the operations of the present graph, none where TensorFlow is eager."""
    if tf.executing_eagerly():
        return []
    return tf.compat.v1.get_default_graph().get_operations()


def _flat(structure: Any) -> Tensors:
    return tuple(tf.nest.flatten(structure))


def _graph_seed() -> tf.Variable:
    """Returns the variable of a graph that holds the seed of a step.

    A functional model is traced once in a graph, however many local models of it are
    built there, so that they have to share the seed.
    """
    shared = [] if tf.executing_eagerly() else tf.compat.v1.get_collection_ref(_SEED)
    if not shared:
        shared.append(tf.Variable(tf.zeros([2], tf.int64), trainable=False))
    return shared[0]


def _dense(gradients: Any) -> Tensors:
    return tuple(tf.convert_to_tensor(gradient) for gradient in gradients)
