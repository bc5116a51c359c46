"""All presets by name."""

from __future__ import annotations

from experiments.presets import (
    adabest,
    adabest_grid,
    drift_methods,
    fed_opt,
    large_cohort,
    scaffold,
    uga,
    uga_models,
)
from experiments.presets.preset import Preset

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for paper in (
        fed_opt,
        large_cohort,
        scaffold,
        adabest,
        adabest_grid,
        uga,
        uga_models,
        drift_methods,
    )
    for preset in paper.PRESETS
}
