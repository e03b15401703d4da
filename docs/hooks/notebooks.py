"""A hook of mkdocs: each notebook of docs/notebooks is a page, with the outputs that are stored in it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each notebook, and a file for each of its pictures."""
    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        path = PurePosixPath(file.src_uri)
        text, resources = MarkdownExporter().from_filename(file.abs_src_path)
        for name, content in resources["outputs"].items():
            text = text.replace(f"({name})", f"({path.stem}_{name})")
            files.append(File.generated(config, str(path.with_name(f"{path.stem}_{name}")), content=content))
        files.append(File.generated(config, str(path.with_suffix(".md")), content=text))
    return files
