"""Experiments of the papers, each to be run by one command: data, without TensorFlow.

A module per paper has its presets at its foot, `PRESETS = (Preset(...), ...)`, in words
of `preset`; `catalogue` collects them, and those that a user's file registers. What a
user asks of them is read by `requests`. `experiments.training.studies` runs them, and
`experiments.reports.outputs` makes their tables and figures.
"""

from experiments.presets.catalogue import register
from experiments.presets.preset import (
    Output,
    Preset,
    Scale,
    Search,
    Study,
    Variant,
    crossed,
)

__all__ = [
    "Output",
    "Preset",
    "Scale",
    "Search",
    "Study",
    "Variant",
    "crossed",
    "register",
]
