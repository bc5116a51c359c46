"""A `ClientWorkProcess` of keep-trace gradient descent."""

from __future__ import annotations

import re
from typing import Any, Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat
from tff_drift.client_works.client_work import (
    RunWork,
    build_work_process,
    check_client_weighting,
)
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

    def prepare() -> RunWork:
        # The metrics of steps that are differentiated once more must not count.
        model, replay = spec.build(), spec.build()

        def run(weights: Any, dataset: tf.data.Dataset, context: LocalContext) -> Any:
            return run_keep_trace(
                model,
                replay,
                weights,
                dataset,
                context=context,
                local_epochs=local_epochs,
            )

        return run

    sgd = LocalSgd(tff.learning.optimizers.build_sgdm(float(learning_rate)))
    return build_work_process(
        spec,
        build_round_state(sgd, rate_schedule),
        prepare,
        client_weighting=client_weighting,
        metrics_aggregator=metrics_aggregator,
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
                "tff_drift.layers.Dropout for tf.keras.layers.Dropout, or leave "
                "the random layer out."
            )
