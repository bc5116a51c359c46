"""The studies of large cohorts, at any scale: see `large_cohort`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.presets import large_cohort_tables
from experiments.presets.preset import Output, Study, Variant, crossed

_COHORT = "clients_per_round"
_AT = "_m{}"
# Of the paper's tasks, the cohorts of Tables 6 to 9.
COHORTS: dict[str, tuple[int, ...]] = {
    "cifar100": (10, 50, 100, 200, 400),
    "emnist_character": (10, 50, 100, 200, 400, 800),
    "shakespeare_character": (10, 50, 100, 200, 400),
    "stackoverflow_word": (10, 50, 100, 200, 400, 800),
}
# Accuracies to count rounds to, about those of Figures 3 and 4.
THRESHOLDS: dict[str, tuple[float, ...]] = {
    "cifar100": (0.2, 0.3, 0.4),
    "emnist_character": (0.7, 0.8, 0.84),
    "shakespeare_character": (0.4, 0.5, 0.55),
    "stackoverflow_word": (0.15, 0.2, 0.24),
    "digits": (0.7, 0.8, 0.9),
}
_TRAINED = "final_train_accuracy"
_TRAIN_AND_TEST = {"evaluate_on_training_clients": True}
_PSEUDO_GRADIENT = "finalizer/pseudo_gradient_norm"
_COSINE = "aggregator/mean_pairwise_cosine"
_CLIENTS = {
    name: name for name in (f"test_accuracy_client_p{p}" for p in (5, 25, 50, 75, 95))
}
# What figures call columns and settings.
_NAMES = {
    "test_accuracy": "test accuracy",
    _TRAINED: "accuracy on training clients",
    _PSEUDO_GRADIENT: "norm of the mean pseudo-gradient ‖Δ‖",
    _COSINE: "mean cosine between clients' updates",
    _COHORT: "clients per round",
}


def paper(task: str) -> dict[str, Any]:
    """Returns the flags of the paper's protocol on a task."""
    return {"task": task, "protocol": "large_cohort"}


# The paper's tasks with their flags and cohorts.
PAPER = tuple((task, paper(task), cohorts) for task, cohorts in COHORTS.items())


def _last(flags: Mapping[str, Any]) -> int:
    """Returns the rounds at the end to take the mean of: local ones are noisy."""
    return 10 if flags["task"] == "digits" else 1


def against_cohorts(
    part: str,
    flags: Mapping[str, Any],
    cohorts: Sequence[int],
    methods: Sequence[Variant | str],
    by: Sequence[str] = ("algorithm",),
    more: Sequence[Output] = (),
) -> Study:
    """Returns methods at cohorts of several sizes: accuracies and rounds to some.

    Args:
      part: The part's name.
      flags: The flags of all.
      cohorts: The sizes.
      methods: The methods.
      by: The settings that distinguish lines.
      more: More outputs.
    """
    last, thresholds = _last(flags), THRESHOLDS[flags["task"]]
    columns = ("test_accuracy", _TRAINED)
    lines = {"setting": _COHORT, "by": by, "names": _NAMES}
    outputs = [
        Output("accuracy", "against", {"columns": columns, "last": last, **lines}),
        Output("rounds", "against", {"thresholds": thresholds, **lines}),
        Output("last_rounds", "last_rounds", {"columns": columns, "last": last}),
        Output("thresholds", "thresholds", {"thresholds": thresholds}),
        *more,
    ]
    return Study(
        part,
        {**flags, **_TRAIN_AND_TEST},
        crossed(methods, _COHORT, cohorts, _AT),
        outputs=outputs,
        columns={_TRAINED: _TRAINED},
    )


def failures(
    part: str,
    flags: Mapping[str, Any],
    rates: Sequence[float],
    cohorts: Sequence[int],
) -> Study:
    """Returns FedAvg with and without clipping at some client rates."""
    plain = [
        Variant("fed_avg", "fed_avg", {"adaptive_clipping": False}),
        Variant("fed_avg_clipped", "fed_avg", {"adaptive_clipping": True}),
    ]
    if rates:
        plain = list(crossed(plain, "client_learning_rate", rates, "_rate{}"))
    by = ("adaptive_clipping", "client_learning_rate")
    outputs = [
        Output("failures", "failures", {"setting": _COHORT, "by": by, "names": _NAMES}),
        Output(
            "accuracy",
            "against",
            {"setting": _COHORT, "by": by, "last": _last(flags), "names": _NAMES},
        ),
        Output("last_rounds", "last_rounds", {"last": _last(flags)}),
    ]
    columns = {_PSEUDO_GRADIENT: _PSEUDO_GRADIENT}
    variants = crossed(plain, _COHORT, cohorts, _AT)
    return Study(part, flags, variants, outputs=outputs, columns=columns)


def curves(algorithm: str) -> Output:
    """Returns a figure of a method's accuracy over rounds, a line per cohort."""
    options = {
        "columns": ("test_accuracy",),
        "by": (_COHORT,),
        "where": {"algorithm": algorithm},
        "names": _NAMES,
    }
    return Output(f"curves_{algorithm}", "curves", options)


