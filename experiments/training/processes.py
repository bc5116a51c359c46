"""From the settings of a run to its learning process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

import tasks
from experiments.flags.flag import ALGORITHM
from experiments.flags.settings import RunSettings
from experiments.training import cohorts, server_data
from tff_drift import aggregators, algorithms, optimizers, simulation

WEIGHTINGS = {
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
      TypeError: If an option has the wrong type.
      ValueError: If an option is out of its range.
    """
    method = algorithms.methods()[settings.algorithm]
    values, configuration = settings.options[ALGORITHM], settings.configuration
    whole = method.sends_gradients or "meta_data" in method.needs
    whole = whole or values.get("option") == "I"
    if whole and configuration.get("loss") == "sum":
        raise ValueError(
            f"--loss=sum does not fit {settings.algorithm}, which takes gradients of "
            "whole data: they would depend on the batch size. Give --loss=mean, and "
            "rates for it."
        )
    if configuration["adaptive_clipping"] and values.get("beta") == "auto":
        raise ValueError(
            "--beta=auto does not fit --adaptive_clipping: it compares updates of "
            "clients that are not clipped yet with their mean, which is. Give --beta "
            "a number, or leave the clipping out."
        )
    prepare = _preparations(settings, task)
    arguments: dict[str, Any] = {
        "client_weighting": WEIGHTINGS[configuration["weighting"]],
        "model_aggregator": _aggregator(configuration),
        # The others say what data is drawn.
        **{name: values[name] for name in values if name in method.parameters},
        **{need: prepare[need]() for need in method.needs},
    }
    if method.keeps_client_states:
        evaluated = configuration["evaluated_model"]
        # The mean of the latest models is of the store, not of the server's state.
        key = "keep_latest_models" if evaluated == "latest" else "evaluated_model"
        arguments[key] = True if evaluated == "latest" else evaluated
        if evaluated == "average":
            arguments["averaging_growth"] = configuration["averaging_growth"]
    if method.has_client_rate:
        arguments["client_rate_schedule"] = _client_rate_schedule(configuration)
        for name in ("client_weight_decay", "gradient_clipping_norm"):
            arguments[name] = configuration[name]
    if settings.algorithm == "fed_exp" and configuration["adaptive_clipping"]:
        # Of the squared norms, alike: its builder says why.
        arguments["message_aggregator"] = _clipping(configuration, power=2)
    server_rate = configuration["server_learning_rate"]
    schedule = _server_rate_schedule(configuration, task)
    if "server_learning_rate" in method.parameters:
        arguments["server_rate_schedule"] = schedule
    elif schedule is not None:
        arguments["server_optimizer_fn"] = optimizers.build_scheduled(
            tff.learning.optimizers.build_sgdm(server_rate), schedule
        )
        server_rate = None
    process = method.build(
        task.model_fn,
        client_learning_rate=client_optimizer(configuration),
        server_learning_rate=server_rate,
        **arguments,
    )
    if configuration["meta_step"] is None:
        return process
    return algorithms.add_meta_step(
        process,
        task.model_fn,
        prepare["meta_data"](),
        configuration["meta_step"],
        meta_epochs=configuration["meta_step_epochs"],
        meta_batch_size=configuration["meta_step_batch_size"],
    )


def training_data(settings: RunSettings, task: tasks.Task) -> simulation.ClientDatasets:
    """Returns the data that a run's clients train on.

    Args:
      settings: The run.
      task: Its task, loaded.

    Returns:
      The clients' own data, with public examples where the method shares any.

    Raises:
      ValueError: If the share of public examples is out of its range.
    """
    method = algorithms.methods()[settings.algorithm]
    if method.pools_data:
        task = dataclasses.replace(task, train=simulation.pool(task.train))
    steps = settings.configuration["local_steps"]
    train = task.train if steps is None else task.train.replace(local_steps=steps)
    if "shared_data" not in method.needs:
        return train
    public = server_data.choose(
        "share", settings.configuration, task, train.replace(transform=None)
    )
    return simulation.share(train, public, split=settings.configuration["share_split"])


