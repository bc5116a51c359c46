"""Says where long names and paths may break at the end of a line."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes

_DOT = re.compile(r"(?<=\w\.)(?=\w)")
_IN_CODE = re.compile(r'(?<=<span class="pre">)[^<]+')
_SHORT = 16
# Behind `/`, `_`, `=` and their kin, not in `...`, `0.1` nor `--flag`.
_MAY_BREAK = re.compile(
    r"(?<=[\w)][/_=(,])(?=[\w<\[])|(?<=\w\.)(?=[^\W\d])(?!py\b)|(?<=::)"
)
# In a name that has none of these, before a capital letter.
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")


def pieces(text: str) -> list[str]:
    """Returns a text in pieces that stay whole.

    Args:
      text: A name, a path or a command.
    """
    found: list[str] = []
    for word in re.split(r"(?<= )", text):
        may_break = _CAPITAL if word.isalpha() else _MAY_BREAK
        found += may_break.split(word) if len(word) > _SHORT else [word]
    return found


def add_breaks(app: Any, document: nodes.document, _: str) -> None:
    """Puts a place to break between the pieces of code in lines of text."""
    if app.builder.format != "html":
        return
    for literal in document.findall(nodes.literal):
        parts = pieces(literal.astext())
        if len(parts) > 1:
            literal.clear()
            literal += _with_breaks(parts)

    for signature in document.findall(addnodes.desc_signature):
        for text in list(signature.findall(nodes.Text)):
            if "." in text.strip("."):
                text.parent.replace(text, _with_breaks(_DOT.split(text)))


def _with_breaks(parts: list[str]) -> list[nodes.Node]:
    found: list[nodes.Node] = [nodes.Text(parts[0])]
    for part in parts[1:]:
        found += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]
    return found


def add_breaks_to_neighbours(
    _: object, page: str, template: str, context: dict[str, Any], document: object
) -> None:
    """Puts them into the titles of the pages before and behind, too."""
    for side in ("prev", "next"):
        neighbour = context.get(side)
        if neighbour:
            neighbour["title"] = _IN_CODE.sub(
                lambda code: "<wbr>".join(pieces(code[0])), neighbour["title"]
            )


def setup(app: Any) -> dict[str, bool]:
    """Has the places to break put in before a page is written."""
    app.connect("doctree-resolved", add_breaks)
    app.connect("html-page-context", add_breaks_to_neighbours)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
