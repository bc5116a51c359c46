"""Varno et al. (2022), AdaBest: Table 2's grid, and what its methods are sensitive to.

AdaBest: Minimizing Client Drift in Federated Learning via Adaptive Bias Estimation,
https://arxiv.org/abs/2204.13170. `adabest_table` has Table 2: four methods over the
share of clients in a round and the Dirichlet concentration α of their labels, with
AdaBest's β by participation as the paper found it, once constant and once decayed
where ‖h‖ plateaus (section 3.5), and β='auto', which is ours. Its part `explosion` has
few clients and many rounds, as Figures 1, 4 and 5 do; `unbalanced` has clients of
unequal sizes, as Figure 3. `adabest_sensitivity` has Figures 6 and 7, over μ and β.

At the paper's scale a run has its whole protocol; a tenth of the clients is held out,
as there. At the local scale letters have the protocol with fewer rounds where more
clients take part, for as many images as `emnist_letters.npz` has; so have CIFAR-10 and
CIFAR-100, for 90 or 150 images a client, in 300 and 80 rounds of 10 clients, and 300 of
one, at IID all 1,000. The other data is `digits`, 100 clients of 14 images, and the
client rate that searches on held-out clients found for it, 0.3, see
`drift_comparison`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from experiments.presets.adabest import LOCAL_TRAINING
from experiments.presets.preset import Output, Preset, Scale, Study, Variant, crossed

# Table 2: accuracies in per cent, of FedAvg, FedDyn, SCAFFOLD and AdaBest, by the data
# and the share of clients in a round; at Dirichlet 0.03, 0.3 and IID.
TABLE_2 = {
    ("emnist_letters", 1): (
        (94.28, 92.42, 93.99, 94.49),
        (94.47, 92.64, 94.34, 94.72),
        (94.04, 92.89, 94.48, 94.81),
    ),
    ("cifar10", 1): (
        (78.18, 77.91, 75.83, 78.44),
        (82.21, 82.06, 82.96, 83.09),
        (83.84, 83.36, 84.18, 85.05),
    ),
    ("cifar100", 1): (
        (47.56, 46.27, 47.29, 47.91),
        (49.63, 50.53, 52.87, 53.62),
        (49.93, 50.85, 53.43, 55.33),
    ),
    ("emnist_letters", 10): (
        (93.58, 93.57, 94.29, 94.62),
        (94.04, 93.54, 94.54, 94.64),
        (94.32, 93.6, 94.62, 94.7),
    ),
    ("cifar10", 10): (
        (74.04, 76.85, 77.19, 79.64),
        (79.74, 81.91, 82.26, 84.15),
        (81.35, 83.56, 83.5, 85.78),
    ),
    ("cifar100", 10): (
        (39.18, 44.24, 45.8, 48.56),
        (38.78, 48.92, 46.34, 54.51),
        (37.45, 49.6, 44.3, 55.58),
    ),
    ("emnist_letters", 100): (
        (93.36, 94.18, 94.38, 94.06),
        (93.99, 94.23, 94.53, 94.4),
        (94.06, 94.37, 94.63, 94.69),
    ),
    ("cifar10", 100): (
        (72.97, 78.24, 77.64, 78.07),
        (79.12, 83.19, 82.26, 83.2),
        (80.72, 84.39, 83.55, 84.75),
    ),
    ("cifar100", 100): (
        (38.24, 46.0, 46.51, 46.16),
        (37.03, 50.42, 45.48, 50.9),
        (35.92, 50.61, 43.73, 51.33),
    ),
}
_ALPHAS = (0.03, 0.3, None)
# By the share of clients.
_PAPER_ROUNDS = {1: 1000, 10: 1200, 100: 2000}
_COLUMNS = {
    "model_norm": "model_norm",
    "finalizer/gradient_estimate_norm": "gradient_estimate_norm",
    "finalizer/beta": "beta",
}
_NAMES = {
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "model_norm": "norm of the cloud model ‖θ‖",
    "adabest_mu": "μ",
    "fed_dyn_mu": "μ",
    "beta": "β",
}
_CURVES = Output(
    "norms",
    "curves",
    {"columns": ("test_accuracy", "test_loss", "model_norm"), "names": _NAMES},
)
_TRAINING = Output(
    "training",
    "curves",
    {
        "columns": ("train_accuracy", "test_accuracy"),
        "names": {**_NAMES, "train_accuracy": "accuracy on the cohort, in training"},
    },
)
# By the share of clients: 0.4 is the middle of what the paper searched at 1 %.
_BETAS = {1: 0.4, 2: 0.4, 10: 0.96, 100: 0.98}
# The paper names no factor for β at plateaus.
_BETA_DECAY = 0.98
_AUTO = ("auto",)


def _methods(percent: int, betas: Collection[str]) -> list[Variant]:
    """Returns the methods of Table 2 at a participation, and AdaBest's other β."""
    flags = {"adabest_mu": 0.02, "beta": _BETAS[percent]}
    others: dict[str, dict[str, Any]] = {
        "decay": {"beta_decay": _BETA_DECAY},
        "auto": {"beta": "auto"},
    }
    return [
        Variant("fed_avg", "fed_avg", {"weighting": "uniform"}),
        Variant("fed_dyn", "fed_dyn", {"fed_dyn_mu": 0.02}),
        Variant("scaffold", "scaffold"),
        Variant("adabest", "adabest", flags),
        *(
            Variant(f"adabest_{name}", "adabest", {**flags, **other})
            for name, other in others.items()
            if name in betas
        ),
    ]


