"""No file that is read can run code: nothing in the packages unpickles or evaluates.

mpi4py's lower-case methods (bcast, allgather, allreduce) pickle what ranks of one run send each other; no file takes
part in that.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("autograd", "parallel", "minitransformer", "cli", "benchmarks")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "code", "runpy"}
CALLS = {"eval", "exec", "compile", "__import__"}


def offences(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"line {node.lineno}: {name}" for name in named if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield f"line {node.lineno}: {node.func.id}"
            if any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords):
                yield f"line {node.lineno}: allow_pickle"


def test_nothing_is_unpickled_or_evaluated() -> None:
    found = {path: list(offences(path.read_text(encoding="utf-8"))) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "import a, dill.b", "eval(x)", "y = exec(x)", "f(allow_pickle=True)"],
)
def test_what_would_be_an_offence_is_found(source: str) -> None:
    assert len(list(offences(source))) == 1
