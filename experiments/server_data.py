"""Methods with data of the server's, as the command line offers them.

The command line has no data but the clients': what the server or the public is to
have is drawn from it, see `tff_drift.simulation.sample_examples`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import algorithms, optimizers, simulation

DrawData = Callable[[float], tf.data.Dataset]


def share_examples(
    own: simulation.ClientDatasets,
    seed: int,
    *,
    share_fraction: float = 0.01,
    share_split: bool = True,
) -> simulation.ClientDatasets:
    """Adds public examples, drawn from all clients, to every client's own.

    The defaults are those of Yao et al. (2019, https://arxiv.org/abs/1910.08234),
    section 4.2.

    Args:
      own: The clients' own data.
      seed: The seed of the draw.
      share_fraction: The share of all examples to draw.
      share_split: Whether to cut what is drawn up among the clients.

    Returns:
      The data to train on.

    Raises:
      ValueError: If `share_fraction` is out of its range.
    """
    public = simulation.sample_examples(
        own.replace(transform=None), share_fraction, seed
    )
    return simulation.share(own, public, split=share_split)


def build_fed_share(
    model_fn: Callable[[], Any],
    client_learning_rate: float,
    server_optimizer_fn: tff.learning.optimizers.Optimizer,
    **options: Any,
) -> tff.learning.templates.LearningProcess:
    """Builds FedShare, which is FedAvg on the data that `share_examples` returns.

    Zhao et al. (2018). https://arxiv.org/abs/1806.00582

    Args:
      model_fn: As `tff_drift.algorithms.build_fed_avg` takes it, as the others.
      client_learning_rate: The clients' rate.
      server_optimizer_fn: The server's step.
      **options: Those of FedAvg.

    Returns:
      The learning process.
    """
    return algorithms.build_fed_avg(
        model_fn, client_learning_rate, server_optimizer_fn, **options
    )


def build_fed_meta(
    model_fn: Callable[[], Any],
    client_learning_rate: float,
    server_optimizer_fn: tff.learning.optimizers.Optimizer,
    *,
    draw_meta_data: DrawData,
    meta_fraction: float = 0.01,
    meta_learning_rate: float | None = None,
    meta_rate_decay: float | None = None,
    **options: Any,
) -> tff.learning.templates.LearningProcess:
    """Builds FedAvg with FedMeta's step on data drawn from the clients.

    Yao et al. (2019). https://arxiv.org/abs/1910.08234

    Args:
      model_fn: As `tff_drift.algorithms.build_fed_avg` takes it, as the others.
      client_learning_rate: The clients' rate η.
      server_optimizer_fn: The server's step.
      draw_meta_data: Draws D_meta, given its share of the examples.
      meta_fraction: That share.
      meta_learning_rate: η_meta; `None` is η, as in the paper.
      meta_rate_decay: The factor of η_meta per round; `None` is the clients'
        schedule.
      **options: Those of FedAvg.

    Returns:
      The learning process.
    """
    process = algorithms.build_fed_avg(
        model_fn, client_learning_rate, server_optimizer_fn, **options
    )
    return _with_meta_step(
        process,
        model_fn,
        draw_meta_data(meta_fraction),
        client_learning_rate if meta_learning_rate is None else meta_learning_rate,
        meta_rate_decay,
        options,
    )


def build_fed_meta_uga(
    model_fn: Callable[[], Any],
    client_learning_rate: float,
    server_optimizer_fn: tff.learning.optimizers.Optimizer,
    *,
    local_epochs: int,
    draw_meta_data: DrawData,
    meta_fraction: float = 0.01,
    meta_learning_rate: float | None = None,
    meta_rate_decay: float | None = None,
    **options: Any,
) -> tff.learning.templates.LearningProcess:
    """Builds UGA with FedMeta's step on data drawn from the clients.

    Yao et al. (2019). https://arxiv.org/abs/1910.08234

    Args:
      model_fn: As `tff_drift.algorithms.build_uga` takes it, as the others.
      client_learning_rate: The clients' rate η.
      server_optimizer_fn: The server's step.
      local_epochs: The epochs that a client's data holds.
      draw_meta_data: As for `build_fed_meta`, as the others.
      meta_fraction: The share of D_meta.
      meta_learning_rate: η_meta.
      meta_rate_decay: Its factor per round.
      **options: Those of UGA.

    Returns:
      The learning process.
    """
    process = algorithms.build_uga(
        model_fn,
        client_learning_rate,
        server_optimizer_fn,
        local_epochs=local_epochs,
        **options,
    )
    return _with_meta_step(
        process,
        model_fn,
        draw_meta_data(meta_fraction),
        client_learning_rate if meta_learning_rate is None else meta_learning_rate,
        meta_rate_decay,
        options,
    )


def _with_meta_step(
    process: tff.learning.templates.LearningProcess,
    model_fn: Callable[[], Any],
    meta_data: tf.data.Dataset,
    meta_learning_rate: float,
    meta_rate_decay: float | None,
    options: dict[str, Any],
) -> tff.learning.templates.LearningProcess:
    schedule = options.get("client_rate_schedule")
    if meta_rate_decay is not None:
        schedule = optimizers.per_round_factor(meta_rate_decay)
    return algorithms.build_fed_meta(
        process, model_fn, meta_data, meta_learning_rate, meta_rate_schedule=schedule
    )
