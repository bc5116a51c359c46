"""A diagnosis, from the settings of a run to its files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from experiments.analysis import style
from experiments.flags.diagnoses import Request
from experiments.flags.errors import UserError, as_user_errors
from experiments.flags.settings import RunSettings
from experiments.reports import writing
from experiments.training import contexts, processes, race, runs
from tff_drift import files, simulation
from tff_drift.simulation.records.configuration import differences, to_json

_JSON, _TABLE, _FIGURE = "diagnosis.json", "diagnosis.csv", "diagnosis.png"
_FORMAT = "tff_drift diagnosis"
# What a call without a race keeps of an earlier one.
_OF_RACE = ("race_points", "race_rounds", "race")
# Of settings that differ so many are named.
_MOST = 3


def run(wanted: Request) -> simulation.Diagnosis:
    """Diagnoses drift, races methods if asked for, and writes the files.

    Args:
      wanted: What to diagnose.

    Returns:
      The report.

    Raises:
      KeyboardInterrupt: On Ctrl-C; what a race has finished is kept.
      UserError: If data is missing, or a setting or the folder cannot be used.
    """
    raced = _check_folder(wanted)
    report = measure(wanted.run, wanted.rounds, wanted.max_clients)
    _write(wanted, report, raced)
    if wanted.race is not None:
        report.race = race.run(wanted.race, ("fed_avg", *report.methods))
        _write(wanted, report, raced)
    return report


def measure(
    settings: RunSettings, rounds: int, max_clients: int
) -> simulation.Diagnosis:
    """Diagnoses the drift of a run of FedAvg.

    Args:
      settings: The run.
      rounds: The rounds before the last measurement.
      max_clients: How many clients to measure.

    Raises:
      UserError: If data is missing, or a setting cannot be used.
    """
    configuration = settings.configuration
    with as_user_errors(OSError, TypeError, ValueError):
        contexts.set_execution_context(
            configuration["execution"],
            configuration["clients_per_round"],
            settings.circumstances,
        )
        task = runs.load_task(settings)
        runs.check_cohort(settings, task)
        return simulation.diagnose(
            task.model_fn,
            task.train,
            client_optimizer_fn=processes.client_optimizer(configuration),
            cohort_size=configuration["clients_per_round"],
            rounds=rounds,
            max_clients=max_clients,
            server_learning_rate=configuration["server_learning_rate"],
            client_weighting=processes.WEIGHTINGS[configuration["weighting"]],
            initial_weights=configuration.get("initial_weights"),
            seed=settings.seed,
        )


def _check_folder(wanted: Request) -> dict[str, Any]:
    """Returns what the folder says of a race, unless it holds something else."""
    folder = wanted.folder
    writing.make_output_dir(folder)
    left_by_kill = files.temporary_path(folder / _JSON).name
    names = sorted({each.name for each in folder.iterdir()} - {left_by_kill})
    if not names:
        return {}
    try:
        content = files.read_json(folder / _JSON)
        before = {name: content[name] for name in _asked(wanted)}
        raced = {name: content[name] for name in _OF_RACE if name in content}
    except (OSError, KeyError, TypeError, ValueError):
        raise UserError(
            f"output_dir {str(folder)!r} holds files, but no diagnosis of tff-drift: "
            f"{', '.join(names[:3])}. Choose an empty or a new folder."
        ) from None
    now = to_json("configuration", _asked(wanted))
    # Of before it was kept, only the race's own folders say how it was.
    for name, value in _race_settings(wanted).items():
        if name in raced:
            before[name], now[name] = raced[name], value
    if others := differences(before, now):
        told = "; ".join(each.removeprefix("configuration.") for each in others[:_MOST])
        raise UserError(
            f"output_dir {str(folder)!r} holds another diagnosis: {told}. Ask for the "
            "same, or choose another output_dir."
        )
    return raced


def _asked(wanted: Request) -> dict[str, Any]:
    """Returns what a diagnosis depends on, as the JSON file has it."""
    return {
        "configuration": dict(wanted.run.configuration),
        "rounds_before": wanted.rounds,
        "max_clients": wanted.max_clients,
    }


def _race_settings(wanted: Request) -> dict[str, Any]:
    """Returns what a race depends on besides, as the JSON file has it."""
    if wanted.race is None:
        return {}
    return {"race_points": wanted.race.points, "race_rounds": wanted.race.rounds}


def _write(
    wanted: Request, report: simulation.Diagnosis, raced: Mapping[str, Any]
) -> None:
    folder = wanted.folder
    # First, because it identifies the folder.
    writing.write_json(folder / _JSON, _content(wanted, report, raced))
    writing.write_table(folder / _TABLE, report.to_frame())
    figure = Figure(figsize=(7.4, 5.6), dpi=150, layout="constrained")
    style.save(report.plot(figure), folder / _FIGURE)


def _content(
    wanted: Request, report: simulation.Diagnosis, raced: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what the JSON file says, with the race of before until there is one."""
    rows = report.to_frame().to_dict(orient="records")
    content = {
        "format": _FORMAT,
        **_asked(wanted),
        "clients": report.clients,
        "measured_clients": len(report.sizes),
        "finding": report.finding,
        "methods": list(report.methods),
        "sentences": report.sentences,
        "gains": report.gains,
        "estimates": [
            {name: _finite(each) for name, each in row.items()} for row in rows
        ],
        **raced,
        **_race_settings(wanted),
    }
    if report.race is not None:
        content["race"] = [
            {name: _finite(each) for name, each in row.items()}
            for row in report.race.to_dict(orient="records")
        ]
    return content


def _finite(value: Any) -> Any:
    """Returns a value as JSON has it, where no number is infinite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
