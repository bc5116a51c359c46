"""The progress and the failures of a run, on the terminal."""

from __future__ import annotations

import logging
import pathlib
import sys

import tff_drift


class _LogHandler(logging.Handler):
    """Shows our own notes, and everybody's warnings, as plain lines.

    `sys.stderr` is looked up at every line: a progress bar redirects it while it is
    drawn, so that lines appear above the bar.
    """

    _OUR_FOLDER = str(pathlib.Path(tff_drift.__file__).parent)

    def filter(self, record: logging.LogRecord) -> bool:
        ours = record.pathname.startswith(self._OUR_FOLDER)
        return ours or record.levelno >= logging.WARNING

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr)


def show() -> None:
    """Shows absl's log, in which a run reports its progress and its failures."""
    logger = logging.getLogger("absl")
    logger.handlers = [_LogHandler()]
    logger.setLevel(logging.INFO)
    logger.propagate = False
