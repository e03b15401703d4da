"""A hook of mkdocs: a drawing whose parts are links is an object of the page; links in an image do nothing."""

from __future__ import annotations

import posixpath
import re
from typing import Any

IMAGE = re.compile(r'<img alt="([^"]*)" src="([^"]*\.svg)" ?/?>')


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Replace the images of drawings that have links."""

    def replaced(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.url), match[2]))
        has_links = "<a href=" in files.get_file_from_path(path).content_string
        drawing = f'<object class="drawing" type="image/svg+xml" data="{match[2]}" aria-label="{match[1]}"></object>'
        return drawing if has_links else match[0]

    return IMAGE.sub(replaced, html)
