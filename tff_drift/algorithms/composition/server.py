"""The server's computations."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import autograph, checks, client_works, compat, returned
from tff_drift.algorithms.composition.aggregation import CohortAggregation
from tff_drift.algorithms.composition.server_state import Accessors, replace
from tff_drift.algorithms.server_steps import (
    Cohort,
    ServerStep,
    aggregate_model,
    take_step,
)
from tff_drift.client_works import round_state
from tff_drift.tensors import Tensors, global_norm, selected, to_vector

AGGREGATE = "aggregate"
CLOUD = "cloud"
AVERAGE = "average"
EVALUATED_MODELS = (AGGREGATE, CLOUD, AVERAGE)

# What the clients report of themselves, summed over the cohort. `steps` and
# `squared_drift` are multiplied by the clients' weights.
SUMS_TYPE = compat.to_type(
    collections.OrderedDict(
        cohort=np.float32,
        clients=np.float32,
        weight=np.float32,
        squared_weight=np.float32,
        steps=np.float32,
        examples=np.float32,
        drift=np.float32,
        squared_drift=np.float32,
        rejected=np.int32,
    )
)


class ServerHalf(NamedTuple):
    """The server's computations.

    Attributes:
      initialize: `( -> S@SERVER)`.
      next: `(<F, R, W, T, <sums, message>> -> <state=F, weights=W, measurements,
        drift>)`: the server step, of the finalizer's state, the round's state, the
        weights, the mean pseudo-gradient, the sums of what clients report, and the
        mean of their messages if these are averaged.
      accessors: The process's other computations.
    """

    initialize: compat.Computation
    next: compat.Computation
    accessors: Accessors


def build_message(
    server_step: ServerStep,
    step_state_type: compat.Type,
    control_variate_type: compat.Type | None,
) -> compat.Computation:
    """Builds `(<F> -> M)` or `(<F, V> -> M)`, what clients receive besides the model.

    Args:
      server_step: The server's half of the method.
      step_state_type: `F`, the type of its state.
      control_variate_type: `V`, the type of the control variate that the aggregation
        holds; None if it holds none.

    Returns:
      The computation.
    """

    def message_of_step(state: Any) -> Any:
        return returned.result_of(server_step, "message", state)

    if control_variate_type is None:
        return compat.tf_computation(message_of_step, step_state_type)

    def with_control_variate(state: Any, control_variate: Any) -> Any:
        message = message_of_step(state)
        if isinstance(message, tuple) and not message:
            return control_variate
        return collections.OrderedDict(control_variate=control_variate, step=message)

    return compat.tf_computation(
        with_control_variate, step_state_type, control_variate_type
    )


def build_initial_step_state(
    spec: client_works.ModelSpec, server_step: ServerStep
) -> compat.Computation:
    """Builds `(<W> -> F)`, the server step's first state at the initial weights."""

    @compat.tf_computation(spec.weights_type)
    def initial_step_state(weights: Any) -> Any:
        trainable = tuple(tf.nest.flatten(weights.trainable))
        return returned.result_of(server_step, "initial_state", trainable)

    return initial_step_state


def build_server_half(
    spec: client_works.ModelSpec,
    rounds: round_state.RoundState,
    server_step: ServerStep,
    initial_step_state: compat.Computation,
    distributor: tff.learning.templates.DistributionProcess,
    aggregation: CohortAggregation,
    *,
    evaluated_model: str,
    reports_model_norm: bool,
) -> ServerHalf:
    """Builds the server's computations.

    Args:
      spec: The model.
      rounds: The round's state.
      server_step: The server's half of the method.
      initial_step_state: See `build_initial_step_state`.
      distributor: How the server sends the model.
      aggregation: How what the clients send is aggregated.
      evaluated_model: Which model `get_model_weights` returns, of `EVALUATED_MODELS`.
      reports_model_norm: Whether the norm of the model is among the measurements.

    Returns:
      The computations.
    """

    @compat.federated_computation
    def initialize() -> Any:
        weights = compat.federated_eval(spec.initial_weights, compat.SERVER)
        return compat.federated_zip(
            tff.learning.templates.LearningAlgorithmState(
                global_model_weights=weights,
                distributor=distributor.initialize(),
                client_work=compat.federated_eval(rounds.initialize, compat.SERVER),
                aggregator=aggregation.initialize(),
                finalizer=compat.federated_map(initial_step_state, weights),
            )
        )

    state_type = initialize.type_signature.result.member
    reports_type = collections.OrderedDict[str, Any](sums=SUMS_TYPE)
    if aggregation.mean_message_type is not None:
        reports_type["message"] = aggregation.mean_message_type
    return ServerHalf(
        initialize,
        _build_next(
            spec,
            rounds,
            server_step,
            state_type.finalizer,
            compat.to_type(reports_type),
            reports_model_norm,
            aggregation.has_weights,
        ),
        _build_accessors(server_step, aggregation, evaluated_model, state_type),
    )


