"""A hook of mkdocs: links that leave docs/ lead to pages made of the files of the tree.

On GitHub a link such as ``../tests/autograd/test_ops.py`` shows the file.  The site has no such place, so every file
that a page links to becomes a page of its own, with its source text.  README.md is the first page of the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
AT_THE_TOP = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(#[^)]*)?(?=\))")
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".toml": "toml"}
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, config: Any) -> Files:
    """Add README, CONTRIBUTING and CHANGELOG, and a page for each file of the tree that a page links to."""
    for name, uri in AT_THE_TOP.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text("utf-8")))
    outside = {path for file in files.documentation_pages() for path in linked(file) if is_outside(path)}
    for path in sorted(outside - AT_THE_TOP.keys()):
        files.append(File.generated(config, page_of(path), content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Let the links of a page lead to pages of the site."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown

    def relative(match: re.Match[str]) -> str:
        found = posixpath.relpath(page_of(in_tree(uri, match[1])), posixpath.dirname(uri) or ".")
        return found + (match[2] or "")

    return "".join(each if is_code else LINK.sub(relative, each) for each, is_code in pieces(markdown))


def pieces(markdown: str) -> list[tuple[str, bool]]:
    """Return the Markdown in pieces, each with whether it is a fenced block of code."""
    parts = re.split(r"(^ *```.*?^ *```)", markdown, flags=re.DOTALL | re.MULTILINE)
    return [(each, n % 2 == 1) for n, each in enumerate(parts)]


def linked(file: File) -> Iterator[str]:
    """Yield the paths in the tree to which the links of a page lead."""
    if not file.src_uri.startswith("source/"):
        for piece, is_code in pieces(file.content_string):
            yield from () if is_code else (in_tree(file.src_uri, path) for path, _ in LINK.findall(piece))


def is_outside(path: str) -> bool:
    """Return whether a path in the tree is no page or file of the site; the hooks are none."""
    return not path.startswith("docs/") or path.startswith("docs/hooks")


def in_tree(uri: str, link: str) -> str:
    """Return the path, from the root of the tree, to which a link on a page leads."""
    top = {page: name for name, page in AT_THE_TOP.items()}
    start = "" if uri in top else posixpath.join("docs", posixpath.dirname(uri))
    return posixpath.normpath(posixpath.join(start, link))


def page_of(path: str) -> str:
    """Return the page of the site, or another file of docs/, that stands for a path in the tree."""
    if path in AT_THE_TOP:
        return AT_THE_TOP[path]
    if is_outside(path):
        return f"source/{path}.md"
    inside = re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))  # the page that notebooks.py makes
    return f"{inside}/README.md" if (ROOT / path).is_dir() else inside


def source_page(path: str) -> str:
    """Return the Markdown of a page that shows a file, or lists a folder."""
    where = ROOT / path
    if not where.exists():
        raise FileNotFoundError(f"{path}: a page of docs/ links to it")
    if where.is_dir():
        names = sorted(each.name for each in where.iterdir() if not each.name.startswith((".", "__")))
        return f"{NOT_SEARCHED}# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = where.read_text("utf-8")
    fence = "`" * max(4, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{NOT_SEARCHED}# {path}\n\n{fence}{LANGUAGES.get(where.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