def _share(alpha: float | None) -> str:
    return "iid" if alpha is None else str(alpha)


def _grid(
    task: str,
    percent: int,
    rounds: int,
    betas: Collection[str] = ("decay", "auto"),
    alphas: Sequence[float | None] = _ALPHAS,
    **flags: Any,
) -> Study:
    """Returns the methods at a participation, for every Dirichlet concentration.

    Args:
      task: The data.
      percent: The clients in a round, of 100.
      rounds: The rounds.
      betas: AdaBest's β beside the fixed one: "decay" at plateaus, where the rounds
        are enough for it, and "auto".
      alphas: The concentrations; a single one names the part.
      **flags: Further flags of `tff-drift train`.
    """
    variants = [
        method.with_flags(f"_{_share(alpha)}", alpha=alpha)
        for alpha in alphas
        for method in _methods(percent, betas)
    ]
    paper = TABLE_2.get((task, percent), ())
    figures = {
        f"{method}_{_share(alpha)}": value / 100
        for alpha, row in zip(_ALPHAS, paper, strict=False)
        if alpha in alphas
        for method, value in zip(
            ("fed_avg", "fed_dyn", "scaffold", "adabest"), row, strict=True
        )
    }
    part = [task, str(percent), *([_share(*alphas)] if len(alphas) == 1 else [])]
    return Study(
        "_".join(part),
        {
            "task": task,
            "rounds": rounds,
            "rounds_per_evaluation": max(1, rounds // 30),
            **flags,
        },
        variants,
        outputs=[Output("table_2", "last_rounds", {"paper": figures or None})],
        columns=_COLUMNS,
    )


def _protocol_grid(task: str, percent: int, rounds: int, **flags: Any) -> Study:
    flags = {"protocol": "adabest", "clients_per_round": percent, **flags}
    return _grid(task, percent, rounds, **flags)


def _cifar10_alone(percent: int, rounds: int, alpha: float | None) -> Study:
    """Returns the methods at one concentration, for 150 images a client."""
    alone: dict[str, Any] = {"betas": (), "alphas": (alpha,), "max_examples": 150}
    return _protocol_grid("cifar10", percent, rounds, **alone)


_DIGITS: dict[str, Any] = {
    "num_clients": 100,
    **LOCAL_TRAINING,
    "client_learning_rate": 0.3,
}


def _digits_grid(percent: int, rounds: int) -> Study:
    return _grid("digits", percent, rounds, _AUTO, clients_per_round=percent, **_DIGITS)


def _sizes(part: str, **flags: Any) -> Study:
    """Returns the methods on clients of given sizes, Figure 3."""
    return Study(
        part,
        {"protocol": "adabest", "alpha": 0.3, "clients_per_round": 10, **flags},
        _methods(10, _AUTO),
        outputs=[Output("accuracies", "last_rounds")],
        columns=_COLUMNS,
    )


def _explosion(rounds: int, **flags: Any) -> Study:
    """Returns the methods with few clients in a round, for long."""
    flags = {"rounds": rounds, "rounds_per_evaluation": max(1, rounds // 60), **flags}
    return Study(
        "explosion",
        flags,
        _methods(2, ("decay", "auto")),
        outputs=[_CURVES, _TRAINING],
        columns={**_COLUMNS, "train_accuracy": "train_accuracy"},
    )


_MUS = (0.02, 0.04, 0.08, 0.16)


def _mu(beta: float, **flags: Any) -> Study:
    """Returns FedDyn and AdaBest, with a β, at several μ, Figure 6."""
    adabest = Variant("adabest", "adabest", {"beta": beta})
    return Study(
        "mu",
        flags,
        [
            *crossed(["fed_dyn"], "fed_dyn_mu", _MUS, "_{}"),
            *crossed([adabest], "adabest_mu", _MUS, "_{}"),
        ],
        outputs=[_CURVES, Output("accuracies", "last_rounds")],
        columns=_COLUMNS,
    )


def _beta(clients: Sequence[int], betas: Sequence[float | str], **flags: Any) -> Study:
    """Returns AdaBest at several β and participations, Figure 7."""
    by_beta = crossed([Variant("adabest", "adabest")], "beta", betas, "_{}")
    return Study(
        "beta",
        flags,
        crossed(by_beta, "clients_per_round", clients, "_m{}"),
        outputs=[
            Output("accuracies", "last_rounds"),
            Output(
                "betas",
                "against",
                {
                    "setting": "beta",
                    "columns": ("test_accuracy", "model_norm"),
                    "by": ("clients_per_round",),
                    "names": _NAMES,
                },
            ),
        ],
        columns=_COLUMNS,
    )


_LOCAL_BETAS = (0.0, 0.4, 0.8, 0.96)
_LOCAL_SENSITIVITY = (
    _mu(
        # The largest that the paper takes at 1 %.
        0.6,
        task="digits",
        alpha=0.03,
        clients_per_round=5,
        rounds=300,
        rounds_per_evaluation=10,
        **_DIGITS,
    ),
    _beta(
        (2, 20),
        _LOCAL_BETAS,
        task="digits",
        alpha=0.03,
        rounds=150,
        rounds_per_evaluation=30,
        **_DIGITS,
    ),
)
# A hundred more are held out.
_THOUSAND: dict[str, Any] = {
    "num_clients": 1000,
    "alpha": 0.3,
    "clients_per_round": 5,
    "rounds": 3000,
    "rounds_per_evaluation": 50,
}
_PAPER_SENSITIVITY = (
    _mu(
        0.96,
        protocol="adabest",
        task="emnist_letters",
        alpha=None,
        clients_per_round=5,
        rounds=3000,
        rounds_per_evaluation=50,
    ),
    _beta(
        (5, 20, 100),
        (0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0),
        **{"protocol": "adabest", "task": "cifar100", **_THOUSAND},
    ),
)
PRESETS = (
    Preset(
        "adabest_table",
        "FedAvg, FedDyn, SCAFFOLD and AdaBest over participation and heterogeneity, "
        "and how FedDyn's model grows over many rounds.",
        "Varno et al. (2022), Table 2 and Figures 1, 3, 4 and 5. "
        "https://arxiv.org/abs/2204.13170",
        Scale(
            [
                _digits_grid(2, 200),
                _digits_grid(100, 20),
                _protocol_grid("emnist_letters", 1, 1000),
                _protocol_grid("emnist_letters", 10, 300),
                _protocol_grid("emnist_letters", 100, 60, betas=_AUTO),
                _protocol_grid("cifar10", 1, 300, betas=_AUTO, max_examples=90),
                # Each takes two cores up to an hour.
                _cifar10_alone(1, 1000, None),
                *(_cifar10_alone(10, 300, alpha) for alpha in _ALPHAS),
                _protocol_grid("cifar100", 10, 80, betas=_AUTO, max_examples=90),
                _sizes(
                    "unbalanced",
                    task="emnist_letters",
                    size_sigma=0.3,
                    rounds=300,
                    rounds_per_evaluation=10,
                ),
                _explosion(
                    1500, task="digits", alpha=0.03, clients_per_round=2, **_DIGITS
                ),
            ],
            11,
            1.5,
        ),
        Scale(
            [
                *(
                    _protocol_grid(task, percent, _PAPER_ROUNDS[percent])
                    for task, percent in TABLE_2
                ),
                *(
                    _sizes(
                        f"{name}_{clients}",
                        task="cifar100",
                        size_sigma=sigma,
                        num_clients=clients,
                        rounds=1200,
                        rounds_per_evaluation=40,
                    )
                    for name, sigma in (("balanced", 0.0), ("unbalanced", 0.3))
                    for clients in (100, 1000)
                ),
                _explosion(**{**_THOUSAND, "protocol": "adabest", "task": "cifar100"}),
            ],
            2000,
            8,
        ),
    ),
    Preset(
        "adabest_sensitivity",
        "How FedDyn and AdaBest depend on μ, and AdaBest on β by participation.",
        "Varno et al. (2022), Figures 6 and 7. https://arxiv.org/abs/2204.13170",
        Scale(_LOCAL_SENSITIVITY, 1.3, 1.5),
        Scale(_PAPER_SENSITIVITY, 1000, 8),
    ),
)
