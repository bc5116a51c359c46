"""A `ClientWorkProcess` for any local work."""

from __future__ import annotations

import collections
from typing import Any, Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, compat, tensors
from tff_drift.client_works.local_models import ModelSpec
from tff_drift.client_works.local_work import ClientWork, LocalContext
from tff_drift.client_works.round_state import build_round_state
from tff_drift.optimizers import schedules


def build_client_work(
    spec: ModelSpec,
    work: ClientWork,
    *,
    client_weighting: tff.learning.ClientWeighting,
    rate_schedule: schedules.Schedule | None = None,
    metrics_aggregator: Callable[[Any], Any] | None = None,
    loop_implementation: tff.learning.LoopImplementation | None = None,
) -> tff.learning.templates.ClientWorkProcess:
    """Builds the clients' part of a learning process.

    The process has the functional type signatures

    *   `initialize`: `( -> S@SERVER)`, where `S` is `<round_number=int32,
        hparams=H>` and `H` the hyperparameters of `work`.
    *   `next`: `(<S@SERVER, {W}@CLIENTS, {B*}@CLIENTS> -> <state=S@SERVER,
        result={<update=T, update_weight=float32>}@CLIENTS,
        measurements=M@SERVER>)`, with `W` the model's weights, `B` a batch, `T`
        the trainable weights.

    `M` holds `train`, the model's metrics over all local batches of the round;
    `rejected_clients`, the `int32` number of clients whose update was not finite
    and therefore not counted; `learning_rate`, the local step size of the
    round, if the work has one; and `drift`, the mean L2 norm of the clients' updates,
    ‖x - y_i‖ where these are pseudo-gradients.

    Args:
      spec: The model, see `build_model_spec`.
      work: The client's half of the method.
      client_weighting: Weight of a client in the aggregate: the number of
        examples it trained on, or 1; in both cases 0 without examples.
      rate_schedule: Multiplies the local learning rate, as a function of the
        round number, which starts at 0. By default the rate is constant.
      metrics_aggregator: As in `tff.learning.algorithms`; the default is
        `tff.learning.metrics.sum_then_finalize`.
      loop_implementation: How the loop over a client's batches is built. The
        default depends on the kind of model.

    Returns:
      A `tff.learning.templates.ClientWorkProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If there is a schedule and no learning rate for it, or clients
        cannot do this work with the model.
    """
    checks.check_instance("spec", spec, ModelSpec, "what build_model_spec returns")
    checks.check_instance("work", work, ClientWork, "a client_works.ClientWork")
    check_client_weighting(client_weighting)
    check_loop_implementation(loop_implementation)
    work.check_model(spec)
    round_state = build_round_state(work, rate_schedule)
    aggregate_metrics = build_metrics_aggregation(metrics_aggregator, spec)
    state_type = round_state.type_signature

    @compat.tf_computation(state_type, spec.weights_type, spec.data_type)
    def train(state: Any, weights: Any, dataset: tf.data.Dataset) -> Any:
        run = work.prepare(spec, loop_implementation or spec.loop_implementation)

        @tf.function
        def client_update(state: Any, weights: Any, dataset: tf.data.Dataset) -> Any:
            context = LocalContext(
                tuple(tf.nest.flatten(weights.trainable)),
                round_state.hparams_of_round(state),
                state["round_number"],
            )
            outcome = run(weights, dataset, context)
            result = tff.learning.templates.ClientResult(
                update=tf.nest.pack_sequence_as(weights.trainable, outcome.update),
                update_weight=client_weight(
                    client_weighting, outcome.num_examples, outcome.rejected
                ),
            )
            sums = collections.OrderedDict(
                rejected=tf.cast(outcome.rejected, tf.int32),
                # A rejected update is zero.
                drift=tensors.global_norm(outcome.update),
                clients=tf.cast(result.update_weight > 0, tf.float32),
            )
            return result, outcome.metrics, sums

        return client_update(state, weights, dataset)

    @compat.tf_computation(train.type_signature.result[2])
    def mean_drift(sums: Any) -> Any:
        return tf.math.divide_no_nan(sums["drift"], sums["clients"])

    @compat.federated_computation
    def initialize() -> Any:
        return compat.federated_eval(round_state.initialize, compat.SERVER)

    @compat.federated_computation(
        compat.FederatedType(state_type, compat.SERVER),
        compat.FederatedType(spec.weights_type, compat.CLIENTS),
        compat.FederatedType(spec.data_type, compat.CLIENTS),
    )
    def next_fn(state: Any, weights: Any, client_data: Any) -> Any:
        state_at_clients = compat.federated_broadcast(state)
        result, metrics, of_clients = compat.federated_map(
            train, (state_at_clients, weights, client_data)
        )
        sums = compat.federated_sum(of_clients)
        measurements = collections.OrderedDict(
            train=aggregate_metrics(metrics),
            rejected_clients=sums.rejected,
        )
        if round_state.learning_rate is not None:
            measurements["learning_rate"] = compat.federated_map(
                round_state.learning_rate, state
            )
        measurements["drift"] = compat.federated_map(mean_drift, sums)
        return tff.templates.MeasuredProcessOutput(
            state=compat.federated_map(round_state.advance, state),
            result=result,
            measurements=compat.federated_zip(measurements),
        )

    return tff.learning.templates.ClientWorkProcess(
        initialize,
        next_fn,
        get_hparams_fn=round_state.get_hparams,
        set_hparams_fn=round_state.set_hparams,
    )


