"""Callbacks of the user's own, by `--callbacks=MODULE:NAME`."""

from __future__ import annotations

import importlib
import pathlib
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from experiments.flags import plugins
from experiments.flags.errors import UserError
from tff_drift import module_source
from tff_drift.simulation import callbacks

_WANTED = (
    "MODULE:NAME, as my_module:MyCallback for the class MyCallback of my_module.py in "
    "this folder"
)


def load(words: Sequence[str]) -> list[Callable[[], callbacks.Callback]]:
    """Returns what makes the callbacks of a run: each run has new ones.

    Args:
      words: `MODULE:NAME` each. The module is importable, or lies in the folder that
        the command was called in; the name is that of a subclass of
        `tff_drift.simulation.callbacks.Callback`, or of a function that returns one,
        to be called without arguments.

    Raises:
      UserError: If there is no such module or name, or it fails, or makes no callback,
        or its file has changed since it was loaded.
    """
    if words and "" not in sys.path:
        sys.path.insert(0, "")
    return [_factory(word) for word in words]


def _factory(word: str) -> Callable[[], callbacks.Callback]:
    module_name, colon, name = word.partition(":")
    if not (module_name and colon and name) or word.startswith("."):
        raise UserError(f"--callbacks must be {_WANTED}, found {word!r}.")
    try:
        module = importlib.import_module(module_name)
        plugins.check_unchanged(f"--callbacks={word}", module)
        made_by = getattr(module, name)
    except UserError:
        raise
    except (ImportError, AttributeError) as error:
        raise UserError(f"--callbacks={word}: {error}. Give {_WANTED}.") from error
    except SystemExit as end:
        raise UserError(
            f"--callbacks={word}: the module ends the program when it is imported "
            f"(exit status {end.code!r}). Take that out of it."
        ) from end
    except Exception as error:
        raise UserError(f"--callbacks={word}: {_mistake(error)}") from error

    def build() -> callbacks.Callback:
        made = _call(word, made_by)
        if not isinstance(made, callbacks.Callback):
            raise UserError(
                f"--callbacks={word}: it makes {made!r}, which is not a "
                "tff_drift.simulation.callbacks.Callback. Subclass that."
            )
        return made

    build()
    return build


def _call(word: str, made_by: Any) -> Any:
    try:
        return made_by()
    except TypeError as error:
        raise UserError(
            f"--callbacks={word}: {error}. It is called without arguments: name a "
            "function that passes them."
        ) from error
    except Exception as error:
        raise UserError(f"--callbacks={word}: {_mistake(error)}") from error


def _mistake(error: Exception) -> str:
    """Returns an error of the user's own code on one line, with its place."""
    if isinstance(error, SyntaxError) and error.filename:
        return module_source.mistake(error, pathlib.Path(error.filename))
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    passed = (__file__, importlib.__file__)
    users = (
        each for each in files if each not in passed and not each.startswith("<frozen")
    )
    return module_source.mistake(error, pathlib.Path(next(users, files[-1])))
