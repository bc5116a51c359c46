"""The presets by name, known without importing TensorFlow.

A new preset is an entry in `PRESETS` and a module of its name in `experiments.presets`
with a function `run(request)`, which is imported when the preset is run. Its building
blocks are in `experiments.presets.studies`.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import declarations, errors
from experiments.flags.flag import PRESET, WHAT, Depends, Flag

_CIRCUMSTANCES = ("cache_dir", "execution", "workers", "settings")


@dataclasses.dataclass(frozen=True)
class Preset:
    """An experiment before it is run.

    Attributes:
      name: Its name, also that of its module in this package.
      summary: One sentence on what it shows.
      source: Paper, tables and figures that it repeats.
      parts: Parts that can be run alone, in the order in which they run.
    """

    name: str
    summary: str
    source: str
    parts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Request:
    """A preset as a user asks for it.

    Attributes:
      preset: The preset.
      scale: "local" or "paper".
      parts: The parts to run, in their order.
      seeds: The seeds, each for a run of every method.
      folder: The folder for the results.
      circumstances: The flags of `tff-drift train` given for all runs: where the
        data is and where computations run.
    """

    preset: Preset
    scale: str
    parts: tuple[str, ...]
    seeds: tuple[int, ...]
    folder: pathlib.Path
    circumstances: Mapping[str, Any]


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "adabest_cost",
            "What each method sends and computes in a round, measured and by the "
            "paper's formulas.",
            "Varno et al. (2022), Tables 4 and 5 and section C.3. "
            "https://arxiv.org/abs/2204.13170",
            ("digits",),
        ),
        Preset(
            "drift_comparison",
            "FedAvg, SCAFFOLD, FedDyn and AdaBest at low and at full participation, "
            "tuned on held-out clients; how FedDyn's model grows.",
            "After Varno et al. (2022), Table 2 and Figures 1 and 4. "
            "https://arxiv.org/abs/2204.13170",
            (
                "digits_low",
                "digits_full",
                "writers_low",
                "writers_full",
                "shakespeare_low",
                "shakespeare_full",
            ),
        ),
        Preset(
            "fedopt_table",
            "FedAdagrad, FedAdam, FedYogi, FedAvgM and FedAvg at the paper's rates: "
            "the mean of the last rounds beside the paper's.",
            "Reddi et al. (2021), Table 1. https://arxiv.org/abs/2003.00295",
            (
                "shakespeare_character",
                "emnist_character",
                "emnist_autoencoder",
                "cifar100",
                "stackoverflow_word",
                "stackoverflow_tag",
            ),
        ),
        Preset(
            "scaffold_drift",
            "Quadratics with a known optimum: FedAvg stalls the farther off the more "
            "local steps it takes, SCAFFOLD converges.",
            "After Karimireddy et al. (2020), sections 4 to 6. "
            "https://arxiv.org/abs/1910.06378",
            ("sampled", "full"),
        ),
        Preset(
            "uga_table",
            "FedAvg, FedShare, FedProx, UGA and FedMeta on 100 digit writers: rounds "
            "to an accuracy, at the paper's rates and at tuned ones.",
            "Yao et al. (2019), Tables 2 and 3. https://arxiv.org/abs/1910.08234",
            ("paper_rates", "tuned_rates"),
        ),
    )
}


_OWN = (
    Flag(
        "scale",
        "choice",
        "The paper's protocol, for a GPU and official data, or one for two cores.",
        "local",
        choices=("local", "paper"),
        group=WHAT,
    ),
    Flag(
        "parts",
        "text",
        "The parts of the preset to run, separated by commas.",
        Depends("all"),
        many=True,
        group=WHAT,
    ),
)


def flags() -> dict[str, Flag]:
    """Returns the flags of presets by name: those of runs, and their own."""
    return {**declarations.flags_of(PRESET), **{flag.name: flag for flag in _OWN}}


def request(name: str, given: Mapping[str, Any]) -> Request:
    """Returns what is asked for.

    Args:
      name: The preset's name.
      given: The values of the flags that are given, by name.

    Returns:
      The request, checked.

    Raises:
      UserError: If there is no such preset, or it has no such part.
    """
    if name not in PRESETS:
        raise errors.unknown("preset", name, tuple(PRESETS))
    preset, values = PRESETS[name], declarations.values(flags(), given)
    wanted = values["parts"] or preset.parts
    for part in wanted:
        if part not in preset.parts:
            raise errors.unknown(f"part of {name}", part, preset.parts)
    scale = values["scale"]
    return Request(
        preset=preset,
        scale=scale,
        parts=tuple(part for part in preset.parts if part in wanted),
        seeds=values["seeds"],
        folder=pathlib.Path(values["output_dir"] or f"results/{name}/{scale}"),
        circumstances={flag: given[flag] for flag in _CIRCUMSTANCES if flag in given},
    )
