"""Notebooks executed in a new kernel.  As a program: execute those of docs/notebooks and store their outputs."""

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from waiting import TIME_LIMIT

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def executed(path: Path, changes: dict[str, str] | None = None) -> NotebookNode:
    """The notebook with new outputs; texts of its cells are replaced first.  Fails with the first cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    for old, new in (changes or {}).items():
        assert sum(old in cell.source for cell in notebook.cells if cell.cell_type == "code") == 1, old
        for cell in notebook.cells:
            cell.source = cell.source.replace(old, new)
    client = NotebookClient(
        notebook,
        timeout=TIME_LIMIT,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": path.parent}},
    )
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client.execute(env=os.environ | {"PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"})
    return notebook


if __name__ == "__main__":
    for notebook_path in NOTEBOOKS:
        nbformat.write(executed(notebook_path), notebook_path)
