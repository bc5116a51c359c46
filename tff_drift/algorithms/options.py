"""The options that the builders share: each is described here, once."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

import tensorflow_federated as tff

from tff_drift import checks, client_works, optimizers
from tff_drift.models.example_weights import CLIENT_WEIGHT

MetricsAggregator = Callable[[Any], Any]
_Builder = TypeVar("_Builder", bound=Callable[..., Any])


class ProcessOptions(TypedDict, total=False):
    """The options that every `build_*` function of this package accepts.

    Attributes:
      server_rate_schedule: Multiplies the server learning rate, as a function of
        the round number, which starts at 0; see `tff_drift.optimizers`. Rounds in
        which the server takes no step count too. By default the rate is constant.
        SCAFFOLD/m, FedDyn and AdaBest refuse a schedule: their server steps have no
        rate.
      model_distributor: How the server sends the model. By default
        `tff.learning.templates.build_broadcast_process`.
      model_aggregator: How updates are aggregated, a weighted or an unweighted
        `tff.aggregators` factory; see `tff_drift.aggregators`. By default
        `tff.aggregators.MeanFactory(no_nan_division=True)`: the weighted mean.
        Where it is exactly zero, as it is if no client of the cohort carries
        weight, the server takes no step, not by momentum either, and its state stays,
        but for the round number of a schedule.
      metrics_aggregator: How the clients' training metrics are aggregated. By
        default `tff.learning.metrics.sum_then_finalize`.
      client_weighting: A client's weight p_i in the mean, a
        `tff.learning.ClientWeighting`: by default NUM_EXAMPLES, the number of
        examples it trained on; UNIFORM gives every client weight 1. Where clients
        keep no state also "client_weight": batches are mappings with an array of that
        name besides "x" and "y", which has the client's weight for each example, at
        least 0 (see `tff_drift.models.from_keras2`). What a method
        averages beside the updates has these weights too. A client that trained on
        nothing has weight 0 either way, unlike in TFF's own methods. With an
        unweighted `model_aggregator` it is UNIFORM, whatever is given; there a client
        that trained on nothing, or was rejected, is in the mean of the updates as 0.
      loop_implementation: How the loop over a client's batches is built, a
        `tff.learning.LoopImplementation`. The default depends on the model.
    """

    server_rate_schedule: optimizers.Schedule | None
    model_distributor: tff.learning.templates.DistributionProcess | None
    model_aggregator: tff.aggregators.WeightedAggregationFactory | None
    metrics_aggregator: MetricsAggregator | None
    client_weighting: tff.learning.ClientWeighting | str
    loop_implementation: tff.learning.LoopImplementation | None


class TrainingOptions(client_works.LocalOptions, ProcessOptions, total=False):
    """`ProcessOptions` and `LocalOptions`: what methods with local steps accept.

    Attributes:
      client_rate_schedule: Multiplies the clients' learning rate, as a function
        of the round number, which starts at 0; see `tff_drift.optimizers`. By
        default the rate is constant.
    """

    client_rate_schedule: optimizers.Schedule | None


class StatefulOptions(TrainingOptions, total=False):
    """`TrainingOptions`, and what methods whose clients keep a state accept besides.

    `client_weighting`, a client's weight in the mean of the models, is UNIFORM by
    default, as in the papers of these methods. With NUM_EXAMPLES those whose server
    keeps a sum over all clients need the `total_examples` of these.

    Attributes:
      keep_latest_models: Whether a client's state holds, as `latest_model`, the model
        that it trained last, for `tff_drift.simulation.mean_latest_model`; by default
        not. It costs each client n weights, and no traffic.
      evaluated_model: The model that `get_model_weights` returns: 'aggregate' (the
        mean of the cohort's models, the default), 'cloud' (the model that the next
        cohort receives) or 'average' (the running average of the aggregates, which
        costs the server one more copy of the model).
      averaging_growth: γ > 0 of that average, in which round r weighs γ^r; by default
        1: all rounds alike. Karimireddy et al. (2020,
        https://arxiv.org/abs/1910.06378, equations 8 and 13) give later rounds more,
        for a μ-strongly convex loss γ = 1 / (1 - μ K η η_g / 2).
    """

    evaluated_model: str
    averaging_growth: float
    keep_latest_models: bool


_NUM_EXAMPLES = tff.learning.ClientWeighting.NUM_EXAMPLES
_DEFAULTS = {
    "client_weight_decay": 0.0,
    "client_weighting": _NUM_EXAMPLES,
    "evaluated_model": "aggregate",
    "averaging_growth": 1.0,
    "keep_latest_models": False,
}


def explicit_options(
    accepted: Any, client_weighting: tff.learning.ClientWeighting | None = None
) -> Callable[[_Builder], _Builder]:
    """Spells out a builder's `**options` in its signature.

    Help and the completion of notebooks list them then. What the builder takes is not
    changed.

    Args:
      accepted: The class of the options that it accepts, such as `TrainingOptions`.
      client_weighting: The builder's default; None for that of `accepted`.

    Returns:
      A decorator. The signature without the options stays as `own_signature`.
    """
    defaults = dict(_DEFAULTS)
    if accepted is StatefulOptions:
        defaults["client_weighting"] = tff.learning.ClientWeighting.UNIFORM
    if client_weighting is not None:
        defaults["client_weighting"] = client_weighting

    def decorate(builder: _Builder) -> _Builder:
        own = inspect.signature(builder)
        named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=getattr(hint, "__forward_arg__", hint),
            )
            for name, hint in accepted.__annotations__.items()
        ]
        builder.own_signature = own  # type: ignore[attr-defined]
        builder.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*named, *options]
        )
        return builder

    return decorate


def check_client_weighting(client_weighting: Any) -> None:
    """Raises unless `client_weighting` says how clients are weighted.

    Args:
      client_weighting: The value to check.

    Raises:
      TypeError: If it is neither a `tff.learning.ClientWeighting` nor "client_weight".
    """
    if isinstance(client_weighting, tff.learning.ClientWeighting):
        return
    if not isinstance(client_weighting, str) or client_weighting != CLIENT_WEIGHT:
        raise TypeError(
            "client_weighting must be tff.learning.ClientWeighting.NUM_EXAMPLES or "
            f"UNIFORM, or {CLIENT_WEIGHT!r} for weights that batches have, found "
            f"{checks.shown(client_weighting)}."
        )


def split(
    options: Mapping[str, Any], accepted: Any
) -> tuple[client_works.LocalOptions, dict[str, Any]]:
    """Separates the options of local training from those of the composition.

    Args:
      options: The options that a builder was called with.
      accepted: The class of what the builder accepts, such as `TrainingOptions`.

    Returns:
      The options of local training, and the rest.

    Raises:
      TypeError: If there is an option that `accepted` does not have, or
        `client_weighting` is none.
    """
    known = set(accepted.__optional_keys__)
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            remedy = f"Did you mean {close[0]}? " if close else ""
            raise TypeError(
                f"unexpected keyword argument {checks.shown(name)}. {remedy}The "
                f"options are {checks.listed(sorted(known))}."
            )
    if "client_weighting" in options:
        check_client_weighting(options["client_weighting"])
    local_names = client_works.LocalOptions.__optional_keys__
    local = {name: options[name] for name in options if name in local_names}
    rest = {name: options[name] for name in options if name not in local_names}
    return client_works.LocalOptions(**local), rest  # type: ignore[typeddict-item]


def weighs_by_examples(options: Mapping[str, Any]) -> bool:
    """Returns whether the clients' updates are weighed by their examples.

    Args:
      options: The options of a builder whose default is UNIFORM.
    """
    is_weighted = not isinstance(
        options.get("model_aggregator"), tff.aggregators.UnweightedAggregationFactory
    )
    return is_weighted and options.get("client_weighting") == _NUM_EXAMPLES


def total_weight(
    options: Mapping[str, Any],
    num_clients: int,
    total_examples: float | None,
    *,
    needs_examples: bool = False,
) -> float:
    """Returns the weights of all clients, added up, of which a cohort has a share.

    Args:
      options: The options of a builder whose default is UNIFORM.
      num_clients: N, the number of all clients.
      total_examples: The sum over all clients of the examples of one round.
      needs_examples: Whether `total_examples` is needed with UNIFORM, too.

    Returns:
      `total_examples` where clients weigh as many as their examples, otherwise N.

    Raises:
      TypeError: If an argument has the wrong type.
      ValueError: If an argument is out of its range, or `total_examples` is missing or
        without use.
    """
    checks.check_integer("num_clients", num_clients)
    weighting = options.get("client_weighting", tff.learning.ClientWeighting.UNIFORM)
    if (needs_examples or weighting == _NUM_EXAMPLES) != (total_examples is not None):
        also = " or with variates_by_examples" if needs_examples else ""
        raise ValueError(
            f"total_examples must be given exactly if client_weighting is NUM_EXAMPLES"
            f"{also}, found {checks.shown(total_examples)} with weighting {weighting}. "
            "It is the sum over all clients of the examples of one round."
        )
    if total_examples is None:
        return num_clients
    checks.check_positive("total_examples", total_examples)
    if needs_examples or weighs_by_examples(options):
        return total_examples
    return num_clients
