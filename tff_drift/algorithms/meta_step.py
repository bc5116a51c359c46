"""FedMeta's meta step: training on the server's own data after every round.

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

from tff_drift import autograph, checks, client_works, compat, optimizers
from tff_drift.algorithms.appended_step import AppendedStep, append_step, check_process
from tff_drift.algorithms.composition.settings import digest_of, settings_of
from tff_drift.tensors import Tensors, global_norm, selected

# The name of what FedMeta adds to hyperparameters, metrics and the server state.
META = "meta"
_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


def add_meta_step(
    process: tff.learning.templates.LearningProcess,
    model_fn: client_works.ModelFn,
    meta_data: tf.data.Dataset,
    meta_learning_rate: float,
    *,
    meta_epochs: int = 1,
    meta_batch_size: int | None = None,
    meta_rate_schedule: optimizers.Schedule | None = None,
) -> tff.learning.templates.LearningProcess:
    """Adds FedMeta's meta step to another method.

    Yao et al. (2019), Algorithm 2. https://arxiv.org/abs/1910.08234

    After every round of `process`, the server takes a step along the gradient on a
    small data set of its own, which defines the objective of the model:

    ```
    ω <- one round of process
    ω <- ω - η_meta ∇L(ω; D_meta)
    ```

    with D_meta = `meta_data`, of which the gradient is taken as a whole, and η_meta =
    `meta_learning_rate`, per round. With η_meta = 0 it is `process`, bit for bit. The
    method may be any of this package, except Scaffnew, whose model has to be the mean
    of its clients', or of `tff.learning.algorithms`: the paper takes FedAvg and UGA.

    One step on the whole of D_meta is what Algorithm 2 says. With `meta_epochs` or
    `meta_batch_size` the server passes over D_meta as clients pass over their data, in
    minibatches B of an order drawn anew for every epoch, the same in every run:

    ```
    for B in D_meta:  ω <- ω - η_meta ∇L(ω; B)
    ```

    The step moves the model that the next cohort receives. A method that deploys
    another one, the mean of the clients' models as FedDyn and AdaBest do, deploys the
    mean of clients that started from the moved model.

    Dropout is on in the step. A gradient that is not finite moves nothing.

    The process has the type signatures of `process`, of a `StatefulLearningProcess`
    too, except for

    *   the server state, whose `finalizer` is `<base=F, meta=<round_number=int32,
        learning_rate=float32>>`, with `F` the finalizer's state of `process`;
    *   the hyperparameters, which have `meta=<learning_rate=float32>` besides;
    *   the metrics, which have `meta=<train=..., learning_rate=float32,
        gradient_norm=float32, rejected=int32>` besides: the model's metrics on D_meta
        before the step, or during several; and ‖ω_before - ω‖ / η_meta, which
        is ‖∇L(ω; D_meta)‖ for one step.

    D_meta is part of the server's computation: it takes its own size in RAM. A
    step costs one gradient on D_meta, E epochs cost E.

    Args:
      process: The method, a learning process of the model of `model_fn`.
      model_fn: The model, as in `build_fed_avg`.
      meta_data: D_meta, batches as clients have them, read once. Such as
        `tff_drift.simulation.sample_examples` draws from the clients, about 1 % of
        the data in the paper, or chosen to steer the model. The batches only bound
        the RAM used.
      meta_learning_rate: η_meta, finite and at least 0. The paper takes the clients'.
      meta_epochs: Passes over D_meta in a round, at least 1.
      meta_batch_size: Examples in a minibatch, at least 1; by default all, so that
        `meta_epochs` is the number of steps.
      meta_rate_schedule: Multiplies η_meta, as a function of the round number, which
        starts at 0. By default the rate is constant.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type, `process` is not of the model, or
        the batches of `meta_data` are not of the type that the model takes.
      ValueError: If `process` needs all clients in every round, as Scaffnew,
        `meta_data` is empty, endless or too large,
        `meta_learning_rate` is not finite or below 0, or `meta_epochs` or
        `meta_batch_size` is below 1.
    """
    if getattr(process, "needs_full_participation", False):
        raise ValueError(
            "process must not be of a method that needs all clients in every round, "
            "as Scaffnew: its variates go by a model that is the mean of the clients', "
            f"and the step moves it, found {checks.shown(process)}. Take SCAFFOLD."
        )
    step = MetaStep(
        model_fn,
        meta_data,
        meta_learning_rate,
        meta_epochs,
        meta_batch_size,
        meta_rate_schedule,
    )
    return step.after(process)


class MetaStep:
    """FedMeta's step, checked before there is a process that it comes after.

    Args:
      model_fn: As in `add_meta_step`, as all others.
      meta_data: D_meta.
      rate: `meta_learning_rate`.
      epochs: `meta_epochs`.
      batch_size: `meta_batch_size`.
      rate_schedule: `meta_rate_schedule`.

    Raises:
      TypeError: As in `add_meta_step`.
      ValueError: As in `add_meta_step`.
    """

    def __init__(
        self,
        model_fn: client_works.ModelFn,
        meta_data: tf.data.Dataset,
        rate: float,
        epochs: int,
        batch_size: int | None,
        rate_schedule: optimizers.Schedule | None,
    ) -> None:
        checks.check_non_negative("meta_learning_rate", rate)
        checks.check_integer("meta_epochs", epochs)
        if batch_size is not None:
            checks.check_integer("meta_batch_size", batch_size)
        if rate_schedule is None:
            rate_schedule = optimizers.constant()
        self._rate = float(rate)
        self._schedule = optimizers.as_schedule(rate_schedule, "meta_rate_schedule")
        self._spec = client_works.build_model_spec(model_fn)
        self._examples, most = _read(meta_data, self._spec)
        if epochs == 1 and batch_size is None:
            self._training: _Training = _FullStep(self._examples, most)
        else:
            self._training = _Minibatches(self._examples, epochs, batch_size)

    def after(
        self, process: tff.learning.templates.LearningProcess
    ) -> tff.learning.templates.LearningProcess:
        """Returns a process with the step after every round of another one.

        Args:
          process: The other one.

        Raises:
          TypeError: If it is not a process of the model.
        """
        check_process(process, self._spec.weights_type, META)

        initial_state = [("round_number", np.int32(0)), (_RATE, np.float32(self._rate))]
        return append_step(
            process,
            AppendedStep(
                META,
                collections.OrderedDict(initial_state),
                (_RATE,),
                _build_meta_step(self._spec, self._training, self._schedule),
                {
                    **settings_of(self._training),
                    "rate_schedule": self._schedule.digest(),
                    "examples_sha256": digest_of(tf.nest.flatten(self._examples)),
                },
            ),
        )


def _read(meta_data: Any, spec: client_works.ModelSpec) -> tuple[Any, int]:
    """Returns the examples of D_meta as arrays, and its batch size."""
    client_works.check_batches("meta_data", meta_data, spec.data_type)
    batches = [
        tf.nest.flatten(batch)
        for batch in client_works.read_batches("meta_data", meta_data)
    ]
    if not sum(len(batch[0]) for batch in batches):
        raise ValueError("meta_data is empty. Give at least one example.")
    leaves = [np.concatenate(leaf) for leaf in zip(*batches, strict=True)]
    examples = tf.nest.pack_sequence_as(meta_data.element_spec, leaves)
    return examples, max(len(batch[0]) for batch in batches)


class _FullStep:
    """ω <- ω - η_meta ∇L(ω; D_meta), its gradient summed up batch by batch."""

    def __init__(self, examples: Any, batch_size: int) -> None:
        self.work = client_works.FullGradient()
        self._examples, self._batch_size = examples, batch_size

    def batches(self, round_number: tf.Tensor) -> tf.data.Dataset:
        """Returns the batches of a round."""
        del round_number
        dataset = tf.data.Dataset.from_tensor_slices(self._examples)
        return dataset.batch(self._batch_size)

    def hparams(self, rate: tf.Tensor) -> collections.OrderedDict[str, Any]:
        """Returns the hyperparameters of `work`."""
        del rate
        return self.work.initial_hparams()

    def result(
        self, trainable: Tensors, outcome: client_works.LocalOutcome, rate: tf.Tensor
    ) -> tuple[Tensors, tf.Tensor]:
        """Returns the new weights, and ‖ω_before - ω‖ / η_meta."""
        moved = tuple(
            x - tf.cast(rate, x.dtype) * gradient
            for x, gradient in zip(trainable, outcome.update, strict=True)
        )
        return moved, global_norm(outcome.update)


class _Minibatches:
    """Epochs of ω <- ω - η_meta ∇L(ω; B) over minibatches B of D_meta."""

    def __init__(self, examples: Any, epochs: int, batch_size: int | None) -> None:
        # Of the rate, which every round sets, any value will do.
        self.work = client_works.LocalSgd(1.0)
        self._examples, self._epochs = examples, epochs
        self._num_examples = len(tf.nest.flatten(examples)[0])
        self._batch_size = batch_size or self._num_examples

    def batches(self, round_number: tf.Tensor) -> tf.data.Dataset:
        @autograph.as_written
        def epoch(number: tf.Tensor) -> tf.data.Dataset:
            order = tf.argsort(
                tf.random.stateless_uniform(
                    [self._num_examples], [round_number, number]
                )
            )
            return tf.data.Dataset.from_tensor_slices(order).batch(self._batch_size)

        @autograph.as_written
        def minibatch(order: tf.Tensor) -> Any:
            return tf.nest.map_structure(
                lambda leaf: tf.gather(leaf, order), self._examples
            )

        epochs = tf.data.Dataset.range(self._epochs, output_type=tf.int32)
        return epochs.flat_map(epoch).map(minibatch)

    def hparams(self, rate: tf.Tensor) -> collections.OrderedDict[str, Any]:
        return collections.OrderedDict([(_RATE, rate)])

    def result(
        self, trainable: Tensors, outcome: client_works.LocalOutcome, rate: tf.Tensor
    ) -> tuple[Tensors, tf.Tensor]:
        moved = selected(outcome.rejected, trainable, outcome.trainable)
        return moved, tf.math.divide_no_nan(global_norm(outcome.update), rate)


# How the server trains on D_meta in a round.
_Training = _FullStep | _Minibatches


def _build_meta_step(
    spec: client_works.ModelSpec, training: _Training, schedule: optimizers.Schedule
) -> compat.Computation:
    """Builds `(<W, <round_number, learning_rate>> -> <weights, state, metrics>)`."""
    meta_type = compat.to_type(
        collections.OrderedDict([("round_number", np.int32), (_RATE, np.float32)])
    )

    @compat.tf_computation(spec.weights_type, meta_type)
    def meta_step(weights: Any, meta: Any) -> Any:
        model = spec.build()

        @tf.function
        @autograph.as_written
        def step(weights: Any, meta: Any) -> Any:
            round_number = meta["round_number"]
            rate = meta[_RATE] * tf.cast(schedule(round_number), tf.float32)
            trainable = tuple(tf.nest.flatten(weights.trainable))
            outcome = client_works.run_local_work(
                training.work,
                model,
                weights,
                training.batches(round_number),
                context=client_works.LocalContext(
                    trainable, training.hparams(rate), round_number
                ),
                loop_implementation=spec.loop_implementation,
            )
            moved, norm = training.result(trainable, outcome, rate)
            return outcome.metrics, moved, outcome.rejected, rate, norm

        unfinalized, moved, rejected, rate, gradient_norm = step(weights, meta)
        return collections.OrderedDict(
            weights=tff.learning.models.ModelWeights(
                tf.nest.pack_sequence_as(weights.trainable, moved),
                weights.non_trainable,
            ),
            state=collections.OrderedDict(meta, round_number=meta["round_number"] + 1),
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
