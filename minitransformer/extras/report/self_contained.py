"""HTML files that need nothing else: no network, no fonts, no library."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any


def self_contained_page(folder: str, scripts: Sequence[str], title: str, data: Any) -> str:
    """Return a page with ``data``; its body, style and scripts are files in ``folder``.

    A Content-Security-Policy allows only this style and these scripts.  Text in ``data`` is never read as HTML: the
    scripts insert it as text, and ``embedded_json`` escapes it.
    """
    style = _part("shared", "base.css") + _part(folder, "page.css")
    script = _part("shared", "base.js") + "".join(_part(folder, name) for name in scripts)
    return Template(_part("shared", "frame.html")).substitute(
        policy=_policy(script, style),
        title=html.escape(title),
        style=style,
        body=_part(folder, "page.html"),
        data=embedded_json(data),
        script=script,
    )


def embedded_json(data: Any) -> str:
    """Return JSON that is safe in a script element: it contains neither "<" nor characters beyond ASCII.

    Raises: ValueError for numbers that are not finite, which JSON does not have.
    """
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(script: str, style: str) -> str:
    """Return a Content-Security-Policy: allow only this script and this style; forbid loading, forms and base URLs."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _part(folder: str, name: str) -> str:
    return (files("minitransformer.extras.report") / folder / name).read_text(encoding="utf-8")
