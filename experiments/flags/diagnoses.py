"""The request of `tff-drift diagnose`."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from experiments.flags import declarations, placement, settings
from experiments.flags.errors import UserError
from experiments.flags.flag import DIAGNOSE, Flag
from experiments.flags.placement import Placement
from experiments.flags.settings import RunSettings

ALGORITHM = "fed_avg"
# What the runs of a race know nothing of.
_OWN = ("rounds_before", "max_clients", "race", "race_rounds", "race_points")


@dataclasses.dataclass(frozen=True)
class Race:
    """The settings of a race of methods.

    Attributes:
      flags: The flags that are given for all runs, by name.
      points: The points of rates to try for each method.
      rounds: The rounds of a run.
      client_rate: The clients' rate, around which to search.
      folder: The folder of the results.
      placement: Where runs of the search train.
    """

    flags: Mapping[str, Any]
    points: int
    rounds: int
    client_rate: float
    folder: pathlib.Path
    placement: Placement


@dataclasses.dataclass(frozen=True)
class Request:
    """The settings of a diagnosis.

    Attributes:
      run: The run of FedAvg that is looked at.
      rounds: The rounds before the last measurement.
      max_clients: How many clients to measure.
      folder: The folder of the results.
      race: How to race what follows; None for no race.
    """

    run: RunSettings
    rounds: int
    max_clients: int
    folder: pathlib.Path
    race: Race | None


def request(given: Mapping[str, Any]) -> Request:
    """Returns what is asked for.

    Args:
      given: The values of the flags that are given, by name.

    Raises:
      UserError: If a flag is not right.
    """
    known = declarations.flags_of(DIAGNOSE)
    values = declarations.values(known, given)
    _check(known, given, values)
    place, flags = placement.take(given)
    flags = {name: value for name, value in flags.items() if name not in _OWN}
    task = values["task"]
    folder = pathlib.Path(values["output_dir"] or f"results/diagnose/{task}")
    shown = {
        name: value for name, value in given.items() if name not in (*_OWN, "processes")
    }
    run = settings.resolve({**shown, "algorithm": ALGORITHM, "output_dir": str(folder)})
    race = None
    if values["race"]:
        race = Race(
            {
                name: value
                for name, value in flags.items()
                if name not in ("seed", "output_dir", "settings")
            },
            values["race_points"],
            values["race_rounds"] or run.rounds,
            run.configuration["client_learning_rate"],
            folder / "race",
            place,
        )
    return Request(run, values["rounds_before"], values["max_clients"], folder, race)


def _check(
    known: Mapping[str, Flag], given: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    if values["max_clients"] < 3:
        raise UserError(
            f"--max_clients must be at least 3, found {values['max_clients']}: whether "
            "clients differ takes three or more to see."
        )
    if not values["race"]:
        for name in given:
            if known[name].needs == "race":
                raise UserError(
                    f"--{name} has no meaning without --race. Leave it out."
                )
