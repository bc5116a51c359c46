"""A diagnosis, from the settings of a run to its files."""

from __future__ import annotations

import math
import pathlib
import tempfile
from typing import Any

from matplotlib.figure import Figure

from experiments.analysis import style
from experiments.flags.diagnoses import Request
from experiments.flags.errors import UserError, as_user_errors
from experiments.flags.sections import ClientOptimizer, Execution
from experiments.flags.settings import RunSettings
from experiments.reports import writing
from experiments.training import contexts, processes, race, runs
from tff_drift import files, simulation

_JSON, _TABLE, _FIGURE = "diagnosis.json", "diagnosis.csv", "diagnosis.png"
_FORMAT = "tff_drift diagnosis"


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
    settings, folder = wanted.run, wanted.folder
    _check_folder(folder)
    report = measure(settings, wanted.rounds, wanted.max_clients)
    _write(folder, settings, report)
    if wanted.race is not None:
        report.race = race.run(wanted.race, ("fed_avg", *report.methods))
        _write(folder, settings, report)
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
        contexts.set_execution_context(settings.section(Execution))
        task = runs.load_task(settings)
        return simulation.diagnose(
            task.model_fn,
            task.train,
            client_optimizer_fn=processes.client_optimizer(
                settings.section(ClientOptimizer)
            ),
            cohort_size=configuration["clients_per_round"],
            rounds=rounds,
            max_clients=max_clients,
            server_learning_rate=configuration["server_learning_rate"],
            client_weighting=processes.WEIGHTINGS[configuration["weighting"]],
            initial_weights=configuration.get("initial_weights"),
            seed=settings.seed,
        )


def _check_folder(folder: pathlib.Path) -> None:
    try:
        files.make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()
        names = sorted(each.name for each in folder.iterdir())
    except OSError as error:
        raise UserError(
            f"output_dir {str(folder)!r} cannot be written: {error}. Choose a folder "
            "that can be created and written."
        ) from error
    if names and _JSON not in names:
        raise UserError(
            f"output_dir {str(folder)!r} holds files, but no diagnosis of tff-drift: "
            f"{', '.join(names[:3])}. Choose an empty or a new folder."
        )


def _write(
    folder: pathlib.Path, settings: RunSettings, report: simulation.Diagnosis
) -> None:
    with as_user_errors(OSError):
        table = report.to_frame()
        writing.write_table(folder / _TABLE, table)
        writing.write_json(folder / _JSON, _content(settings, report))
        figure = Figure(figsize=(7.4, 5.6), dpi=150, layout="constrained")
        style.save(report.plot(figure), folder / _FIGURE)


def _content(settings: RunSettings, report: simulation.Diagnosis) -> dict[str, Any]:
    """Returns what the JSON file says."""
    rows = report.to_frame().to_dict(orient="records")
    content = {
        "format": _FORMAT,
        "configuration": dict(settings.configuration),
        "clients": report.clients,
        "measured_clients": len(report.sizes),
        "finding": report.finding,
        "methods": list(report.methods),
        "sentences": report.sentences,
        "gains": report.gains,
        "estimates": [
            {name: _finite(each) for name, each in row.items()} for row in rows
        ],
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
