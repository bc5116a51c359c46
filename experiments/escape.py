"""Texts that anybody may have written, as each medium shows them and no more.

The markup of HTML is escaped by the templates' own means.
"""

from __future__ import annotations

import re
import unicodedata

# What would be markup in a line of Markdown, or end a cell: a quote or a heading only
# at the start, where "> 3" is a number, an underscore only around words.
_MARKUP = re.compile(r"[\\`*\[\]<|&~$]|^#|^>(?! \d)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# What a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def terminal(text: str) -> str:
    """Returns a text without what steers a terminal, such as colours and moves.

    Args:
      text: The text; line ends and tabs stay.
    """
    return "".join(
        repr(char)[1:-1]
        if char not in "\n\t" and unicodedata.category(char) in _HIDDEN
        else char
        for char in text
    )


def markdown(text: str) -> str:
    """Returns a text in a line that Markdown shows as it is."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(terminal(text).split()))


def from_markdown(text: str) -> str:
    """Returns what `markdown` was given, except for the spaces."""
    return re.sub(r"\\(.)", r"\1", text)


def csv(text: str) -> str:
    """Returns a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def figure(text: str) -> str:
    """Returns a text that matplotlib draws as it is, rather than as mathematics."""
    return terminal(text).replace("$", r"\$")
