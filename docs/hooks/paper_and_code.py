"""A hook of mkdocs: code and tests that learn/paper-and-code.md names stand beside each other, from the tree.

The page has lines such as ``- Code: [`Residual`](../../minitransformer/model/layers.py)``.  On GitHub they are links.
On the site each is followed by the source of what it names, so the page cannot show other code than that which runs.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"^- (Code|Test): \[`([\w.]+)`\]\(((?:\.\./)+)([\w/.]+)\)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put the named code and tests below their links, in two columns where there is room."""
    if page.file.src_uri != "learn/paper-and-code.md":
        return markdown
    lines = re.compile(rf"(?:{NAMED.pattern}\n?)+", re.MULTILINE)
    return lines.sub(lambda match: columns(match[0]), markdown)


def columns(links: str) -> str:
    """Return a grid with the sources that consecutive lines name."""
    cells = [
        f"<div markdown>\n{match[0].removeprefix('- ')}\n\n```python\n{source_of(match[4], match[2])}\n```\n</div>\n"
        for match in NAMED.finditer(links)
    ]
    return '<div class="beside" markdown>\n\n' + "\n".join(cells) + "\n</div>\n"


def source_of(path: str, name: str) -> str:
    """Return the source of a function, class, method or table of a file.  Raises: LookupError if the file has none."""
    text = (ROOT / path).read_text("utf-8")
    body: list[ast.stmt] = ast.parse(text).body
    for part in name.split("."):
        found = [node for node in body if part in (getattr(node, "name", None), _assigned(node))]
        if not found:
            raise LookupError(f"{path} defines no {name}")
        body = getattr(found[0], "body", [])
    first, *_ = [each.lineno for each in getattr(found[0], "decorator_list", [])] + [found[0].lineno]
    lines = text.splitlines()[first - 1 : found[0].end_lineno]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


def _assigned(node: ast.stmt) -> str | None:
    """Return the name to which a table is assigned; None if the statement is no such assignment."""
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None
