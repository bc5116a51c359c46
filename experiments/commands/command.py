"""A command of the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from experiments.flags import declarations, parser


@dataclasses.dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
      name: Its name.
      summary: What it does, in a few words; `description` is its help, with an example.
      load: Imports what runs the command, TensorFlow too, and returns it, a function of
        the request.
      request: Turns the values of what was given, by name, into the request, and finds
        the mistakes that can be found without TensorFlow; by default it is the values.
      arguments: The options of `argparse.ArgumentParser.add_argument` for its arguments
        that are not flags, by name.
    """

    name: str
    summary: str
    description: str
    load: Callable[[], Callable[[Any], None]]
    request: Callable[[dict[str, Any]], Any] = dict
    arguments: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def parser(self, every: bool = False) -> parser.Parser:
        """Returns the parser of the words after the command's name.

        Args:
          every: Whether its help shows all flags, even if they are many.
        """
        flags = declarations.flags_of(self.name)
        words = [str(each["metavar"]) for each in self.arguments.values()]
        words += ["[--flag=value ...]"] if flags else []
        result = parser.Parser(
            self.arguments,
            prog=f"tff-drift {self.name}",
            usage=" ".join(["%(prog)s", *words]),
            description=self.description,
            epilog=parser.CLOSING if flags else None,
        )
        result.add_flags(flags, every)
        return result
