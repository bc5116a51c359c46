"""Says where long names and paths may break at the end of a line."""

from __future__ import annotations

import itertools
import re
from typing import Any

from docutils import nodes

_SHORT = 16
# Behind `/`, `_`, `=` and their kin, not in `...`, `0.1` nor `--flag`.
_MAY_BREAK = re.compile(
    r"(?<=[\w)][/_=(,])(?=[\w<\[])|(?<=\w\.)(?=[^\W\d])(?!py\b)|(?<=::)"
)


def pieces(text: str) -> list[str]:
    """Returns a text in pieces that stay whole.

    Args:
      text: A name, a path or a command.
    """
    words = re.split(r"(?<= )", text)
    return list(
        itertools.chain.from_iterable(
            _MAY_BREAK.split(word) if len(word) > _SHORT else [word] for word in words
        )
    )


def add_breaks(app: Any, document: nodes.document, _: str) -> None:
    """Puts a place to break between the pieces of code in lines of text."""
    if app.builder.format != "html":
        return
    for literal in document.findall(nodes.literal):
        parts = pieces(literal.astext())
        if len(parts) > 1:
            literal.clear()
            for part in parts:
                literal += [nodes.Text(part), nodes.raw("", "<wbr>", format="html")]
            literal.pop()


def setup(app: Any) -> dict[str, bool]:
    """Has the places to break put in before a page is written."""
    app.connect("doctree-resolved", add_breaks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