def _build_next(
    spec: client_works.ModelSpec,
    rounds: round_state.RoundState,
    server_step: ServerStep,
    step_state_type: compat.Type,
    reports_type: compat.Type,
    reports_model_norm: bool,
    has_weights: bool,
) -> compat.Computation:
    """Builds `ServerHalf.next`.

    A round changes nothing on the server in which no client counts, or whose aggregate
    or new model is not finite, or whose aggregate is zero in every entry, as that of
    clients without weight is: momentum and weight decay shall not move the model on
    behalf of nobody. Schedules go on, as a function of the round number.
    """

    @compat.tf_computation(
        step_state_type,
        rounds.type_signature,
        spec.weights_type,
        spec.weights_type.trainable,
        reports_type,
    )
    @tf.function
    @autograph.as_written
    def server_next(
        step_state: Any, state: Any, weights: Any, update: Any, reports: Any
    ) -> Any:
        sums = reports["sums"]
        trainable = tuple(tf.nest.flatten(weights.trainable))
        pseudo_gradient = tuple(tf.nest.flatten(update))

        def mean(
            name: str, over: str = "clients", dtype: tf.DType = tf.float32
        ) -> tf.Tensor:
            # Half precision has no place for the sum of many clients.
            wide = tf.float64 if dtype == tf.float64 else tf.float32
            quotient = tf.math.divide_no_nan(
                tf.cast(sums[name], wide), tf.cast(sums[over], wide)
            )
            return tf.cast(quotient, dtype)

        client_hparams = dict(rounds.hparams_of_round(state))
        cohort = Cohort(
            num_clients=sums["clients"],
            total_weight=sums["weight"],
            effective_clients=tf.math.divide_no_nan(
                sums["weight"], mean("squared_weight", over="weight")
            ),
            mean_steps=mean("steps", "weight", pseudo_gradient[0].dtype),
            mean_examples=mean("examples"),
            mean_squared_drift=mean("squared_drift", over="weight"),
            learning_rate=client_hparams.get(round_state.RATE),
            round_number=state["round_number"],
            message=reports.get("message", ()),
            client_hparams=client_hparams,
            mean_scale=1.0 if has_weights else mean("cohort"),
        )
        result = take_step(server_step, step_state, trainable, pseudo_gradient, cohort)
        # The model too: a step may take more of the clients than their mean.
        finite = _all(tf.math.is_finite, (*pseudo_gradient, *result.trainable))
        is_zero = _all(lambda tensor: tf.equal(tensor, 0), pseudo_gradient)
        counts = finite & ~is_zero & (sums["clients"] > 0)
        passed = returned.as_like(
            f"The state that pass_round of {type(server_step).__name__} returns",
            autograph.of_user(server_step.pass_round)(step_state),
            step_state,
        )
        step_state = selected(counts, result.state, passed)
        trainable = selected(counts, result.trainable, trainable)
        measurements = collections.OrderedDict(
            update_non_finite=tf.cast(tf.logical_not(finite), tf.int32)
        )
        if reports_model_norm:
            measurements["model_norm"] = global_norm(trainable)
        measurements["pseudo_gradient_norm"] = global_norm(pseudo_gradient)
        taken = [name for name in measurements if name in result.measurements]
        if taken:
            raise ValueError(
                f"The measurements that next of {type(server_step).__name__} returns "
                f"hold {checks.listed(taken)}, a name of the library's own. Give it "
                "another name."
            )
        measurements.update(result.measurements)
        return collections.OrderedDict(
            state=step_state,
            weights=tff.learning.models.ModelWeights(
                tf.nest.pack_sequence_as(weights.trainable, trainable),
                weights.non_trainable,
            ),
            measurements=measurements,
            drift=mean("drift"),
        )

    return server_next


def _all(holds: Callable[[tf.Tensor], tf.Tensor], tensors: Tensors) -> tf.Tensor:
    """Returns whether something holds of every entry of some tensors."""
    return tf.reduce_all([tf.reduce_all(holds(tensor)) for tensor in tensors])


def _build_accessors(
    server_step: ServerStep,
    aggregation: CohortAggregation,
    evaluated_model: str,
    state_type: compat.StructType,
) -> Accessors:
    def deployed(state: Any) -> Any:
        flat = tuple(tf.nest.flatten(state.global_model_weights.trainable))
        if evaluated_model == CLOUD:
            return flat
        return aggregate_model(server_step, state.finalizer, flat)

    @compat.tf_computation(state_type)
    def get_model_weights(state: Any) -> Any:
        weights = state.global_model_weights
        return tff.learning.models.ModelWeights(
            tf.nest.pack_sequence_as(
                weights.trainable, tf.nest.flatten(deployed(state))
            ),
            weights.non_trainable,
        )

    @compat.tf_computation(state_type, state_type.global_model_weights)
    def set_model_weights(state: Any, weights: Any) -> Any:
        flat = tuple(tf.nest.flatten(weights.trainable))
        replaced = returned.result_of(
            server_step, "replace_model", state.finalizer, flat
        )
        return replace(state, global_model_weights=weights, finalizer=replaced)

    @compat.tf_computation(state_type)
    def get_hparams(state: Any) -> Any:
        return collections.OrderedDict(
            client_work=state.client_work["hparams"],
            finalizer=returned.result_of(server_step, "get_hparams", state.finalizer),
        )

    @compat.tf_computation(state_type, get_hparams.type_signature.result)
    def set_hparams(state: Any, hparams: Any) -> Any:
        client_work = collections.OrderedDict(
            state.client_work, hparams=hparams["client_work"]
        )
        finalizer = returned.result_of(
            server_step, "set_hparams", state.finalizer, hparams["finalizer"]
        )
        return replace(state, client_work=client_work, finalizer=finalizer)

    control_variate = None
    if aggregation.has_control_variate:
        control_variate = compat.tf_computation(
            lambda state: aggregation.control_variate(state.aggregator), state_type
        )
    elif server_step.has_control_variate:
        control_variate = compat.tf_computation(
            lambda state: to_vector(
                returned.result_of(server_step, "control_variate", state.finalizer)
            ),
            state_type,
        )
    return Accessors(
        get_model_weights, set_model_weights, get_hparams, set_hparams, control_variate
    )
