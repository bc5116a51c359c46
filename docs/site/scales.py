"""The scale of committed results, as docs/results.md tells it beside the paper's.

The words stand before a comment that names a folder of `experiments/results`,

    10 of 100 clients, 300 rounds, 41 examples, 3 seeds<!-- scale FOLDER -->

and `make quotes` renews them from the folder's config.json and summary.json; a cell
with the scales of several studies has `;` between them. Clients are those of a round
and all that train; examples are those of a client, on average.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable

SCALE = re.compile(r"(?P<text>[^|>;]*?)(?P<comment><!-- scale (?P<folder>\S+) -->)")


def renewed(text: str, results: pathlib.Path) -> str:
    """Returns a document with the scales of its sources.

    Args:
      text: The document.
      results: The folder of results.

    Raises:
      ValueError: If a comment names what there is not.
    """

    def renew(match: re.Match[str]) -> str:
        try:
            return f" {describe(results / match['folder'])}{match['comment']}"
        except (OSError, KeyError) as error:
            raise ValueError(f"{match[0]!r}: {error}") from error

    return SCALE.sub(renew, text)


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
