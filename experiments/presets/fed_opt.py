"""Reddi et al. (2021), Adaptive Federated Optimization.

https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.flags import paper_settings
from experiments.presets.preset import (
    Output,
    Preset,
    Scale,
    Search,
    Study,
    Variant,
    crossed,
)

_ADAPTIVE = ("fed_adagrad", "fed_adam", "fed_yogi")
METHODS = (*_ADAPTIVE, "fed_avgm", "fed_avg")
# Table 1, in the units of our metrics; the order is that of `METHODS`.
TABLE_1 = {
    "shakespeare_character": (0.575, 0.570, 0.572, 0.573, 0.569),
    "emnist_character": (0.851, 0.856, 0.855, 0.852, 0.849),
    "emnist_autoencoder": (0.00420, 0.00101, 0.00098, 0.00165, 0.00647),
    "cifar100": (0.479, 0.525, 0.524, 0.524, 0.447),
    "stackoverflow_word": (0.238, 0.252, 0.252, 0.238, 0.195),
    "stackoverflow_tag": (0.671, 0.658, 0.659, 0.369, 0.300),
}
# At the scale `local`, where they are not the paper's.
_LOCAL_ROUNDS = {
    "emnist_character": 200,
    "emnist_autoencoder": 2000,
    "cifar100": 20,
    "stackoverflow_word": 20,
    "stackoverflow_tag": 50,
}
_ROUNDS_PER_EVALUATION = 25


def _last(rounds: int) -> int:
    """Returns how many rounds the paper would take the mean of: 100, or a tenth."""
    return min(100, max(1, rounds // 10))


def _table(task: str, rounds: int | None) -> Study:
    """Returns the methods at the paper's rates, which are those of `tff-drift train`.

    The mean over the last 100 rounds of what test clients measure, or over the last
    tenth of fewer rounds, which compare the methods with each other only.

    Args:
      task: The task.
      rounds: The rounds, `None` for the paper's.
    """
    flags: dict[str, Any] = {"task": task, "protocol": "fed_opt"}
    if rounds is None:
        # Measuring all test clients takes as long as ten rounds.
        flags.update(rounds_per_evaluation=_ROUNDS_PER_EVALUATION)
    else:
        often = min(_ROUNDS_PER_EVALUATION, max(1, rounds // 50))
        flags.update(rounds=rounds, rounds_per_evaluation=often)
    last = Output(
        "last_rounds",
        "last_rounds",
        {
            "last": _last(rounds or paper_settings.of_task("fed_opt", task)["rounds"]),
            "paper": dict(zip(METHODS, TABLE_1[task], strict=True)),
        },
    )
    variants = [Variant(name, name) for name in METHODS]
    return Study(task, flags, variants, outputs=[last])


# Table 11, on EMNIST: central training, then at a constant client rate and at EXPDECAY,
# in the order of `METHODS`.
TABLE_11 = {
    f"{name}_{rate}": value
    for rate, values in (
        ("constant", (0.851, 0.856, 0.855, 0.852, 0.849)),
        ("decay", (0.853, 0.862, 0.862, 0.858, 0.852)),
    )
    for name, value in zip(METHODS, values, strict=True)
}
_CENTRAL = {"central_sgd": 0.877, "central_sgdm": 0.877, "central_adam": 0.879}


def _falling(decay_rounds: int, methods: Sequence[str] = METHODS) -> list[Variant]:
    """Returns methods at a constant client rate and at EXPDECAY.

    Args:
      decay_rounds: The rounds in which the clients' rate falls to a tenth; the paper
        has 500 of 1,500.
      methods: The methods.
    """
    falling = {
        "client_rate_schedule": "exponential",
        "client_rate_decay": 0.1,
        "client_rate_decay_rounds": decay_rounds,
    }
    return [
        Variant(f"{name}{suffix}", name, more)
        for name in methods
        for suffix, more in (("_constant", {}), ("_decay", falling))
    ]


def _decay(
    part: str,
    flags: Mapping[str, Any],
    decay_rounds: int,
    epochs: int,
    is_papers: bool,
) -> Study:
    """Returns methods at constant and at falling client rates, and central training.

    Central training has its rates chosen on clients that are held out, SGD's, those of
    SGD with momentum and Adam's; the others run at the rates of `tff-drift train`.

    Args:
      part: The part's name.
      flags: The flags of all.
      decay_rounds: As in `_falling`.
      epochs: The passes of central training over all data, one a round.
      is_papers: Whether the paper's figures are of this task.
    """
    central = [
        Variant(
            f"central_{label}",
            "central",
            {
                "client_optimizer": optimizer,
                "rounds": epochs,
                # No more than the last 100 rounds of the others counts of it, either.
                "rounds_per_evaluation": epochs if is_papers else 1,
                # A round of central training has no cohort.
                **({"protocol": "none"} if is_papers else {}),
            },
        )
        for label, optimizer in (("sgd", "sgd"), ("sgdm", "momentum"), ("adam", "adam"))
    ]
    grids = {
        "central_sgd": {"client_learning_rate": (0.03, 0.1, 0.3)},
        "central_sgdm": {"client_learning_rate": (0.003, 0.01, 0.03)},
        "central_adam": {"client_learning_rate": (0.001, 0.003, 0.01)},
    }
    last: dict[str, Any] = {"last": _last(flags["rounds"])}
    if is_papers:
        last["paper"] = {**TABLE_11, **_CENTRAL}
    return Study(
        part,
        flags,
        [*_falling(decay_rounds), *central],
        Search(epochs, grids),
        [Output("last_rounds", "last_rounds", last)],
    )


def _long_decay(
    part: str,
    flags: Mapping[str, Any],
    paper: Mapping[str, float] | None = None,
    rates: Mapping[str, float] | None = None,
    searched: Sequence[float] = (),
) -> Study:
    """Returns methods at constant and at falling client rates, for long.

    Args:
      part: The part's name.
      flags: The flags of all.
      paper: The paper's figures, if they are of this task.
      rates: The methods, with their client rates in the first round; default: FedAdam
        and FedAvg, at those of `tff-drift train`.
      searched: Client rates in the first round to choose from on clients that are held
        out, of each method with either schedule.
    """
    rounds = flags["rounds"]
    last = {"last": _last(rounds), **({} if paper is None else {"paper": paper})}
    variants = _falling(rounds // 3, list(rates or ("fed_adam", "fed_avg")))
    if rates is not None:
        variants = [
            variant.with_flags("", client_learning_rate=rates[variant.algorithm])
            for variant in variants
        ]
    search = None
    if searched:
        grids = {each.label: {"client_learning_rate": searched} for each in variants}
        search = Search(rounds, grids)
    return Study(
        part,
        flags,
        variants,
        search,
        [Output("last_rounds", "last_rounds", last)],
    )


def _tuning(
    part: str,
    flags: Mapping[str, Any],
    methods: Sequence[str],
    client_rates: Sequence[float],
    server_rates: Sequence[float],
    last: int,
) -> Study:
    """Returns methods over a grid of client and server rates, as heat maps."""
    plain = [
        Variant(name, name, {"tau": 1e-3} if name in _ADAPTIVE else {})
        for name in methods
    ]
    rates = crossed(plain, "client_learning_rate", client_rates, "_c{:g}")
    variants = crossed(rates, "server_learning_rate", server_rates, "_s{:g}")
    axes = {"across": "server_learning_rate", "down": "client_learning_rate"}
    maps = [
        Output(method, "heat_map", {**axes, "algorithm": method, "last": last})
        for method in methods
    ]
    regions = Output("good_regions", "good_regions", {"last": last})
    return Study(part, flags, variants, outputs=[*maps, regions])


_HALF_DECADES = tuple(float(f"{10 ** (half / 2):.4g}") for half in range(-6, 3))
_DIGITS = {"task": "digits", "rounds": 60, "rounds_per_evaluation": 3}
_EMNIST = {"task": "emnist_character", "protocol": "fed_opt", "rounds": 1500}
PRESETS = (
    Preset(
        "fedopt_table",
        "FedAdagrad, FedAdam, FedYogi, FedAvgM and FedAvg at the paper's rates: "
        "the mean of the last rounds beside the paper's. Shakespeare is the paper's "
        "own data, and its part the paper's protocol at both scales; CIFAR-10 is left "
        "out.",
        "Reddi et al. (2021), Table 1. https://arxiv.org/abs/2003.00295",
        # Shakespeare takes half an hour a run.
        Scale(
            [_table(task, _LOCAL_ROUNDS.get(task)) for task in TABLE_1],
            17,
            3,
        ),
        Scale(
            [_table(task, None) for task in TABLE_1], 2000, 8, "one GPU, not measured"
        ),
    ),
    Preset(
        "fedopt_decay",
        "A constant client rate beside one that falls tenfold every third of the "
        "rounds (EXPDECAY), and central training.",
        "Reddi et al. (2021), Table 11. https://arxiv.org/abs/2003.00295",
        Scale(
            [
                _decay("digits", _DIGITS, 20, 20, False),
                _long_decay(
                    "digits_long",
                    {**_DIGITS, "rounds": 300, "rounds_per_evaluation": 10},
                ),
                # Constant rates and falling ones each at the best for them.
                _long_decay(
                    "digits_long_searched",
                    {**_DIGITS, "rounds": 300, "rounds_per_evaluation": 10},
                    searched=(0.1, 0.3, 1.0),
                ),
                _long_decay(
                    "emnist_character",
                    {**_EMNIST, "rounds_per_evaluation": 25},
                    TABLE_11,
                ),
                # Half a decade higher, since a rate that falls may begin higher.
                _long_decay(
                    "emnist_character_higher",
                    {**_EMNIST, "rounds_per_evaluation": 25},
                    TABLE_11,
                    {"fed_adam": 0.1},
                ),
            ],
            1,
            1.5,
        ),
        Scale(
            [_decay("emnist_character", _EMNIST, 500, 100, True)],
            100,
            4,
            "one GPU, not measured",
        ),
    ),
    Preset(
        "fedopt_tuning",
        "Accuracy over client and server rates, and how many of them are nearly as "
        "good as the best.",
        "Reddi et al. (2021), Figures 2 and 6. https://arxiv.org/abs/2003.00295",
        Scale(
            [
                _tuning(
                    "digits",
                    {**_DIGITS, "rounds": 40, "rounds_per_evaluation": 4},
                    ("fed_adam", "fed_yogi", "fed_avgm"),
                    (0.01, 0.1, 1.0),
                    (0.001, 0.01, 0.1, 1.0),
                    4,
                )
            ],
            0.5,
            1.5,
        ),
        Scale(
            [
                _tuning(
                    task,
                    {"task": task, "protocol": "fed_opt"},
                    METHODS,
                    _HALF_DECADES,
                    _HALF_DECADES,
                    100,
                )
                for task in ("stackoverflow_word", "cifar100")
            ],
            20000,
            8,
            "one GPU, not measured",
        ),
    ),
)
