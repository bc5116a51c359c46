"""The commands, each in a module of its own; known without importing TensorFlow.

A new command is a module with a `COMMAND` and a line in `COMMANDS`.
"""

from experiments.commands import (
    compare,
    data,
    doctor,
    install_tff,
    listing,
    preset,
    train,
)

COMMANDS = {
    command.name: command
    for command in (
        train.COMMAND,
        compare.COMMAND,
        listing.COMMAND,
        data.COMMAND,
        preset.COMMAND,
        doctor.COMMAND,
        install_tff.COMMAND,
    )
}
