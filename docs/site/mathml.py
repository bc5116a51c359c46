"""Formulas as MathML, which needs no script and no network."""

from __future__ import annotations

import re
from typing import Any

import latex2mathml.converter
from docutils import nodes


def inline(translator: Any, node: nodes.math) -> None:
    """Writes a formula in a line of text."""
    translator.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Writes a formula on a line of its own; its parts may break into more."""
    parts = re.split(r"\\qquad", node.astext())
    formulas = " ".join(_mathml(part, "block") for part in parts)
    translator.body.append(f'<div class="math">{formulas}</div>')
    raise nodes.SkipNode


def _mathml(latex: str, display: str) -> str:
    mathml = latex2mathml.converter.convert(latex, display=display)
    # A prime is raised in the font already: as an exponent it would be too small.
    mathml = re.sub(
        r"<msubsup>(<mi>.*?</mi>)(<mi>.*?</mi>)<mi>&#x02032;</mi></msubsup>",
        r"<msub><mrow>\1<mo>&#x02032;</mo></mrow>\2</msub>",
        mathml,
    )
    # Norms are as high as a line.
    return mathml.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')


def setup(app: Any) -> dict[str, bool]:
    """Registers the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
