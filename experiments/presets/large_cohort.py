"""Charles et al. (2021), On Large-Cohort Training for Federated Learning.

https://arxiv.org/abs/2106.07820
"""

from __future__ import annotations

from experiments.presets.preset import Preset

PRESETS: tuple[Preset, ...] = ()
