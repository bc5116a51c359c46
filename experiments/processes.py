"""From the settings of a run to its learning process."""

from __future__ import annotations

import functools

import tensorflow as tf
import tensorflow_federated as tff

import tasks
from experiments.algorithms import ALGORITHMS
from experiments.settings import RunSettings
from tff_drift import aggregators, optimizers, simulation

_WEIGHTINGS = {
    "num_examples": tff.learning.ClientWeighting.NUM_EXAMPLES,
    "uniform": tff.learning.ClientWeighting.UNIFORM,
}


def build_process(
    settings: RunSettings, task: tasks.Task
) -> tff.learning.templates.LearningProcess:
    """Builds the learning process of a run.

    Args:
      settings: The run.
      task: Its task, loaded.

    Returns:
      The learning process.

    Raises:
      TypeError: If a hyperparameter has the wrong type.
      ValueError: If a hyperparameter is out of its range.
    """
    configuration, train = settings.configuration, task.train
    return ALGORITHMS[settings.algorithm].build(
        task.model_fn,
        num_clients=len(train),
        total_examples=lambda: (
            train.epochs * sum(map(train.num_examples, train.client_ids))
        ),
        local_epochs=train.epochs,
        draw_meta_data=functools.partial(_draw_meta_data, task),
        client_learning_rate=configuration["client_learning_rate"],
        client_rate_schedule=_client_rate_schedule(settings),
        server_learning_rate=configuration["server_learning_rate"],
        server_rate_schedule=_server_rate_schedule(settings),
        hyperparameters=settings.hyperparameters,
        client_weighting=_WEIGHTINGS[configuration["weighting"]],
        model_aggregator=_aggregator(settings),
    )


def _draw_meta_data(task: tasks.Task, fraction: float) -> tf.data.Dataset:
    examples = simulation.sample_examples(task.train, fraction, task.seed)
    return tf.data.Dataset.from_tensor_slices(examples).batch(task.train.batch_size)


def _client_rate_schedule(settings: RunSettings) -> optimizers.Schedule | None:
    configuration = settings.configuration
    decay = configuration["client_rate_decay"]
    decay_rounds = configuration["client_rate_decay_rounds"]
    schedule = configuration["client_rate_schedule"]
    if schedule == "exponential":
        return optimizers.exponential(
            decay, decay_rounds, configuration["client_rate_staircase"]
        )
    if schedule == "per_round_factor":
        return optimizers.per_round_factor(decay)
    if schedule == "inverse_sqrt":
        return optimizers.inverse_sqrt(decay_rounds)
    return None


def _server_rate_schedule(settings: RunSettings) -> optimizers.Schedule | None:
    configuration = settings.configuration
    if configuration["server_learning_rate"] is None:
        return None
    warm_up_rounds = configuration["server_warm_up_rounds"]
    if configuration["server_rate_scaling"] != "none":
        return optimizers.cohort_scaling(
            configuration["clients_per_round"],
            configuration["reference_clients_per_round"],
            configuration["server_rate_scaling"],
            warm_up_rounds,
            configuration["server_warm_up_from"] or "reference",
        )
    return optimizers.warm_up(warm_up_rounds) if warm_up_rounds else None


def _aggregator(settings: RunSettings) -> tff.aggregators.AggregationFactory | None:
    configuration = settings.configuration
    factory = None
    if configuration["adaptive_clipping"]:
        factory = aggregators.adaptive_clipping_factory(
            initial_clipping_norm=configuration["clipping_initial_norm"],
            target_quantile=configuration["clipping_quantile"],
            learning_rate=configuration["clipping_learning_rate"],
        )
    if configuration["cohort_measurements"]:
        # Outside the clipping, so as to measure what the clients computed.
        factory = aggregators.cohort_measurements_factory(factory)
    return factory
