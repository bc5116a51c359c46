"""The command `tff-drift`.

This module and those that it imports at its top know nothing of TensorFlow, so that
help, lists and most error messages come at once.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence

from experiments import command_line, errors, help_texts, listing, settings
from experiments.flag_table import COMPARE, DATA, PRESET, TRAIN
from experiments.presets import registry

_LIST = "list"
_COMMANDS = (TRAIN, COMPARE, _LIST, DATA, PRESET)
_DATA_ACTIONS = ("check", "fetch", "describe")
_HELP_FLAGS = ("--help", "-h", "-help", "--helpfull", "--helpshort")

_STATUS_ERROR = 2
_STATUS_INTERRUPTED = 130


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      arguments: The words after `tff-drift`; by default those of this program.

    Returns:
      The exit status: 0, 2 for a mistake of the user, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Greek letters shows question marks, not a traceback.
            stream.reconfigure(errors="replace")
    try:
        _dispatch(words)
    except errors.UserError as error:
        print(f"tff-drift: error: {error}", file=sys.stderr)
        return _STATUS_ERROR
    except KeyboardInterrupt:
        again = shlex.join(["tff-drift", *words])
        print(f"tff-drift: interrupted. To go on: {again}", file=sys.stderr)
        return _STATUS_INTERRUPTED
    except BrokenPipeError:
        # The reader of a list has seen enough. Python would complain once more when
        # it flushes the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _dispatch(words: list[str]) -> None:
    if not words or words[0] in ("help", *_HELP_FLAGS):
        command = words[1] if len(words) > 1 else ""
        print(help_texts.help_on(_check_command(command) if command else ""), end="")
        return
    command, rest = _check_command(words[0]), words[1:]
    if any(word in _HELP_FLAGS for word in rest):
        print(help_texts.help_on(command), end="")
    elif command == _LIST:
        listing.print_lists(rest)
    elif command == DATA:
        _data(rest)
    elif command == PRESET:
        _preset(rest)
    else:
        _train(command, rest)


def _check_command(name: str) -> str:
    if name.startswith("-"):
        raise errors.UserError(
            f"the command comes first: tff-drift {'|'.join(_COMMANDS)} {name} ..."
        )
    if name not in _COMMANDS:
        raise errors.unknown("command", name, _COMMANDS)
    return name


def _train(command: str, words: list[str]) -> None:
    arguments = command_line.parse(command, words)
    runs = settings.resolve(arguments)
    _silence_tensorflow()
    # Imported here because they import TensorFlow, which takes seconds.
    from experiments import commands

    if command == TRAIN:
        commands.train(runs[0])
    else:
        commands.compare(arguments, runs)


def _data(words: list[str]) -> None:
    action, *rest = words or [""]
    if action not in _DATA_ACTIONS:
        raise errors.unknown("action on data", action, _DATA_ACTIONS)
    arguments = command_line.parse(DATA, rest)
    _silence_tensorflow()
    from experiments import data_command

    getattr(data_command, action)(arguments)


def _preset(words: list[str]) -> None:
    name, *rest = words or [""]
    request = registry.request(name, command_line.parse(PRESET, rest))
    _silence_tensorflow()
    registry.run(request)


def _silence_tensorflow() -> None:
    """Keeps the notes of TensorFlow and gRPC off the terminal.

    They read these variables when they are loaded; a user's own values stay.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
