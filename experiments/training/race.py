"""A race of methods: rates by `sweep`, runs by `compare`, and who is ahead of whom.

Every method has as many points of rates to try, on held-out clients, with a seed that
no run has; then each trains with the same seeds.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

import tasks
from experiments.flags import declarations, settings, sweeps
from experiments.flags.diagnoses import Race
from experiments.flags.errors import UserError, as_user_errors
from experiments.flags.flag import TPE
from experiments.flags.placement import ON_THIS_MACHINE
from experiments.reports import comparison, texts, writing
from experiments.reports import sweeps as report
from experiments.training import comparison as runs_of_comparison
from experiments.training import pool, searches
from experiments.training import sweeps as training
from tff_drift import checks, files
from tff_drift.simulation.records.configuration import differences

SEEDS = (1, 2)
# How far from the rate that was diagnosed the search goes, and the server's rates.
_FACTOR, _COUNT = 4.0, 5
_SERVER_RATES = "server_learning_rate=log:0.003:0.1:4"
# Methods whose server normalizes what clients send: 1 is no rate for them.
_ADAPTIVE = ("fed_adam", "fed_yogi", "fed_adagrad")
# In the folder of a race: what was asked for, and the searches.
_REQUEST, _TUNING = "race.json", "tuning"
_RATES = ("client_learning_rate", "server_learning_rate")


def of_task(
    task: str,
    output_dir: str | pathlib.Path,
    *,
    client_learning_rate: float,
    points: int = 6,
    rounds: int | None = None,
    **flags: Any,
) -> Callable[[Sequence[str]], pd.DataFrame]:
    """Returns a race for `tff_drift.simulation.diagnose`.

    Args:
      task: The name of a task, such as one that `tasks.register` knows.
      output_dir: The folder of the results.
      client_learning_rate: The rate around which to search.
      points: The points of rates to try for each method.
      rounds: The rounds of a run; by default those of the task.
      **flags: Flags of `tff-drift compare`, such as `clients_per_round`.

    Returns:
      A function of the names of methods, which trains them and returns their table.

    Raises:
      UserError: If a number or a flag is not right.
    """
    with as_user_errors(TypeError, ValueError):
        checks.check_integer("points", points)
        if rounds is not None:
            checks.check_integer("rounds", rounds)
    given = {**flags, "task": task, "client_learning_rate": client_learning_rate}
    of_fed_avg = settings.resolve({**given, "algorithm": "fed_avg"})
    wanted = Race(
        given,
        points,
        rounds or of_fed_avg.rounds,
        client_learning_rate,
        pathlib.Path(output_dir),
        ON_THIS_MACHINE,
    )

    def of_methods(methods: Sequence[str]) -> pd.DataFrame:
        return run(wanted, methods)

    return of_methods


def run(race: Race, methods: Sequence[str]) -> pd.DataFrame:
    """Searches for rates, trains, and writes and returns the table.

    Args:
      race: How.
      methods: The methods, FedAvg first.

    Returns:
      A row for each method, the best first: `algorithm`, the mean and the standard
      deviation of the task's metric over seeds, and `place`: "first", "tie" where the
      spread over seeds does not separate it from the first, or "behind".

    Raises:
      KeyboardInterrupt: On Ctrl-C; what is finished is kept.
      UserError: If something asked for is not available, the folder holds another
        race, or every point of a method's search diverged.
    """
    requests = [_request(race, method) for method in methods]
    _check_folder(race)
    with pool.open_pool(race.placement, race.points) as opened:
        found = [_search(each, opened) for each in requests]
    flags = {
        **{name: v for name, v in race.flags.items() if name not in _RATES},
        "algorithms": tuple(methods),
        "seeds": SEEDS,
        "rounds": race.rounds,
        "settings": tuple(found),
        "output_dir": str(race.folder / "runs"),
    }
    done = runs_of_comparison.run(
        race.folder / "runs",
        declarations.values(declarations.flags_of("compare"), flags),
        settings.resolve_comparison(flags),
    )
    metric = done[0].headline.removeprefix("test_")
    is_better = tasks.describe(done[0].settings.task).higher_is_better
    table = places(comparison.tabulate(done), metric, is_better)
    writing.write_table(race.folder / "race.csv", table)
    cells = [
        [
            row["algorithm"],
            texts.metric_with_deviation(metric, row[metric], row[f"{metric}_sd"]),
            row["place"],
        ]
        for row in table.to_dict(orient="records")
    ]
    headers = ["algorithm", metric, "place"]
    text = f"{comparison.describe(done)}.\n\n{texts.markdown_table(headers, cells)}"
    writing.write_text(race.folder / "race.md", text)
    runs_of_comparison.show(done)
    return table


def _check_folder(race: Race) -> None:
    """Raises if the folder holds another race, whose searches this one would change.

    What else a race depends on is in the files of its searches and runs.
    """
    path = race.folder / _REQUEST
    now = {
        "points": int(race.points),
        "rounds": int(race.rounds),
        "client_learning_rate": float(race.client_rate),
    }
    if not path.exists():
        # A race of before the file was kept goes on without it.
        if not (race.folder / _TUNING).exists():
            writing.make_output_dir(race.folder)
            writing.write_json(path, now)
        return
    try:
        others = differences(files.read_json(path), now)
    except (OSError, AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read ({error}). Choose another output_dir."
        ) from error
    if others:
        raise UserError(
            f"output_dir {str(race.folder)!r} holds another race: "
            f"{'; '.join(others)}. Ask for the same, or choose another output_dir."
        )


def places(table: pd.DataFrame, metric: str, higher_is_better: bool) -> pd.DataFrame:
    """Returns the first, those not separable from it, and those behind.

    With two seeds a method's own deviation says little: the spread of all methods
    around their means is taken together. A gap is one if it is more than twice its
    standard error.

    Args:
      table: The table of a comparison.
      metric: The metric to compare.
      higher_is_better: Whether a larger one is better.
    """
    kept = table[["algorithm", metric, f"{metric}_sd"]]
    kept = kept.sort_values(
        metric, ascending=not higher_is_better, kind="stable", ignore_index=True
    )
    pooled = math.sqrt((kept[f"{metric}_sd"] ** 2).mean())
    gaps = (kept[metric] - kept[metric][0]).abs()
    ties = gaps <= 2 * pooled * math.sqrt(2 / len(SEEDS))
    named = ["first", *("tie" if tie else "behind" for tie in ties[1:])]
    return kept.assign(place=named)


def _request(race: Race, method: str) -> sweeps.Sweep:
    """Returns the search for the rates of a method."""
    low, high = race.client_rate / _FACTOR, race.client_rate * _FACTOR
    axes = [f"client_learning_rate=log:{low:.4g}:{high:.4g}:{_COUNT}"]
    if method in _ADAPTIVE:
        axes.append(_SERVER_RATES)
    flags = {name: v for name, v in race.flags.items() if name not in _RATES}
    return sweeps.request(
        {
            **flags,
            "axes": axes,
            "algorithm": method,
            "rounds": race.rounds,
            # Long enough for three evaluations, which are of the search's last part.
            "rounds_per_evaluation": max(1, race.rounds // 10),
            "seeds": (searches.SEED,),
            "sampler": TPE,
            "points": race.points,
            "prune": True,
            "output_dir": str(race.folder / _TUNING / method),
        }
    )


def _search(sweep: sweeps.Sweep, opened: pool.Pool) -> str:
    """Searches for the rates of a method; returns the file of the best point."""
    report.write_protocol(sweep)
    report.write(sweep, training.run(sweep, opened), training.given_up)
    return str(sweep.folder / report.BEST)
