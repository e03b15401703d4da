"""A hook of mkdocs: the page that learns, and the page that translates, of the demonstration's model.

Links to the guide's section on the page that learns lead to the page itself.  A trained model is not in the repository.
If ``runs/demo`` has one when the site is built, the site gets the page that translates, and the picture of it on the
first page leads there; otherwise the picture leads to the guide, which has the command.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "runs" / "demo"
PICTURE = re.compile(r'<a href="[^"]*">(?=<img [^>]*src="figures/live\.png")')
LEARNS = re.compile(r'<a href="[^"]*#a-page-that-learns">')


def on_files(files: Files, config: Any) -> Files:
    """Add the page that learns, and the page that translates if there is a trained demonstration."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (a quick test of the other function runs without mkdocs)

    sys.path.insert(0, str(ROOT))  # the tree that is documented, not an installed one
    from minitransformer.extras.report.learning import learning_page  # noqa: PLC0415

    files.append(File.generated(config, "learning.html", content=learning_page()))
    if (RUN / "results.json").exists():
        files.append(File.generated(config, "live.html", content=live_page_of(RUN)))
    return files


def live_page_of(run: Path) -> str:
    """Return the page of a run of the demonstration."""
    from minitransformer import Translator  # noqa: PLC0415 (a site without the page does not need it)
    from minitransformer.extras.demo import SHOWCASE  # noqa: PLC0415
    from minitransformer.extras.report.live import live_page  # noqa: PLC0415

    return live_page(Translator.load(run), [source for source, _ in SHOWCASE[:4]])


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:
    """Let links lead to the page that learns, and the picture on the first page to the page that translates."""
    learning = posixpath.relpath("learning.html", posixpath.dirname(page.file.src_uri) or ".")
    html = LEARNS.sub(f'<a href="{learning}">', html)
    has_page = files.get_file_from_path("live.html") is not None
    return PICTURE.sub('<a href="live.html">', html) if has_page and page.file.src_uri == "index.md" else html
