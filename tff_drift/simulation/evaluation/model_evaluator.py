"""A model's metrics on batches, in process and without training.

TFF calls a user's model while it builds graphs, and some models
(`tff.learning.models.functional_model_from_keras`) refuse to run anywhere else.
The evaluator therefore builds the model once in a graph of its own, as TFF does,
and runs it in sessions: nothing is traced or allocated anew from one evaluation
to the next.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks
from tff_drift.models import (
    HasKerasWeights,
    ModelFn,
    build_variable_model,
    check_model_fn,
    functional,
    value_files,
)
from tff_drift.simulation.data import model_fit
from tff_drift.simulation.evaluation.sessions import Sessions

# Sums of more batches than that are not left to the metrics' own variables, float32.
_BATCHES_IN_A_SUM = 64
_LIBRARIES = ("keras", "tf_keras", "tensorflow_federated")


def added(totals: Sequence[np.ndarray], more: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Adds leaves of unfinalized metrics, floats in double precision.

    Args:
      totals: What it returned before; empty at first.
      more: What is added to it.
    """
    leaves = [np.asarray(leaf) for leaf in more]
    if not totals:
        totals = [
            np.zeros(leaf.shape, np.float64 if leaf.dtype.kind == "f" else leaf.dtype)
            for leaf in leaves
        ]
    return [total + leaf for total, leaf in zip(totals, leaves, strict=True)]