def fairness(
    part: str,
    flags: Mapping[str, Any],
    cohorts: Sequence[int],
    methods: Sequence[str] = ("fed_avg", "fed_adam"),
    last: int | None = None,
) -> Study:
    """Returns methods, reported by percentiles over test clients.

    Args:
      part: The part's name.
      flags: The flags of all.
      cohorts: The sizes.
      methods: The methods.
      last: The rounds at the end to take the mean of; default: the task's.
    """
    last = last or _last(flags)
    outputs = [
        Output("clients", "clients", {"last": last}),
        Output("last_rounds", "last_rounds", {"last": last}),
        Output(
            "percentiles",
            "percentiles",
            {
                "last": last,
                "paper": large_cohort_tables.PERCENTILES.get(flags["task"], {}),
                "source": "Charles et al. (2021), Tables 6 to 9",
            },
        ),
    ]
    variants = crossed(methods, _COHORT, cohorts, _AT)
    return Study(part, flags, variants, outputs=outputs, columns=_CLIENTS)


def updates(part: str, flags: Mapping[str, Any], cohorts: Sequence[int]) -> Study:
    """Returns FedSGD and FedAvg with what the clients' updates have in common."""
    last = _last(flags)
    # The paper shows cosines for cohorts of 50, which come after the smallest.
    some = {_COHORT: cohorts[1]}
    cosines = {
        "columns": (_COSINE,),
        "by": ("algorithm",),
        "where": some,
        "names": _NAMES,
    }
    outputs = [
        Output("predicted_norms", "predicted_norms"),
        Output("cosines", "curves", cosines),
        Output(
            "last_rounds",
            "last_rounds",
            {"columns": (_PSEUDO_GRADIENT, _COSINE), "last": last},
        ),
    ]
    return Study(
        part,
        {**flags, "cohort_measurements": True},
        crossed(("fed_sgd", "fed_avg"), _COHORT, cohorts, _AT),
        outputs=outputs,
        columns={_COSINE: _COSINE, _PSEUDO_GRADIENT: _PSEUDO_GRADIENT},
    )


def scaling(
    part: str,
    flags: Mapping[str, Any],
    cohorts: Sequence[int],
    warm_up: int,
    reference: int,
) -> Study:
    """Returns FedAvg with its server rate scaled by the cohort, and unscaled."""
    scaled = {
        "reference_clients_per_round": reference,
        "server_warm_up_rounds": warm_up,
    }
    methods = [
        Variant("none", "fed_avg"),
        Variant("sqrt", "fed_avg", {"server_rate_scaling": "sqrt", **scaled}),
        Variant("linear", "fed_avg", {"server_rate_scaling": "linear", **scaled}),
    ]
    by = ("server_rate_scaling",)
    return against_cohorts(part, flags, cohorts, methods, by)


def dynamic(
    part: str,
    flags: Mapping[str, Any],
    small: int,
    large: int,
    at: Sequence[int],
    **more: Any,
) -> Study:
    """Returns FedAvg and FedAdam with fixed cohorts and with one that doubles."""
    doubling = {"cohort_doubling": "rounds", "cohort_doubling_at": at, **more}
    variants = [
        variant
        for method in ("fed_avg", "fed_adam")
        for variant in (
            *crossed((method,), _COHORT, (small, large), _AT),
            Variant(f"{method}_dynamic", method, {_COHORT: small, **doubling}),
        )
    ]
    thresholds = THRESHOLDS[flags["task"]]
    outputs = [
        *(
            Output(
                f"{axis}_{method}",
                "curves",
                {
                    "columns": ("test_accuracy",),
                    "axis": axis,
                    "where": {"algorithm": method},
                    "names": _NAMES,
                },
            )
            for method in ("fed_avg", "fed_adam")
            for axis in ("round", "examples")
        ),
        Output(
            "thresholds",
            "thresholds",
            {"thresholds": thresholds, "axes": ("round", "examples")},
        ),
        Output("last_rounds", "last_rounds", {"last": _last(flags)}),
    ]
    return Study(part, flags, variants, outputs=outputs)


def local_steps(
    part: str, flags: Mapping[str, Any], cohorts: Sequence[int], steps: Sequence[int]
) -> Study:
    """Returns FedAvg at batches of one, over local steps and cohorts."""
    taking = crossed(("fed_avg",), "local_steps", steps, "_k{}")
    axes = {"across": "local_steps", "down": _COHORT, "algorithm": "fed_avg"}
    outputs = [
        Output("rounds_to_70", "heat_map", {**axes, "threshold": 0.7}),
        Output("accuracy", "heat_map", {**axes, "last": _last(flags)}),
        Output("last_rounds", "last_rounds", {"last": _last(flags)}),
    ]
    variants = crossed(taking, _COHORT, cohorts, _AT)
    return Study(part, {**flags, "batch_size": 1}, variants, outputs=outputs)


def stragglers(
    part: str,
    flags: Mapping[str, Any],
    cohorts: Sequence[int],
    thresholds: Sequence[float],
    delays: Sequence[float] = (0.1, 1.0, 10.0, 100.0),
) -> Study:
    """Returns FedAvg under a clock, by the clients' mean delay λ; first cohort: 10."""
    delayed = crossed(("fed_avg",), "straggler_delay", delays, "_d{}")
    options = {"thresholds": thresholds, "reference": cohorts[0]}
    outputs = [
        Output("relative_times", "relative_times", options),
        Output("relative_times_table", "relative_times_table", options),
    ]
    return Study(
        part,
        {**flags, "straggler_clock": True},
        crossed(delayed, _COHORT, cohorts, _AT),
        outputs=outputs,
    )
