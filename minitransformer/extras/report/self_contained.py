"""HTML files that need nothing else: no network, no fonts, no library."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any


def page_with_plots(folder: str, scripts: Sequence[str], title: str, data: Any) -> str:
    """Return a page with ``data`` that draws curves; its body, style and scripts are files in ``folder``.

    A Content-Security-Policy allows only this style and these scripts.  Text in ``data`` is never read as HTML: the
    scripts insert it as text, and ``embedded_json`` escapes it.
    """
    style, script = (_part("shared", f"plot.{kind}") for kind in ("css", "js"))
    style, script = style + _part(folder, "page.css"), script + _joined(folder, scripts)
    return _page(style, _part(folder, "page.html"), script, title, data)


def page_of_view(folder: str, scripts: Sequence[str], heading: str, title: str, data: Any) -> str:
    """Return a page of one sentence: ``folder`` has a view of it, which the scripts' function ``show`` draws."""
    body = Template(_part("shared", "sentence.html")).substitute(heading=heading, view=_part(folder, "page.html"))
    script = _joined(folder, scripts) + _part("shared", "sentence.js")
    return _page(_part(folder, "page.css"), body, script, title, data)


def page_with_views(
    folder: str, scripts: Sequence[str], views: Mapping[str, Sequence[str]], title: str, data: Any
) -> str:
    """Return a page that has views of other pages, by their folders and scripts.

    The body has the place of each view, as in "$attention_page"; the scripts call the view's function ``show`` as
    ``views.attention_page``.
    """
    style = _part(folder, "page.css") + "".join(f".{view} {{\n{_part(view, 'page.css')}}}\n" for view in views)
    body = Template(_part(folder, "page.html")).substitute({view: _part(view, "page.html") for view in views})
    shows = [
        f"{view}: (() => {{\nlet data;\n{_joined(view, names)}return show;\n}})()," for view, names in views.items()
    ]
    script = f"const views = {{\n{''.join(shows)}\n}};\n{_joined(folder, scripts)}"
    return _page(style, body, script, title, data)


def _page(style: str, body: str, script: str, title: str, data: Any) -> str:
    style, script = _part("shared", "base.css") + style, _part("shared", "base.js") + script
    return Template(_part("shared", "frame.html")).substitute(
        policy=_policy(script, style),
        title=html.escape(title),
        style=style,
        body=body,
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


def _joined(folder: str, names: Sequence[str]) -> str:
    return "".join(_part(folder, name) for name in names)