def _preparations(
    settings: RunSettings, task: tasks.Task
) -> dict[str, Callable[[], Any]]:
    """Returns what methods need, by the names of their needs."""
    configuration, train = settings.configuration, task.train

    def total_examples() -> int | None:
        by_examples = configuration.get("variates_by_examples")
        if configuration["weighting"] != "num_examples" and not by_examples:
            return None
        return sum(map(train.num_examples_per_round, train.client_ids))

    def mean_examples() -> float | None:
        if not configuration["mu_by_examples"]:
            return None
        return sum(map(train.num_examples_per_round, train.client_ids)) / len(train)

    def local_epochs() -> int:
        if configuration["local_steps"] is not None:
            raise ValueError(
                f"--local_steps={configuration['local_steps']} has no meaning for "
                f"{settings.algorithm}, whose last epoch is for the gradient. Give "
                "--client_epochs."
            )
        return train.batching.epochs

    def meta_data() -> tf.data.Dataset:
        examples = server_data.choose("meta", configuration, task, train)
        return server_data.batches(examples, train.batching.batch_size)

    return {
        "num_clients": lambda: len(train),
        "mean_examples": mean_examples,
        "total_examples": total_examples,
        "local_epochs": local_epochs,
        "meta_data": meta_data,
        # The clients' datasets hold it, see `training_data`.
        "shared_data": lambda: None,
    }


def client_optimizer(configuration: Mapping[str, Any]) -> Any:
    """Returns the clients' optimizer, or the rate of plain SGD; `None` without.

    Args:
      configuration: The run's flags.
    """
    rate = configuration["client_learning_rate"]
    if configuration["client_optimizer"] == "momentum":
        return tff.learning.optimizers.build_sgdm(
            rate, configuration["client_momentum"]
        )
    if configuration["client_optimizer"] == "adam":
        return tff.learning.optimizers.build_adam(rate)
    return rate


def _client_rate_schedule(
    configuration: Mapping[str, Any],
) -> optimizers.Schedule | None:
    kind, decay, rounds, staircase = (
        configuration[f"client_rate_{each}"]
        for each in ("schedule", "decay", "decay_rounds", "staircase")
    )
    if kind == "exponential":
        return optimizers.exponential(decay, rounds, staircase)
    if kind == "per_round_factor":
        return optimizers.per_round_factor(decay)
    return optimizers.inverse_sqrt(rounds) if kind == "inverse_sqrt" else None


def _server_rate_schedule(
    configuration: Mapping[str, Any], task: tasks.Task
) -> optimizers.Schedule | None:
    if configuration["server_learning_rate"] is None:
        return None
    warm_up_rounds = configuration["server_warm_up_rounds"]
    scaling = configuration["server_rate_scaling"]
    if scaling != "none":
        doubling = configuration["cohort_doubling"]
        if doubling != "none":
            raise ValueError(
                f"--server_rate_scaling={scaling} does not fit --cohort_doubling="
                f"{doubling}: cohorts that grow are there in place of another rate. "
                "Leave one of them out, or give the first cohort's rate itself as "
                "--server_learning_rate."
            )
        # Without the stragglers that are left out: the rule is about the mean.
        sampling, _ = cohorts.build_cohorts(configuration, task.train)
        return optimizers.cohort_scaling(
            len(sampling(0)),
            configuration["reference_clients_per_round"],
            scaling,
            warm_up_rounds,
            configuration["server_warm_up_from"] or "reference",
        )
    return optimizers.warm_up(warm_up_rounds) if warm_up_rounds else None


def _aggregator(
    configuration: Mapping[str, Any],
) -> tff.aggregators.AggregationFactory | None:
    factory = None
    if configuration["adaptive_clipping"]:
        factory = _clipping(configuration)
    if configuration["cohort_measurements"]:
        # Outside the clipping, so as to measure what the clients computed.
        factory = aggregators.cohort_measurements_factory(factory)
    return factory


def _clipping(
    configuration: Mapping[str, Any], power: int = 1
) -> tff.aggregators.AggregationFactory:
    """Returns the clipping of the clients' norms to a power."""
    return aggregators.adaptive_clipping_factory(
        initial_clipping_norm=configuration["clipping_initial_norm"] ** power,
        target_quantile=configuration["clipping_quantile"],
        learning_rate=configuration["clipping_learning_rate"] * power,
    )