class _FunctionalModelWithVariables:
    """Gives a functional model the metrics protocol of a variable model.

    It reports `loss`, the mean over examples, and `num_examples` too, unless the
    model's own metrics have these names.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        trainable, non_trainable = tf.nest.map_structure(
            value_files.constant, model.initial_weights
        )
        self.trainable_variables = [tf.Variable(value) for value in trainable]
        self.non_trainable_variables = [
            tf.Variable(value, trainable=False) for value in non_trainable
        ]
        # The state of the model's metrics, the sum of losses, and the examples.
        no_examples = tf.constant(0, tf.int64)
        self._initial = model.initialize_metrics_state(), tf.constant(0.0), no_examples
        self._sums = tf.nest.map_structure(tf.Variable, self._initial)

    def reset_metrics(self) -> None:
        self._assign(self._initial)

    def _assign(self, sums: Any) -> None:
        tf.nest.map_structure(
            lambda variable, value: variable.assign(value), self._sums, sums
        )

    def forward_pass(self, batch: Any, training: bool) -> None:
        weights = tuple(
            tuple(variable.read_value() for variable in variables)
            for variables in (self.trainable_variables, self.non_trainable_variables)
        )
        output, update = functional.forward_pass(self._model, weights, batch, training)
        state, loss_sum, count = self.report_local_unfinalized_metrics()
        num_examples = tf.cast(output.num_examples, tf.float32)
        loss_sum += tf.cast(output.loss, tf.float32) * num_examples
        count += tf.cast(output.num_examples, tf.int64)
        self._assign((update(state), loss_sum, count))

    def report_local_unfinalized_metrics(self) -> Any:
        return tf.nest.map_structure(lambda each: each.read_value(), self._sums)

    def finalize(self, unfinalized: Any) -> Mapping[str, Any]:
        state, loss_sum, num_examples = unfinalized
        defaults = collections.OrderedDict(
            loss=tf.math.divide_no_nan(loss_sum, tf.cast(num_examples, tf.float32)),
            num_examples=num_examples,
        )
        return collections.OrderedDict(defaults, **self._model.finalize_metrics(state))


def _finalize_each(model: Any, unfinalized: Mapping[str, Any]) -> Mapping[str, Any]:
    finalizers = model.metric_finalizers()
    return collections.OrderedDict(
        (name, finalizers[name](value)) for name, value in unfinalized.items()
    )


def _are_sums(model: Any) -> bool:
    """Returns whether metrics of parts of a client's batches can be added.

    Keras' and TFF's own can. One of a user's, such as a maximum, may not.
    """
    if isinstance(model, _FunctionalModelWithVariables):
        return not tf.nest.flatten(model._initial[0])
    if not isinstance(model, HasKerasWeights):
        return False
    metrics = (
        each for each in model.losses_and_metrics if hasattr(each, "reset_state")
    )
    return all(
        type(each).__module__.partition(".")[0] in _LIBRARIES for each in metrics
    )


def _placeholders(structure: Any) -> Any:
    return tf.nest.map_structure(
        lambda leaf: tf.compat.v1.placeholder(leaf.dtype, leaf.shape), structure
    )


class ModelEvaluator:
    """Evaluates a model on batches under given weights.

    Attributes:
      input_spec: The `tf.TensorSpec`s of the batches that the model takes.
      metric_names: The names of the model's metrics.
      number_names: The names of those that are one number each, not nested.
    """

    def __init__(self, model_fn: ModelFn, element_spec: Any) -> None:
        """Builds the model.

        Args:
          model_fn: A function that builds a `tff.learning.models.VariableModel`,
            or a `tff.learning.models.FunctionalModel`.
          element_spec: The `tf.TensorSpec` structure of a batch, with `x` and `y`
            or a pair.

        Raises:
          TypeError: If `model_fn` is neither, or batches of `element_spec` have
            another structure, shape or kind than the model's.
        """
        with tf.Graph().as_default() as graph:
            variables: list[tf.Variable] = []

            def recorded(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
                variables.append(next_creator(**kwargs))
                return variables[-1]

            with tf.variable_creator_scope(recorded), value_files.left_out():
                self._build(model_fn, element_spec)
            initializers = [variable.initializer for variable in variables]
            initializers.append(tf.compat.v1.tables_initializer())
        graph.finalize()
        self._sessions = Sessions(graph, initializers)

    def _build(self, model_fn: ModelFn, element_spec: Any) -> None:
        check_model_fn(model_fn)
        if isinstance(model_fn, tff.learning.models.FunctionalModel):
            functional.check_functional_model(model_fn)
            model: Any = _FunctionalModelWithVariables(model_fn)
            self.input_spec = model_fn.input_spec
            finalize = model.finalize
        else:
            model = build_variable_model(model_fn)
            self.input_spec = model.input_spec
            finalize = functools.partial(_finalize_each, model)
        self._are_sums = _are_sums(model)
        self._build_assignment(model)
        model_fit.check_fit("test", element_spec, self.input_spec)
        batch = _placeholders(model_fit.as_taken(element_spec, self.input_spec))
        self._batch_inputs = tf.nest.flatten(batch)

        forward_pass = autograph.of_user(model.forward_pass)
        reset_metrics = autograph.of_user(model.reset_metrics)
        report_metrics = autograph.of_user(model.report_local_unfinalized_metrics)

        # A tf.function runs its stateful operations in the order of its lines.
        @tf.function
        @autograph.as_written
        def reset() -> tf.Tensor:
            reset_metrics()
            return tf.constant(0)

        @tf.function
        @autograph.as_written
        def evaluate(batch: Any) -> Any:
            forward_pass(batch, training=False)
            # Models may report their variables, which have to be read here.
            return tf.nest.map_structure(tf.convert_to_tensor, report_metrics())

        self._reset = reset()
        unfinalized = evaluate(batch)
        self._unfinalized = tf.nest.flatten(unfinalized)
        totals = _placeholders(unfinalized)
        self._totals = tf.nest.flatten(totals)
        self._finalized = dict(finalize(totals))
        self.metric_names = tuple(self._finalized)
        self.number_names = tuple(
            name
            for name, value in self._finalized.items()
            if tf.is_tensor(value) and value.shape.num_elements() in (1, None)
        )

    def _build_assignment(self, model: Any) -> None:
        variables = [*model.trainable_variables, *model.non_trainable_variables]
        self._weights = [
            tf.compat.v1.placeholder(variable.dtype, variable.shape)
            for variable in variables
        ]
        self._assign = [
            variable.assign(value, read_value=False)
            for variable, value in zip(variables, self._weights, strict=True)
        ]

    def assign(self, model_weights: Any) -> None:
        """Gives the model its weights.

        Args:
          model_weights: A `tff.learning.models.ModelWeights` of arrays.

        Raises:
          TypeError: If it is something else.
          ValueError: If number or shapes of the weights are not the model's.
        """
        # Keras' models have an attribute `trainable`, too.
        if not hasattr(model_weights, "non_trainable"):
            raise TypeError(
                "model_weights must be a tff.learning.models.ModelWeights, as "
                "process.get_model_weights, or ModelWeights.from_model of a model of "
                f"tf.keras, returns, found {checks.shown(model_weights)}."
            )
        both = model_weights.trainable, model_weights.non_trainable
        values = [np.asarray(value) for value in tf.nest.flatten(both)]
        shapes = [value.shape for value in values]
        expected = [tuple(weight.shape.as_list()) for weight in self._weights]
        if shapes != expected:
            raise ValueError(
                f"model_weights has arrays of shapes {checks.shortened(shapes)}, but "
                f"the model of model_fn has {checks.shortened(expected)}. Give its own."
            )
        feeds = dict(zip(self._weights, values, strict=True))
        self._sessions.assign(self._assign, feeds)

    def unfinalized_metrics(self, batches: Sequence[Any]) -> list[np.ndarray]:
        """Returns the model's sums over some batches; threads may ask side by side.

        Args:
          batches: Structures of arrays like `element_spec`, at least one.

        Returns:
          The leaves of the model's unfinalized metrics.
        """
        totals: list[np.ndarray] = []
        unfinalized: list[np.ndarray] = []
        with self._sessions.borrowed() as session:
            session.run(self._reset)
            for count, batch in enumerate(batches):
                if self._are_sums and count and count % _BATCHES_IN_A_SUM == 0:
                    totals = added(totals, unfinalized)
                    session.run(self._reset)
                flat = tf.nest.flatten(batch)
                feeds = dict(zip(self._batch_inputs, flat, strict=True))
                unfinalized = session.run(self._unfinalized, feeds)
        return added(totals, unfinalized) if totals else unfinalized

    def finalize(
        self, unfinalized: Sequence[np.ndarray], names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Returns metrics of sums.

        Args:
          unfinalized: What `unfinalized_metrics` returns, or sums of such leaves.
          names: The metrics wanted; by default all of them.

        Returns:
          The metrics by name.
        """
        names = self.metric_names if names is None else names
        wanted = {name: self._finalized[name] for name in names}
        feeds = dict(zip(self._totals, unfinalized, strict=True))
        with self._sessions.borrowed() as session:
            metrics = session.run(wanted, feeds)
        # NumPy scalars rather than arrays without dimensions.
        return tf.nest.map_structure(lambda value: np.asarray(value)[()], metrics)
