"""The commands, each in a module of its own; known without importing TensorFlow.

A new command is a module with a `COMMAND` and a name in `_MODULES`.
"""

from experiments.commands import (
    analyze,
    compare,
    data,
    diagnose,
    doctor,
    install_tff,
    listing,
    preset,
    report,
    sweep,
    train,
)

_MODULES = (
    *(diagnose, train, compare, sweep, preset, analyze, report),
    *(listing, data, doctor, install_tff),
)
COMMANDS = {module.COMMAND.name: module.COMMAND for module in _MODULES}
