"""Yao et al. (2019) on roles and images; `uga` says what is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.presets.preset import Output, Preset, Scale, Study, Variant

# The rate of the paper is for batches of 10.
RATE_PER_EXAMPLE = 0.002 / 10


def minibatches(epochs: int, batch_size: int) -> dict[str, Any]:
    """Returns the flags that have FedMeta's server train as a client does."""
    return {"meta_epochs": epochs, "meta_batch_size": batch_size}


# At the local scale, where K η is some 0.5 for roles and 1.2 for images.
_LOCAL_SERVER_RATE = 1.0


def _local(
    names: Sequence[str], epochs: int, batch_size: int, **meta: Any
) -> list[Variant]:
    """Returns methods, D_meta in minibatches and UGA at a rate that moves.

    Args:
      names: The methods.
      epochs: E, also of FedMeta's server.
      batch_size: B, also of FedMeta's server.
      **meta: More flags of FedMeta.
    """
    of_meta = {**minibatches(epochs, batch_size), **meta}
    of_uga = {"server_learning_rate": _LOCAL_SERVER_RATE}
    return [
        Variant(
            name,
            name,
            {
                **(of_meta if "meta" in name else {}),
                **(of_uga if "uga" in name else {}),
            },
        )
        for name in names
    ]


_OF_ROLES = ("fed_avg", "fed_share", "fed_prox", "uga", "fed_meta", "fed_meta_uga")


def _roles(part: str, rounds: int, variants: Sequence[Variant], **flags: Any) -> Study:
    """Returns the methods of Figures 4 and 7, on a GRU."""
    return Study(
        part,
        {
            "protocol": "uga",
            "task": "shakespeare_character_gru",
            "rounds": rounds,
            "rounds_per_evaluation": max(1, rounds // 50),
            **flags,
        },
        variants,
        outputs=[
            Output("accuracies", "last_rounds", {"last": rounds // 10}),
            # The last is the paper's.
            Output("milestones", "thresholds", {"thresholds": (0.2, 0.25, 0.3, 0.47)}),
        ],
    )


# The accuracies of Table 1, by E and B.
_TABLE_1 = {
    (2, 64): (0.7857, 0.7977, 0.8119, 0.8174),
    (2, 128): (0.7927, 0.8031, 0.8175, 0.8258),
    (5, 128): (0.8045, 0.8144, 0.8166, 0.8343),
}
_OF_IMAGES = ("fed_avg", "fed_prox", "fed_share", "fed_meta_uga")


def _images(
    epochs: int, batch_size: int, rounds: int, variants: Sequence[Variant], **flags: Any
) -> Study:
    """Returns the methods of Table 1 for some E and B."""
    paper = dict(zip(_OF_IMAGES, _TABLE_1[epochs, batch_size], strict=False))
    return Study(
        f"e{epochs}_b{batch_size}",
        {
            "protocol": "uga",
            "task": "cifar10",
            "rounds": rounds,
            "client_epochs": epochs,
            "batch_size": batch_size,
            "rounds_per_evaluation": max(1, rounds // 20),
            **flags,
        },
        variants,
        outputs=[
            Output(
                "accuracies",
                "last_rounds",
                {"last": max(2, rounds // 10), "paper": paper},
            )
        ],
    )


def _plain(names: Sequence[str]) -> list[Variant]:
    """Returns methods as their paper has them."""
    return [Variant(name, name) for name in names]


PRESETS = (
    Preset(
        "uga_shakespeare",
        "FedAvg, FedShare, FedProx, UGA and FedMeta on a GRU that reads roles.",
        "Yao et al. (2019), Figures 4 and 7. https://arxiv.org/abs/1910.08234",
        Scale(
            [
                # The paper names no batch size for roles; 64 is that of its digits.
                _roles(
                    "roles", 100, _local(_OF_ROLES, 5, 64), units=128, batch_size=64
                ),
                # The paper's 1,024 units take two cores minutes a round.
                _roles(
                    "roles_1024",
                    30,
                    _local(("fed_avg", "fed_meta_uga"), 5, 64),
                    batch_size=64,
                ),
            ],
            3,
            3,
        ),
        Scale([_roles("roles", 400, _plain(_OF_ROLES))], 300, 8),
    ),
    Preset(
        "uga_cifar10",
        "FedAvg, FedShare, FedProx and FedMeta over UGA on images that are "
        "partitioned among ten clients at random.",
        "Yao et al. (2019), Table 1 and Figure 2. https://arxiv.org/abs/1910.08234",
        Scale(
            [
                _images(
                    *(2, 64, 15),
                    _local(_OF_IMAGES, 2, 64, meta_learning_rate=64 * RATE_PER_EXAMPLE),
                    client_learning_rate=64 * RATE_PER_EXAMPLE,
                )
            ],
            1,
            3,
        ),
        Scale(
            [_images(*batches, 400, _plain(_OF_IMAGES)) for batches in _TABLE_1], 300, 6
        ),
    ),
)
