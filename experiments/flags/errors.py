"""Errors that the user of the command line can correct."""

from __future__ import annotations

import contextlib
import difflib
import pathlib
import traceback
from collections.abc import Collection, Iterator

from tff_drift import checks, module_source

# The modules of users' files have names that begin so.
PLUGIN = "tff_drift_plugin_"
# Those whose checks have messages that need no place.
_OURS = ("experiments", "tasks", "tff_drift")
# Names that flags and their values had, or have elsewhere, with what says the same.
_FORMER = {
    "--learning_rate": ("--client_learning_rate", "--server_learning_rate"),
    "--lr": ("--client_learning_rate", "--server_learning_rate"),
    "--client_lr": ("--client_learning_rate",),
    "--server_lr": ("--server_learning_rate",),
    "--epochs": ("--client_epochs",),
    "--cohort_size": ("--clients_per_round",),
    "--num_rounds": ("--rounds",),
    "--rounds": ("--rounds_before", "--race_rounds"),
    "--weight_decay": ("--client_weight_decay", "--server_weight_decay"),
    "--mu": ("--adabest_mu", "--fed_dyn_mu", "--fed_prox_mu"),
    "--workers": ("--ray_address",),
    "remote": ("ray",),
    "memory": ("ram",),
}


# The files of a command's --plugin that register nothing.
IDLE_PLUGINS: list[str] = []


class UserError(Exception):
    """A user's mistake, reported in one line, without a traceback, and not at length.

    Args:
      message: What it is; of one that is long the middle is left out.
    """

    status = 2

    def __init__(self, message: str) -> None:
        super().__init__(checks.within_limit(message))


class MachineError(UserError):
    """A failure of the machine, such as a full disk."""

    status = 1


def unknown(
    kind: str, name: str, known: Collection[str], otherwise: str = ""
) -> UserError:
    """Returns the error for a name that does not exist, with the nearest that do.

    Args:
      kind: What the name should name, such as "task".
      name: The name.
      known: The names that exist.
      otherwise: What to say if none of them is near; by default all of them.
    """
    nearest = [each for each in _FORMER.get(name, ()) if each in known]
    # The dashes that all flags have make none nearer. To "seeds", "seed" is as near as
    # 0.89, "letters" as 0.5.
    by_word = {each.lstrip("-"): each for each in known}
    words = difflib.get_close_matches(name.lstrip("-"), by_word, n=3, cutoff=0.7)
    nearest = nearest or [by_word[word] for word in words]
    advice = otherwise or f"Known are {', '.join(known)}."
    if nearest:
        first = ", ".join(nearest[:-1])
        advice = f"Did you mean {first}{' or ' if first else ''}{nearest[-1]}?"
    for path in IDLE_PLUGINS:
        advice += (
            f" {path!r} registers nothing: --plugin takes files that call "
            "tff_drift.algorithms.register, tasks.register or "
            "experiments.presets.register."
        )
    return UserError(f"unknown {kind} {name!r}. {advice}")


@contextlib.contextmanager
def as_user_errors(*kinds: type[BaseException]) -> Iterator[None]:
    """Turns errors of some classes into `UserError`s with their message on one line.

    One that comes from the code of a plugin is told with its place there.
    """
    try:
        yield
    except kinds as error:
        plugin = _plugin_of(error)
        text = " ".join(str(error).split())
        if plugin is not None:
            text = f"--plugin: {module_source.mistake(error, plugin)}"
        raise UserError(text) from error


def _plugin_of(error: BaseException) -> pathlib.Path | None:
    """Returns the user's file in which an error was raised, or the library it calls."""
    plugin = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(PLUGIN):
            plugin = pathlib.Path(frame.f_code.co_filename)
        elif module.partition(".")[0] in _OURS:
            plugin = None
    return plugin
