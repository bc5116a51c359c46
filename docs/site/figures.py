"""Draws the figures of the documents anew, from the data beside them: `make figures`.

python docs/site/figures.py            # writes them
python docs/site/figures.py --to=DIR   # writes them below another folder
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

import pandas as pd

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import analysis  # noqa: E402
from experiments.reports import plots  # noqa: E402
from experiments.reports.results import Result  # noqa: E402

RESULTS = pathlib.Path("experiments/results")
_NORMS = (
    ("model_norm", "norm of the cloud model ‖θ‖"),
    ("gradient_estimate_norm", "norm of the server's estimate ‖h‖"),
)


def _norms(results: list[Result]) -> Any:
    return plots.draw_measurements(results, *_NORMS)


def _heat_map(points: pd.DataFrame) -> Any:
    across, down = "server_learning_rate", "client_learning_rate"
    table = points.pivot(index=down, columns=across, values="accuracy")
    title = "fed_adam on digits, clients held out, 1 seed(s)"
    return analysis.draw_heat_map(table, "accuracy", title)


# What is drawn of the runs, or of the points of a sweep, in a folder, and where.
FIGURES: dict[str, tuple[pathlib.Path, Callable[[Any], Any]]] = {
    f"{RESULTS}/fed_adam_sweep/heat_map.png": (RESULTS / "fed_adam_sweep", _heat_map),
    "docs/demo.png": (RESULTS / "demo", plots.draw_comparison),
    **{
        f"{RESULTS}/drift_comparison/{part}/norms.png": (
            RESULTS / "drift_comparison" / part,
            _norms,
        )
        for part in ("digits_low", "shakespeare_low", "writers_low")
    },
    **{
        f"{RESULTS}/uga_table/{part}/curves.png": (
            RESULTS / "uga_table" / part,
            plots.draw_comparison,
        )
        for part in ("paper_rates", "tuned_rates")
    },
}


def read(folder: pathlib.Path) -> Any:
    """Returns the runs whose metrics are kept in one table, or a sweep's points.

    Args:
      folder: The folder, with `metrics.csv.gz` and `summary.json`, or `points.csv`.
    """
    if (ROOT / folder / "points.csv").is_file():
        return pd.read_csv(ROOT / folder / "points.csv")
    summary = json.loads((ROOT / folder / "summary.json").read_text("utf-8"))
    table = pd.read_csv(ROOT / folder / "metrics.csv.gz")
    results = []
    for (name, seed), rows in table.groupby(["method", "seed"], sort=False):
        settings = types.SimpleNamespace(label=name, seed=seed, task=summary["task"])
        records = [row.dropna().to_dict() for _, row in rows.iterrows()]
        results.append(Result(settings, records, summary))
    return results


def main() -> None:
    """Draws all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=pathlib.Path, default=ROOT, metavar="DIR")
    folder = parser.parse_args().to
    for name, (source, draw) in FIGURES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(read(source)).savefig(path)
        print(path)


if __name__ == "__main__":
    main()
