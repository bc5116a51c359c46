"""FedMeta's meta step: a step on the server's own data after every round.

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating, section 3.2. https://arxiv.org/abs/1910.08234
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import checks, client_works, compat, optimizers
from tff_drift.algorithms import stateful_parts
from tff_drift.algorithms.stateful_composition import StatefulLearningProcess
from tff_drift.tensors import global_norm

# The name of what FedMeta adds to hyperparameters, metrics and the server state.
META = "meta"
_RATE = tff.learning.optimizers.LEARNING_RATE_KEY
_STATE_NAMES = (
    "global_model_weights",
    "distributor",
    "client_work",
    "aggregator",
    "finalizer",
)


def add_meta_step(
    process: tff.learning.templates.LearningProcess,
    model_fn: client_works.ModelFn,
    meta_data: tf.data.Dataset,
    meta_learning_rate: float,
    *,
    meta_rate_schedule: optimizers.Schedule | None = None,
) -> tff.learning.templates.LearningProcess:
    """Adds FedMeta's meta step to another method.

    Yao et al. (2019), Algorithm 2. https://arxiv.org/abs/1910.08234

    After every round of `process`, the server takes a step along the gradient on a
    small data set of its own, which tells where the model is to go:

    ```
    ω <- one round of process
    ω <- ω - η_meta ∇L(ω; D_meta)
    ```

    with D_meta = `meta_data`, of which the gradient is taken as a whole, and η_meta =
    `meta_learning_rate`, per round. With η_meta = 0 it is `process`, bit for bit. The
    method may be any of this package or of `tff.learning.algorithms`: the paper takes
    FedAvg and UGA.

    The step moves the model that the next cohort receives. A method that deploys
    another one, the mean of the clients' models as FedDyn and AdaBest do, deploys the
    mean of clients that started from the moved model.

    Dropout is on in the step. A gradient that is not finite moves nothing.

    The process has the type signatures of `process`, of a `StatefulLearningProcess`
    too, but for

    *   the server state, whose `finalizer` is `<base=F, meta=<round_number=int32,
        learning_rate=float32>>`, with `F` the finalizer's state of `process`;
    *   the hyperparameters, which have `meta=<learning_rate=float32>` besides;
    *   the metrics, which have `meta=<train=..., learning_rate=float32,
        gradient_norm=float32, rejected=int32>` besides: the model's metrics on D_meta
        before the step, and the step.

    D_meta is part of the server's computation: it takes its own size in memory. A
    step costs one gradient on D_meta.

    Args:
      process: The method, a learning process of the model of `model_fn`.
      model_fn: The model, as in `build_fed_avg`.
      meta_data: D_meta, batches as clients have them, read once. Such as
        `tff_drift.simulation.sample_examples` draws from the clients, about 1 % of
        the data in the paper, or chosen to steer the model. The batches only bound
        the memory.
      meta_learning_rate: η_meta, finite and at least 0. The paper takes the clients'.
      meta_rate_schedule: Multiplies η_meta, as a function of the round number, which
        starts at 0. By default the rate is constant.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, `process` is not of the model, or
        the batches of `meta_data` are not of the type that the model takes.
      ValueError: If `meta_data` is empty, or `meta_learning_rate` is not finite or
        below 0.
    """
    checks.check_non_negative("meta_learning_rate", meta_learning_rate)
    schedule = optimizers.as_schedule(
        meta_rate_schedule or optimizers.constant(), "meta_rate_schedule"
    )
    spec = client_works.build_model_spec(model_fn)
    _check_process(process, spec)
    examples, batch_size = _read(meta_data, spec)
    wrapper = _Wrapper(process, float(meta_learning_rate))
    meta_step = _build_meta_step(spec, examples, batch_size, schedule)
    accessors = wrapper.accessors()
    initialize, next_fn = wrapper.initialize(), wrapper.next(process.next, meta_step)
    if isinstance(process, StatefulLearningProcess):
        return StatefulLearningProcess(
            initialize,
            next_fn,
            accessors,
            initial_client_state=process.initial_client_state,
            message_down=process.message_down,
            message_up=process.message_up,
            build_next_at_clients=lambda: wrapper.next(
                process.next_at_clients, meta_step
            ),
        )
    return tff.learning.templates.LearningProcess(
        initialize,
        next_fn,
        accessors.get_model_weights,
        accessors.set_model_weights,
        get_hparams_fn=accessors.get_hparams,
        set_hparams_fn=accessors.set_hparams,
    )


def meta_rate(meta_learning_rate: float | None, client_rate: Any) -> float:
    """Returns η_meta, by default the clients' rate.

    Args:
      meta_learning_rate: η_meta, or `None` for the default.
      client_rate: The clients' rate, or an optimizer, which tells none.

    Returns:
      η_meta.

    Raises:
      TypeError: If `meta_learning_rate` is not a number.
      ValueError: If `meta_learning_rate` is out of its range, or there is neither
        rate.
    """
    if meta_learning_rate is not None:
        checks.check_non_negative("meta_learning_rate", meta_learning_rate)
        return meta_learning_rate
    if isinstance(client_rate, tff.learning.optimizers.Optimizer):
        raise ValueError(
            "meta_learning_rate must be given where client_optimizer_fn is an "
            "optimizer, whose rate is not known here, found None."
        )
    return client_rate


def meta_schedule(
    meta_rate_decay: float | None, client_rate_schedule: optimizers.Schedule | None
) -> optimizers.Schedule | None:
    """Returns the schedule of η_meta, by default the clients'.

    Args:
      meta_rate_decay: The factor per round, or `None` for the default.
      client_rate_schedule: The clients' schedule.

    Returns:
      The schedule, `None` for a constant rate.

    Raises:
      TypeError: If `meta_rate_decay` is not a number.
      ValueError: If `meta_rate_decay` is out of its range.
    """
    if meta_rate_decay is None:
        return client_rate_schedule
    checks.check_positive("meta_rate_decay", meta_rate_decay)
    checks.check_probability("meta_rate_decay", meta_rate_decay)
    return optimizers.per_round_factor(meta_rate_decay)


def _check_process(process: Any, spec: client_works.ModelSpec) -> None:
    if not isinstance(process, tff.learning.templates.LearningProcess):
        raise TypeError(
            "process must be a tff.learning.templates.LearningProcess, such as "
            f"build_fed_avg returns, found {process!r}."
        )
    state_type = process.initialize.type_signature.result.member
    names = tuple(compat.structure_names(state_type))
    if names != _STATE_NAMES:
        raise TypeError(
            "process must have the server state of tff.learning.templates."
            f"LearningAlgorithmState, found one of {names}."
        )
    hparams_type = process.get_hparams.type_signature.result
    if META in compat.structure_names(hparams_type):
        raise TypeError("process has a meta step already. Wrap a method only once.")
    if not spec.weights_type.is_equivalent_to(state_type.global_model_weights):
        raise TypeError(
            "process must be of the model of model_fn, whose weights are "
            f"{spec.weights_type}, found {state_type.global_model_weights}."
        )


def _read(meta_data: Any, spec: client_works.ModelSpec) -> tuple[Any, int]:
    """Returns the examples of D_meta as arrays, and its batch size."""
    client_works.check_batches("meta_data", meta_data, spec.data_type)
    batches = [tf.nest.flatten(batch) for batch in meta_data.as_numpy_iterator()]
    if not sum(len(batch[0]) for batch in batches):
        raise ValueError("meta_data is empty. Give at least one example.")
    leaves = [np.concatenate(leaf) for leaf in zip(*batches)]
    examples = tf.nest.pack_sequence_as(meta_data.element_spec, leaves)
    return examples, max(len(batch[0]) for batch in batches)


def _build_meta_step(
    spec: client_works.ModelSpec,
    examples: Any,
    batch_size: int,
    schedule: optimizers.Schedule,
) -> compat.Computation:
    """Builds `(<W, <round_number, learning_rate>> -> <weights, metrics>)`."""
    meta_type = compat.to_type(
        collections.OrderedDict([("round_number", np.int32), (_RATE, np.float32)])
    )

    @compat.tf_computation(spec.weights_type, meta_type)
    def meta_step(weights: Any, meta: Any) -> Any:
        model = spec.build()

        @tf.function
        def step(weights: Any, meta: Any) -> Any:
            dataset = tf.data.Dataset.from_tensor_slices(examples).batch(batch_size)
            trainable = tuple(tf.nest.flatten(weights.trainable))
            outcome = client_works.run_local_work(
                client_works.FullGradient(),
                model,
                weights,
                dataset,
                context=client_works.LocalContext(
                    trainable, collections.OrderedDict(), meta["round_number"]
                ),
                loop_implementation=spec.loop_implementation,
            )
            factor = tf.cast(schedule(meta["round_number"]), tf.float32)
            rate = meta[_RATE] * factor
            moved = tuple(
                x - tf.cast(rate, x.dtype) * gradient
                for x, gradient in zip(trainable, outcome.update)
            )
            return (
                outcome.metrics,
                moved,
                outcome.rejected,
                rate,
                global_norm(outcome.update),
            )

        unfinalized, moved, rejected, rate, gradient_norm = step(weights, meta)
        return collections.OrderedDict(
            weights=tff.learning.models.ModelWeights(
                tf.nest.pack_sequence_as(weights.trainable, moved),
                weights.non_trainable,
            ),
            metrics=collections.OrderedDict(
                train=_finalize(spec.metric_finalizers, unfinalized),
                learning_rate=rate,
                gradient_norm=gradient_norm,
                rejected=tf.cast(rejected, tf.int32),
            ),
        )

    return meta_step


def _finalize(finalizers: Any, unfinalized: Any) -> Any:
    if isinstance(finalizers, Mapping):
        return collections.OrderedDict(
            (name, finalize(unfinalized[name])) for name, finalize in finalizers.items()
        )
    return finalizers(unfinalized)


class _Wrapper:
    """The computations of a process with a meta step, from those of one without."""

    def __init__(
        self, process: tff.learning.templates.LearningProcess, learning_rate: float
    ) -> None:
        self._process = process
        base_type = process.initialize.type_signature.result.member

        @compat.tf_computation(base_type)
        def initial(base: Any) -> Any:
            meta = [
                ("round_number", tf.constant(0, tf.int32)),
                (_RATE, tf.constant(learning_rate, tf.float32)),
            ]
            return _wrapped(base, collections.OrderedDict(meta))

        self._initial = initial
        self._state_type = initial.type_signature.result

    def initialize(self) -> compat.Computation:
        """Returns `( -> S@SERVER)`."""

        @compat.federated_computation
        def initialize() -> Any:
            return compat.federated_map(self._initial, self._process.initialize())

        return initialize

    def next(
        self, base_next: compat.Computation, meta_step: compat.Computation
    ) -> compat.Computation:
        """Returns `base_next`, of the process, with a meta step after it."""
        state_type = self._state_type
        base_type, data_type = base_next.type_signature.parameter
        base_type = base_type.member
        # `next_at_clients` returns the clients' memory beside the output.
        has_memory = base_next is not self._process.next
        output_type = base_next.type_signature.result
        if has_memory:
            output_type = output_type[0]
        names = compat.structure_names(output_type.metrics.member)

        @compat.tf_computation(state_type)
        def unwrap(state: Any) -> Any:
            return _unwrapped(state)

        @compat.tf_computation(state_type)
        def meta_of(state: Any) -> Any:
            return state.finalizer[META]

        @compat.tf_computation(base_type)
        def weights_of(base: Any) -> Any:
            return base.global_model_weights

        @compat.tf_computation(
            base_type, base_type.global_model_weights, state_type.finalizer[META]
        )
        def finish(base: Any, weights: Any, meta: Any) -> Any:
            meta = collections.OrderedDict(meta, round_number=meta["round_number"] + 1)
            return _wrapped(_replace(base, global_model_weights=weights), meta)

        @compat.federated_computation(
            compat.FederatedType(state_type, compat.SERVER), data_type
        )
        def next_fn(state: Any, client_data: Any) -> Any:
            meta = compat.federated_map(meta_of, state)
            result = base_next(compat.federated_map(unwrap, state), client_data)
            output = result[0] if has_memory else result
            stepped = compat.federated_map(
                meta_step, (compat.federated_map(weights_of, output.state), meta)
            )
            metrics = collections.OrderedDict(
                (name, output.metrics[name]) for name in names
            )
            metrics[META] = stepped["metrics"]
            new_output = tff.learning.templates.LearningProcessOutput(
                compat.federated_map(finish, (output.state, stepped["weights"], meta)),
                compat.federated_zip(metrics),
            )
            return (new_output, result[1]) if has_memory else new_output

        return next_fn

    def accessors(self) -> stateful_parts.Accessors:
        """Returns the other computations."""
        process, state_type = self._process, self._state_type

        @compat.tf_computation(state_type)
        def get_model_weights(state: Any) -> Any:
            return process.get_model_weights(_unwrapped(state))

        @compat.tf_computation(state_type, get_model_weights.type_signature.result)
        def set_model_weights(state: Any, weights: Any) -> Any:
            base = process.set_model_weights(_unwrapped(state), weights)
            return _wrapped(base, state.finalizer[META])

        @compat.tf_computation(state_type)
        def get_hparams(state: Any) -> Any:
            hparams = collections.OrderedDict(process.get_hparams(_unwrapped(state)))
            rate = state.finalizer[META][_RATE]
            hparams[META] = collections.OrderedDict([(_RATE, rate)])
            return hparams

        @compat.tf_computation(state_type, get_hparams.type_signature.result)
        def set_hparams(state: Any, hparams: Any) -> Any:
            of_base = collections.OrderedDict(hparams)
            rate = of_base.pop(META)[_RATE]
            meta = collections.OrderedDict(state.finalizer[META])
            meta[_RATE] = rate
            return _wrapped(process.set_hparams(_unwrapped(state), of_base), meta)

        return stateful_parts.Accessors(
            get_model_weights, set_model_weights, get_hparams, set_hparams
        )


def _wrapped(base: Any, meta: Any) -> Any:
    finalizer = collections.OrderedDict([("base", base.finalizer), (META, meta)])
    return _replace(base, finalizer=finalizer)


def _unwrapped(state: Any) -> Any:
    return _replace(state, finalizer=state.finalizer["base"])


def _replace(state: Any, **parts: Any) -> Any:
    """Returns a server state with some parts replaced."""
    kept = {name: getattr(state, name) for name in _STATE_NAMES}
    return tff.learning.templates.LearningAlgorithmState(**{**kept, **parts})