def client_weight(
    weighting: tff.learning.ClientWeighting,
    num_examples: tf.Tensor,
    rejected: tf.Tensor,
) -> tf.Tensor:
    """Returns a client's weight in the aggregate.

    It is 0 if the update was rejected, and if the client trained on nothing: it would
    otherwise hold the mean back where it was.

    Args:
      weighting: By the number of examples, or uniform.
      num_examples: Scalar `int64`, the examples the client trained on.
      rejected: Scalar boolean.

    Returns:
      A `float32` scalar.
    """
    weight = tf.cast(num_examples, tf.float32)
    if weighting == tff.learning.ClientWeighting.UNIFORM:
        weight = tf.minimum(weight, 1.0)
    return tf.where(rejected, tf.constant(0.0), weight)


def check_client_weighting(client_weighting: Any) -> None:
    """Raises unless `client_weighting` is a `tff.learning.ClientWeighting`.

    Args:
      client_weighting: The value to check.

    Raises:
      TypeError: If it is anything else.
    """
    if not isinstance(client_weighting, tff.learning.ClientWeighting):
        raise TypeError(
            "client_weighting must be tff.learning.ClientWeighting.NUM_EXAMPLES or "
            f"UNIFORM, found {client_weighting!r}."
        )


def check_loop_implementation(loop_implementation: Any) -> None:
    """Raises unless a value is a `tff.learning.LoopImplementation` or `None`.

    Args:
      loop_implementation: The value to check.

    Raises:
      TypeError: If it is anything else.
    """
    if loop_implementation is not None:
        checks.check_instance(
            "loop_implementation",
            loop_implementation,
            tff.learning.LoopImplementation,
            "tff.learning.LoopImplementation.DATASET_REDUCE or DATASET_ITERATOR",
        )


def build_metrics_aggregation(
    metrics_aggregator: Callable[[Any], Any] | None, spec: ModelSpec
) -> Any:
    """Returns the computation that aggregates the clients' training metrics.

    Args:
      metrics_aggregator: Makes it, given the model's metric finalizers; `None` sums.
      spec: The model.

    Returns:
      What `metrics_aggregator` returns.

    Raises:
      TypeError: If `metrics_aggregator` is no function, or fails or returns none.
    """
    name = "metrics_aggregator"
    if metrics_aggregator is None:
        metrics_aggregator = tff.learning.metrics.sum_then_finalize
    what = "a function such as tff.learning.metrics.sum_then_finalize"
    checks.check_callable(name, metrics_aggregator, what)
    try:
        aggregation = metrics_aggregator(spec.metric_finalizers)
    except TypeError as error:
        raise TypeError(
            f"{name} must be {what}, found {metrics_aggregator!r}, which fails on the "
            f"model's metric finalizers: {error}"
        ) from error
    checks.check_callable(f"what {name} returns", aggregation, "a tff.Computation")
    return aggregation


def check_batches(name: str, batches: Any, data_type: compat.SequenceType) -> None:
    """Raises unless `batches` is a dataset that a client could have.

    Args:
      name: The argument that holds it.
      batches: The value to check.
      data_type: The type of a client's dataset.

    Raises:
      TypeError: If it is no dataset, or one of another type.
    """
    checks.check_instance(
        "data_type", data_type, compat.SequenceType, "a tff.SequenceType"
    )
    if not isinstance(batches, tf.data.Dataset):
        raise TypeError(
            f"{name} must be a tf.data.Dataset of batches, found "
            f"{type(batches).__name__}. For arrays: "
            "tf.data.Dataset.from_tensor_slices(arrays).batch(size)."
        )
    found = compat.tensorflow_to_type(batches.element_spec)
    if not data_type.element.is_assignable_from(found):
        raise TypeError(
            f"{name} must have batches of the type that the model takes, "
            f"{data_type.element}, found {found}."
        )
