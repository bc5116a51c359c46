"""Makes figures and presets' tables anew, from data beside them: `make figures`.

python docs/site/figures.py            # writes them
python docs/site/figures.py --to=DIR   # writes them below another folder
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments import analysis  # noqa: E402
from experiments.analysis import style  # noqa: E402
from experiments.analysis.studies import METRICS_FILE, read_study  # noqa: E402
from experiments.presets.catalogue import PRESETS  # noqa: E402
from experiments.presets.preset import Study  # noqa: E402
from experiments.reports import outputs, plots  # noqa: E402

RESULTS = pathlib.Path("experiments/results")


def _heat_map(folder: pathlib.Path) -> Any:
    points = pd.read_csv(folder / "points.csv")
    across, down = "server_learning_rate", "client_learning_rate"
    table = points.pivot(index=down, columns=across, values="accuracy")
    title = "fed_adam on digits, clients held out, 1 seed(s)"
    return analysis.draw_heat_map(table, "accuracy", title)


def _curves(folder: pathlib.Path) -> Any:
    study = read_study(folder)
    return plots.draw_comparison(study.runs, study.labels)


def _speed(folder: pathlib.Path) -> Any:
    """Draws rounds in units of FedJAX's, with their seconds."""
    rounds = pd.read_csv(folder / "speed.csv").sort_values("ratio", ascending=False)
    figure, (panel,) = style.panels(1, (7.5, 5.6))
    bars = panel.barh(rounds["workload"], rounds["ratio"], color="#0072B2")
    told = [f"{one.ratio:.2f} ({one.tff_drift:.3f} s)" for one in rounds.itertuples()]
    panel.axvline(1, color=style.colour(0), linewidth=0.8, zorder=0)
    on_white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    panel.bar_label(bars, told, padding=4, fontsize=8, bbox=on_white)
    panel.set_xlim(0, 1.8)
    panel.set_xlabel("a round's time ÷ FedJAX's, and its seconds")
    style.plain(panel)
    return figure


# Besides the figures of presets: what is drawn of the files in a folder, and where.
FIGURES: dict[str, tuple[pathlib.Path, Callable[[pathlib.Path], Any]]] = {
    f"{RESULTS}/fed_adam_sweep/heat_map.png": (RESULTS / "fed_adam_sweep", _heat_map),
    "docs/demo.png": (RESULTS / "demo", _curves),
    "docs/speed.png": (pathlib.Path("docs/figures"), _speed),
    **{
        str(path.relative_to(ROOT)): (path.parent.relative_to(ROOT), _curves)
        for path in sorted((ROOT / RESULTS).rglob("curves.png"))
    },
}


def studies() -> Iterator[tuple[pathlib.Path, Study]]:
    """Yields the parts of presets whose results are kept, with their folders."""
    for path in sorted((ROOT / RESULTS).rglob(METRICS_FILE)):
        folder = path.parent
        flags = json.loads((folder / "config.json").read_text("utf-8")).get("flags", {})
        if "preset" in flags:
            study = PRESETS[flags["preset"]].study(flags["scale"], flags["part"])
            yield folder.relative_to(ROOT), study


def names() -> set[str]:
    """Returns the paths of all figures."""
    of_presets = {
        f"{folder}/{output.name}.png"
        for folder, study in studies()
        for output in study.outputs
        if output.kind in outputs.FIGURES
    }
    return {*FIGURES, *of_presets}


def main() -> None:
    """Makes all figures, and the tables of presets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=pathlib.Path, default=ROOT, metavar="DIR")
    to = parser.parse_args().to
    for name, (source, draw) in FIGURES.items():
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        style.save(draw(ROOT / source), path)
        print(path)
    for folder, study in studies():
        (to / folder).mkdir(parents=True, exist_ok=True)
        outputs.write(ROOT / folder, study, to / folder)


if __name__ == "__main__":
    main()
