"""A `ClientWorkProcess` of keep-trace gradient descent."""

from __future__ import annotations

import collections
import re
from typing import Any, Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat
from tff_drift.client_works.client_work import check_client_weighting, client_weight
from tff_drift.client_works.keep_trace import run_keep_trace
from tff_drift.client_works.local_models import ModelSpec
from tff_drift.client_works.local_work import LocalContext, LocalSgd
from tff_drift.client_works.round_state import build_round_state
from tff_drift.optimizers import schedules

# Operations that draw other numbers each time that they run.
_RANDOM = re.compile(
    r"Random(Uniform|UniformInt|StandardNormal|Gamma|Poisson(V2)?|Shuffle)"
    r"|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial"
    r"|Stateful(?!Partitioned).*|Rng(ReadAnd)?Skip"
)
# How TensorFlow names the operation that it cannot differentiate.
_NO_GRADIENT = re.compile(r"no entry for: (\w+)|op type: (\w+)")


def build_keep_trace_work(
    spec: ModelSpec,
    learning_rate: float,
    local_epochs: int,
    *,
    client_weighting: tff.learning.ClientWeighting,
    rate_schedule: schedules.Schedule | None = None,
    metrics_aggregator: Callable[[Any], Any] | None = None,
) -> tff.learning.templates.ClientWorkProcess:
    """Builds the clients' part of UGA, see `tff_drift.algorithms.build_uga`.

    The process has the functional type signatures of `build_client_work`'s; the
    update of a client is g, a gradient with respect to the server's weights.

    Args:
      spec: The model, see `build_model_spec`.
      learning_rate: η of the traced steps.
      local_epochs: E, the epochs that every client's dataset holds.
      client_weighting: Weight of a client in the aggregate: the number of
        examples it processed, or 1.
      rate_schedule: Multiplies η, as a function of the round number.
      metrics_aggregator: As in `tff.learning.algorithms`; the default is
        `tff.learning.metrics.sum_then_finalize`.

    Returns:
      A `tff.learning.templates.ClientWorkProcess`.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If `learning_rate` is not a finite positive number, `local_epochs`
        is below 1, or the model cannot be differentiated twice or replayed.
    """
    checks.check_positive("client_learning_rate", learning_rate)
    checks.check_integer("local_epochs", local_epochs)
    check_client_weighting(client_weighting)
    if local_epochs > 1:
        _check_replay(spec)
    aggregate_metrics = (metrics_aggregator or tff.learning.metrics.sum_then_finalize)(
        spec.metric_finalizers
    )
    sgd = LocalSgd(tff.learning.optimizers.build_sgdm(float(learning_rate)))
    round_state = build_round_state(sgd, rate_schedule)
    state_type = round_state.type_signature

    @compat.tf_computation(state_type, spec.weights_type, spec.data_type)
    def train(state: Any, weights: Any, dataset: tf.data.Dataset) -> Any:
        # The metrics of steps that are differentiated once more must not count.
        model, replay = spec.build(), spec.build()

        @tf.function
        def client_update(state: Any, weights: Any, dataset: tf.data.Dataset) -> Any:
            outcome = run_keep_trace(
                model,
                replay,
                weights,
                dataset,
                context=LocalContext(
                    tuple(tf.nest.flatten(weights.trainable)),
                    round_state.hparams_of_round(state),
                    state["round_number"],
                ),
                local_epochs=local_epochs,
            )
            result = tff.learning.templates.ClientResult(
                update=tf.nest.pack_sequence_as(weights.trainable, outcome.update),
                update_weight=client_weight(
                    client_weighting, outcome.num_examples, outcome.rejected
                ),
            )
            return result, outcome.metrics, tf.cast(outcome.rejected, tf.int32)

        return client_update(state, weights, dataset)

    @compat.federated_computation
    def initialize() -> Any:
        return compat.federated_eval(round_state.initialize, compat.SERVER)

    @compat.federated_computation(
        compat.FederatedType(state_type, compat.SERVER),
        compat.FederatedType(spec.weights_type, compat.CLIENTS),
        compat.FederatedType(spec.data_type, compat.CLIENTS),
    )
    def next_fn(state: Any, weights: Any, client_data: Any) -> Any:
        result, metrics, rejected = compat.federated_map(
            train, (compat.federated_broadcast(state), weights, client_data)
        )
        measurements = collections.OrderedDict(
            train=aggregate_metrics(metrics),
            rejected_clients=compat.federated_sum(rejected),
            learning_rate=compat.federated_map(round_state.learning_rate, state),
        )
        return tff.templates.MeasuredProcessOutput(
            compat.federated_map(round_state.advance, state),
            result,
            compat.federated_zip(measurements),
        )

    return tff.learning.templates.ClientWorkProcess(
        initialize,
        next_fn,
        get_hparams_fn=round_state.get_hparams,
        set_hparams_fn=round_state.set_hparams,
    )


def _check_replay(spec: ModelSpec) -> None:
    """Raises unless a step of the model can be repeated and differentiated twice."""
    # Alone in a graph, so that what goes wrong is not reported from the depths of a
    # TFF computation.
    with tf.Graph().as_default():
        model = spec.build()

        @tf.function
        def probe(weights: Any, batch: Any, seed: tf.Tensor) -> Any:
            state = model.start(weights)
            return model.hessian_product(state, batch, seed, model.trainable(state))

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
        graph = function.graph.as_graph_def()
    nodes = [*graph.node]
    for each in graph.library.function:
        nodes.extend(each.node_def)
    for node in nodes:
        if _RANDOM.fullmatch(node.op):
            raise ValueError(
                f"model_fn: the model's operation {node.op} draws other numbers at "
                "every call, and UGA must repeat local steps. Use "
                "tff_drift.client_works.Dropout for tf.keras.layers.Dropout, or leave "
                "the random layer out."
            )
