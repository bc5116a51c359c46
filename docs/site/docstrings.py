"""Docstrings as Markdown: sections, examples and links to other names."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping

_SECTIONS = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Raises": "Raises",
    "Returns": "Returns",
    "Yields": "Yields",
}
_ADDRESS = re.compile(r"(?<![<`\"])(?<!\]\()\bhttps?://[^\s)>`,]*[^\s)>`,.:;]")
_CODE = re.compile(r"(?<![`{\w])`([^`\n]+)`(?!`)")
# Fences, headings and links stay as they are.
_NO_PROSE = re.compile(
    r"(^ *```.*?^ *```|^#.*?$|\[[^\]]*\]\([^)]*\))", re.DOTALL | re.M
)
# Not a word that means something else besides, such as `next` or `Option`.
_IS_NAME = re.compile(r"[_.]|[a-z][A-Z]")
_CODE_BUT_HEADS = re.compile(r"(?<!^\*   )" + _CODE.pattern, re.MULTILINE)


def to_markdown(doc: str, addresses: Mapping[str, str], module: str = "") -> str:
    """Returns a docstring in Google's style as MyST Markdown.

    Args:
      doc: The docstring, without indentation.
      addresses: Where names are documented, by the ways to write them.
      module: The module it is of, whose names come before those of others.
    """
    parts = []
    for title, text in _sections(doc):
        text = _with_fences(text)
        if title in ("Arguments", "Attributes", "Raises"):
            text = _items(text)
        # An argument is not the function that has its name elsewhere.
        code = _CODE if title == "Raises" else _CODE_BUT_HEADS
        text = _with_links(text, addresses, module, code)
        parts.append(f"**{title}**\n\n{text}" if title else text)
    return "\n\n".join(parts)


def with_links(text: str, addresses: Mapping[str, str]) -> str:
    """Returns a page with its first mention of each public name as a link.

    Where the page is read as a file, the names are code in its text and no more.

    Args:
      text: The page, in Markdown.
      addresses: Where names are documented, by the ways to write them.
    """
    linked = set()

    def link(match: re.Match[str]) -> str:
        name = match[1].partition("(")[0]
        address = addresses.get(name) if _IS_NAME.search(name) else None
        if address is None or address in linked:
            return match[0]
        linked.add(address)
        return "{py:obj}`" + f"{match[1]} <{address}>`"

    parts = _NO_PROSE.split(text)
    parts[::2] = [_CODE.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def attributes(doc: str) -> set[str]:
    """Returns the names that a docstring's section of attributes has."""
    texts = [text for title, text in _sections(doc) if title == "Attributes"]
    return {name for text in texts for name in re.findall(r"^(\w+):", text, re.M)}


def _sections(doc: str) -> list[tuple[str, str]]:
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in doc.splitlines():
        if line.endswith(":") and line[:-1] in _SECTIONS:
            found.append((_SECTIONS[line[:-1]], []))
        else:
            found[-1][1].append(line)
    texts = [
        (title, textwrap.dedent("\n".join(lines)).strip()) for title, lines in found
    ]
    return [(title, text) for title, text in texts if text]


def _items(text: str) -> str:
    """`name: what it is`, with further lines indented, as a list."""
    items: list[str] = []
    for line in text.splitlines():
        head = re.match(r"(\*{0,2}[\w.]+): ?(.*)", line)
        if head:
            items.append(f"*   `{head[1]}`: {head[2]}".rstrip())
        elif items:
            items.append("    " + line.strip() if line.strip() else "")
        else:
            items.append(line)
    return "\n".join(items)


def _with_fences(text: str) -> str:
    """Examples (`>>>`) in fences."""
    return "\n\n".join(
        f"```python\n{part}\n```" if part.startswith(">>> ") else part
        for part in text.split("\n\n")
    )


def _with_links(
    text: str, addresses: Mapping[str, str], module: str, code: re.Pattern[str]
) -> str:
    """Names in backticks as links to where they are documented."""

    def link(match: re.Match[str]) -> str:
        name = match[1].removesuffix("()")
        address = addresses.get(f"{module}.{name}") or addresses.get(name)
        if address is None:
            return match[0]
        return "{py:obj}`" + f"{match[1]} <{address}>`"

    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(
        part
        if part.startswith("```")
        else _ADDRESS.sub(r"<\g<0>>", code.sub(link, part))
        for part in parts
    )
