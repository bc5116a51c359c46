"""What a diagnosis says of six data sets, beside what a race then finds.

    python benchmarks/diagnosed_races.py --cache_dir=data

Three tasks, each with clients that differ and with clients that are alike, one after
the other: about five minutes of a processor each. What is finished is not done again,
and what was interrupted goes on. `experiments/results/diagnosis/races/` gets what each
diagnosis and its race found, and `races.md` a row for each; `--table` alone writes
`races.md` again.

What a diagnosis says is right where the race puts FedAvg behind a method that it names,
and wrong where FedAvg is ahead of all of these. Else it is a tie, which two seeds do
not resolve.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

RESULTS = pathlib.Path(__file__).parent.parent / "experiments" / "results" / "diagnosis"
KEPT = RESULTS / "races"
_DIGITS = (
    "--task=digits --num_clients=100 --client_epochs=5 --clients_per_round=5 "
    "--client_learning_rate=0.3 --race_rounds=100 "
)
_HOSPITALS = (
    "--plugin=benchmarks/hospitals.py --task=hospitals --clients_per_round=4 "
    "--client_learning_rate=0.03 --race_rounds=20 "
)
_LETTERS = (
    "--task=emnist_letters --letters=10 --num_clients=100 --client_epochs=5 "
    "--clients_per_round=10 --client_learning_rate=0.1 --race_rounds=40 "
)
FLAGS = {
    "digits_dirichlet": _DIGITS + "--alpha=0.03",
    "hospitals_by_size": _HOSPITALS,
    "letters_dirichlet": _LETTERS + "--alpha=0.03",
    "digits_iid": _DIGITS + "--alpha=none",
    "hospitals_at_random": _HOSPITALS + "--nosorted",
    "letters_iid": _LETTERS + "--alpha=none",
}


def main() -> None:
    """Diagnoses and races what is not there yet, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache_dir", default="data")
    parser.add_argument("--points", default="4")
    parser.add_argument("--output_dir", type=pathlib.Path, default="results/races")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, flags in FLAGS.items():
        if options.table or (KEPT / f"{name}.json").exists():
            continue
        words = flags.split()
        if name.startswith("letters"):
            words.append(f"--cache_dir={options.cache_dir}")
        folder = options.output_dir / name
        race = ("--race", f"--race_points={options.points}", "--processes=1")
        command = ("diagnose", *words, *race, f"--output_dir={folder}")
        # Others go on without the data that one lacks.
        if subprocess.run([sys.executable, "-m", "experiments", *command]).returncode:
            failed.append(name)
            continue
        shutil.copy(folder / "diagnosis.json", KEPT / f"{name}.json")
        write_table()
    write_table()
    if failed:
        sys.exit(f"error: not finished: {', '.join(failed)}")


def write_table() -> None:
    """Writes the table of what is finished."""
    (RESULTS / "races.md").write_text(table(), "utf-8")


def table() -> str:
    """Returns what is finished, in Markdown: a row, and below it a line, for each."""
    paths = [KEPT / f"{name}.json" for name in FLAGS]
    kept = {p.stem: json.loads(p.read_text("utf-8")) for p in paths if p.exists()}
    lines = [
        "| data set | bias | cohort's noise | minibatches' | finding | first | FedAvg "
        "| right? |",
        "|---|--:|--:|--:|---|---|---|---|",
        *(_row(name, found) for name, found in kept.items()),
        "",
        *(_line(name, found) for name, found in kept.items()),
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, found: Mapping[str, Any]) -> str:
    errors = {
        each["name"]: f"{each['value']:.2g}"
        for each in found["estimates"]
        if each["part"] == "as_trained"
    }
    places = {each["algorithm"]: each["place"] for each in found["race"]}
    cells = [
        name.replace("_", " "),
        *(errors[each] for each in ("bias", "cohort_noise", "minibatch_noise")),
        found["finding"],
        *(each for each, place in places.items() if place == "first"),
        places["fed_avg"],
        verdict(places),
    ]
    return f"| {' | '.join(cells)} |"


def _line(name: str, found: Mapping[str, Any]) -> str:
    race = ", ".join(
        f"{each['algorithm']} {each['accuracy']:.1%} ± {each['accuracy_sd']:.1%} "
        f"({each['place']})"
        for each in found["race"]
    )
    said = found["sentences"][-1]
    return f"*   {name.replace('_', ' ')}: “{said}” The race: {race}."


def verdict(places: Mapping[str, str]) -> str:
    """Returns whether a method that a diagnosis names is better than FedAvg.

    Args:
      places: The places of FedAvg and of these methods in a race.
    """
    if places["fed_avg"] == "behind":
        return "yes"
    if len(places) == 1:
        return "not raced: it names no method"
    others = [place for name, place in places.items() if name != "fed_avg"]
    return "no" if set(others) == {"behind"} else "a tie"


if __name__ == "__main__":
    main()
