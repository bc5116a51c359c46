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
_ADDRESS = re.compile(r"(?<![<`\"])(?<!\]\()\bhttps?://[^\s)>`,]*[^\s)>`,.]")
_CODE = re.compile(r"(?<![`{\w])`([^`\n]+)`(?!`)")


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
        text = _with_links(text, addresses, module)
        parts.append(f"**{title}**\n\n{text}" if title else text)
    return "\n\n".join(parts)


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
    """Examples (`>>>`) and indented code in fences."""
    out = []
    for paragraph in re.split(r"\n\n", text):
        lines = paragraph.splitlines()
        if lines and lines[0].startswith(">>> "):
            out.append("```python\n" + paragraph + "\n```")
        else:
            out.append(paragraph)
    return "\n\n".join(out)


def _with_links(text: str, addresses: Mapping[str, str], module: str) -> str:
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
        else _ADDRESS.sub(r"<\g<0>>", _CODE.sub(link, part))
        for part in parts
    )
