"""The command `tff-drift`."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence

_OVERVIEW = """\
tff-drift: federated learning in simulation, and methods against client drift.

usage: tff-drift COMMAND [--flag=value ...]

commands:
{}

A first try, which needs no data and takes a minute or two:
  tff-drift compare --task=digits --algorithms=fed_avg,fed_adam --seeds=1

`tff-drift COMMAND --help` shows the flags of a command, `tff-drift --version` the
version.
"""
_STATUS_TROUBLE, _STATUS_MISTAKE, _STATUS_INTERRUPTED = 1, 2, 130


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      arguments: The words after `tff-drift`; by default those of this program.

    Returns:
      The exit status: 0, 1 if the machine fails, 2 for a mistake of the user, 130
      after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Greek letters shows question marks, not a traceback.
            stream.reconfigure(errors="replace")
    try:
        # Here, so that Ctrl-C finds this function whatever is being imported.
        from experiments.flags.errors import UserError

        try:
            _dispatch(words)
            sys.stdout.flush()
        except UserError as error:
            print(f"tff-drift: error: {error}", file=sys.stderr)
            return _STATUS_MISTAKE
    except SystemExit as shown:  # Of argparse, after help.
        return int(shown.code or 0)
    except KeyboardInterrupt:
        again = shlex.join(["tff-drift", *words])
        print(f"tff-drift: interrupted. To go on: {again}", file=sys.stderr)
        return _STATUS_INTERRUPTED
    except OSError as error:
        # Python would complain once more when it flushes the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"tff-drift: error: {error}", file=sys.stderr)
            return _STATUS_TROUBLE
        # The reader of a list has seen enough.
    return 0


def _dispatch(words: list[str]) -> None:
    from experiments.commands import COMMANDS
    from experiments.flags import errors

    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    name = words[0] if words else "--help"
    if name in ("--help", "-h"):
        commands = [f"  {each.name:13}{each.summary}" for each in COMMANDS.values()]
        print(_OVERVIEW.format("\n".join(commands)), end="")
    elif name == "--version":
        import tff_drift

        print(f"tff-drift {tff_drift.__version__}")
    elif name.startswith("-"):
        raise errors.UserError(
            f"the command comes first: tff-drift {'|'.join(COMMANDS)} {name} ..."
        )
    elif name not in COMMANDS:
        raise errors.unknown("command", name, tuple(COMMANDS))
    else:
        _silence_tensorflow()
        COMMANDS[name].call(words[1:])


def _silence_tensorflow() -> None:
    """Keeps the notes of TensorFlow and gRPC off the terminal.

    They read these variables when they are loaded; a user's own values stay.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
