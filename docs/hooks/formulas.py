"""A hook of mkdocs: formulas in LaTeX become MathML, which browsers typeset without a script.

In Markdown a formula is ``$…$`` in a line, and a fenced block named math on lines of its own, as on GitHub.  The
extension arithmatex finds them.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

WORD = re.compile(r"\\mathrm\{([^{}]{2,})\}")  # latex2mathml splits it into letters, but keeps text together
FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_page_content(page_html: str, **_: Any) -> str:
    """Convert the formulas of a page."""
    return FORMULA.sub(mathml, page_html)


def mathml(match: re.Match[str]) -> str:
    """Return a formula as MathML; a block stands on lines of its own."""
    latex = WORD.sub(as_text, html.unescape(match[2]).strip())
    if match[1] == "span":
        return convert(latex)
    return f'<div class="formula">{convert(latex, display="block")}</div>'


def as_text(match: re.Match[str]) -> str:
    """Return an upright word as text."""
    return "\\text{" + match[1].replace("\\_", "_") + "}"
