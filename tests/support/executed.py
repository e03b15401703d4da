"""Notebooks executed in a new kernel.

As a program: give those of docs/notebooks the repository's address, execute them, and store their outputs.
"""

import os
import re
import tomllib
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from waiting import TIME_LIMIT

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
HOOKS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
ADDRESS = HOOKS["custom"]["repository"]


def executed(path: Path, changes: dict[str, str] | None = None, kernel: str = "python3") -> NotebookNode:
    """The notebook with new outputs; texts of its cells are replaced first.  Fails with the first cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    for old, new in (changes or {}).items():
        assert sum(old in cell.source for cell in notebook.cells if cell.cell_type == "code") == 1, old
        for cell in notebook.cells:
            cell.source = cell.source.replace(old, new)
    client = NotebookClient(
        notebook,
        timeout=TIME_LIMIT,
        kernel_name=kernel,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": path.parent}},
    )
    client.execute(env=os.environ | {"OMP_NUM_THREADS": "1"})
    return notebook


def addressed(path: Path, address: str) -> NotebookNode:
    """The notebook with a repository's address in its first cells; Colab opens notebooks of GitHub only."""
    notebook = nbformat.read(path, as_version=4)
    title, start = notebook.cells[:2]
    colab = address.replace("https://github.com/", "https://colab.research.google.com/github/")
    link = f"[Open in Colab]({colab}/blob/main/docs/notebooks/{path.name}), or elsewhere: "
    how = "How to open the notebook: " if colab == address else link
    title.source = re.sub(
        r"(How to open the notebook: |\[Open in Colab]\S+ or elsewhere: )(?=\[README])", how, title.source
    )
    start.source = re.sub(r'(?<=@git\+)[^"]+', address, start.source)
    return notebook


if __name__ == "__main__":
    for notebook_path in NOTEBOOKS:
        nbformat.write(addressed(notebook_path, ADDRESS), notebook_path)
        nbformat.write(executed(notebook_path), notebook_path)
