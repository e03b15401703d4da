"""The folder of data that are too large for the repository; tests without theirs are skipped."""

import os
from functools import cache
from pathlib import Path

import pytest

from minitransformer.extras.parsing.penn import read_trees
from minitransformer.extras.parsing.tree import Tree

DATA = Path(os.environ.get("MINITRANSFORMER_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip a test where one of these folders is absent."""
    absent = [name for name in names if not (DATA / name).exists()]
    reason = f"{', '.join(absent)} absent in {DATA}; set MINITRANSFORMER_DATA to the folder that holds it"
    return pytest.mark.skipif(bool(absent), reason=reason)


@cache
def treebank(name: str) -> list[Tree]:
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is absent; set MINITRANSFORMER_DATA to the folder that holds it")
    return list(read_trees(DATA / name))
