"""Reddi et al. (2021), Adaptive Federated Optimization.

https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from typing import Any

from experiments.presets.preset import Output, Preset, Scale, Study, Variant

METHODS = ("fed_adagrad", "fed_adam", "fed_yogi", "fed_avgm", "fed_avg")
# Table 1, in the units of our metrics; the order is that of `METHODS`.
TABLE_1 = {
    "shakespeare_character": (0.575, 0.570, 0.572, 0.573, 0.569),
    "emnist_character": (0.851, 0.856, 0.855, 0.852, 0.849),
    "emnist_autoencoder": (0.00420, 0.00101, 0.00098, 0.00165, 0.00647),
    "cifar100": (0.479, 0.525, 0.524, 0.524, 0.447),
    "stackoverflow_word": (0.238, 0.252, 0.252, 0.238, 0.195),
    "stackoverflow_tag": (0.671, 0.658, 0.659, 0.369, 0.300),
}
_PAPER_ROUNDS = {
    "shakespeare_character": 1200,
    "emnist_character": 1500,
    "emnist_autoencoder": 3000,
    "cifar100": 4000,
    "stackoverflow_word": 1500,
    "stackoverflow_tag": 1500,
}
# At the scale `local`, where they are not the paper's.
_LOCAL_ROUNDS = {
    "emnist_character": 200,
    "emnist_autoencoder": 100,
    "cifar100": 20,
    "stackoverflow_word": 20,
    "stackoverflow_tag": 50,
}


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
    if rounds is not None:
        flags.update(rounds=rounds, rounds_per_evaluation=max(1, rounds // 50))
    last = Output(
        "last_rounds",
        "last_rounds",
        {
            "last": _last(rounds or _PAPER_ROUNDS[task]),
            "paper": dict(zip(METHODS, TABLE_1[task])),
        },
    )
    variants = [Variant(name, name) for name in METHODS]
    return Study(task, flags, variants, outputs=[last])


PRESETS = (
    Preset(
        "fedopt_table",
        "FedAdagrad, FedAdam, FedYogi, FedAvgM and FedAvg at the paper's rates: "
        "the mean of the last rounds beside the paper's. Shakespeare is the paper's "
        "own data, and its part the paper's protocol at both scales; CIFAR-10 is left "
        "out.",
        "Reddi et al. (2021), Table 1. https://arxiv.org/abs/2003.00295",
        # Shakespeare takes half an hour a run.
        Scale([_table(task, _LOCAL_ROUNDS.get(task)) for task in TABLE_1], 16, 3),
        Scale([_table(task, None) for task in TABLE_1], 2000, 8),
    ),
)
