"""The scale of committed results in words, as the pages of the papers tell it.

    10 of 100 clients, 300 rounds, 41 examples, 3 seeds

Clients are those of a round and all that train; examples are those of a client, on
average.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable


def describe(folder: pathlib.Path) -> str:
    """Returns the scale of a study in words.

    Args:
      folder: Its folder, with config.json and summary.json.

    Raises:
      OSError: If a file cannot be read.
      KeyError: If a file lacks what is told.
    """
    runs = json.loads((folder / "config.json").read_text("utf-8"))["runs"]
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    cohorts = _range(run["clients_per_round"] for run in runs)
    seeds = len(summary["seeds"])
    words = [
        f"{cohorts} of {summary['clients']:,} clients",
        f"{_range(run['rounds'] for run in runs)} rounds",
        *_examples(runs, summary),
        f"{seeds} seed{'s' if seeds > 1 else ''}",
    ]
    return ", ".join(words)


def _range(values: Iterable[int]) -> str:
    least, *_, most = sorted({*values}) * 2
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _examples(runs: list[dict], summary: dict) -> list[str]:
    """Returns a client's examples, nothing where other than whole epochs are run."""
    if any(run.get("local_steps") or not run.get("client_epochs") for run in runs):
        return []
    if any(run.get("cohort_doubling", "none") != "none" for run in runs):
        return []
    participations = sum(
        run["rounds"] * run["clients_per_round"] * run["client_epochs"] for run in runs
    )
    return [f"{round(summary['totals']['examples'] / participations):,} examples"]
