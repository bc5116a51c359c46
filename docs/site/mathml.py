"""Formulas as MathML, which needs no script and no network."""

from __future__ import annotations

from typing import Any

import latex2mathml.converter
from docutils import nodes


def inline(translator: Any, node: nodes.math) -> None:
    """Writes a formula in a line of text."""
    translator.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Writes a formula on a line of its own."""
    formula = latex2mathml.converter.convert(node.astext(), display="block")
    translator.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Registers the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
