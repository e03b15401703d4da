"""The size of the project: lines, files, words, imports, and the files that run to translate one sentence.

python benchmarks/house.py [--run runs/demo]
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import threading
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PACKAGES = ("autograd", "parallel", "minitransformer", "cli")
CORE = ("config", "data", "inference", "model", "system", "text", "training")
SOURCES = (".py", ".c", ".h", ".cu", ".cuh", ".html", ".css", ".js", ".toml")


def files_in(*folders: str, suffixes: tuple[str, ...] = SOURCES) -> list[Path]:
    """Return the source files in some folders of the project."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes]


def n_lines(paths: list[Path]) -> int:
    """Return the number of lines of some files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def n_words() -> int:
    """Return the number of words of the documents, as wc counts them."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def longest_chain() -> list[str]:
    """Return the longest chain of modules in which each imports the next one."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files_in(*PACKAGES, suffixes=(".py",))
    }

    @cache
    def chain_from(module: str) -> tuple[str, ...]:
        imported = set()
        for node in ast.walk(ast.parse(modules[module].read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        chains = [chain_from(name) for name in imported & modules.keys() - {module}]
        return (module, *max(chains, key=len, default=()))

    return list(max(map(chain_from, modules), key=len))


def files_of_a_sentence(run: Path) -> set[str]:
    """Translate a sentence with a run's model; return the files whose functions are called."""
    from cli.translate import translate  # noqa: PLC0415

    passed: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            passed.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        translate(["--run", str(run)], io.BytesIO(b"The small dog sees three red houses.\n"), io.BytesIO())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {
        name for name in passed if Path(name).is_relative_to(ROOT) and Path(name).relative_to(ROOT).parts[0] in PACKAGES
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a trained run, with which a sentence is translated")
    run = parser.parse_args().run
    product, core = files_in(*PACKAGES), files_in(*(f"minitransformer/{name}" for name in CORE))
    print(
        f"product: {n_lines(product):,} lines in {len(product)} files; core of minitransformer {n_lines(core):,} lines"
    )
    print(f"training: {n_lines(files_in('minitransformer/training')):,} lines")
    tests, benchmarks = files_in("tests"), files_in("benchmarks")
    print(f"tests: {n_lines(tests):,} lines; benchmarks: {n_lines(benchmarks):,} lines; documents: {n_words():,} words")
    print(f"longest chain of imports: {len(longest_chain())} modules")
    if run:
        print(f"files that a sentence passes: {len(files_of_a_sentence(run))}")


if __name__ == "__main__":
    main()
