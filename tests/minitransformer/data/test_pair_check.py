"""Copies of sources as targets, and sides that are shifted against each other, are noticed before a training."""

import random
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from shared_data import DATA

from minitransformer.config import DataConfig
from minitransformer.data.corpus import FileCorpus, read_pairs
from minitransformer.data.pair_check import BLOCK, N_CHECKED, SMALLEST_BLOCK, find_shift

N = 3_000


def sides(n: int = N, *, related: float = 0.0) -> tuple[list[str], list[str]]:
    """Lines of one to 40 words, and longer lines for each; ``related`` makes neighbouring lines similarly long."""
    draw, length, sources, targets = random.Random(1), 20.0, list[str](), list[str]()
    for _ in range(n):
        length = related * length + (1 - related) * draw.uniform(1, 40)
        sources.append("word " * max(1, round(length)))
        targets.append("Wörter " * max(1, round(length * draw.uniform(0.8, 1.3))))
    return sources, targets


def check(folder: Path, sources: list[str], targets: list[str]) -> None:
    for name, lines in (("t.en", sources), ("t.de", targets)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    data = DataConfig(raw=folder, train_source=("t.en",), train_target=("t.de",), held_out=1, filter=())
    FileCorpus.of(data)


@pytest.mark.parametrize(
    ("shift", "first", "named"),
    [
        (1, 0, "t.en:1: from about here on, sources seem to belong to the targets 1 line later"),
        (-1, 0, "t.en:1: from about here on, sources seem to belong to the targets 1 line earlier"),
        (2, 0, "t.en:1: from about here on, sources seem to belong to the targets 2 lines later"),
        (1, 1_990, "t.en:2001: from about here on, sources seem to belong to the targets 1 line later"),
    ],
)
def test_a_shift_is_named_with_its_place(tmp_path: Path, logged: list[str], shift: int, first: int, named: str) -> None:
    sources, targets = sides()
    lines = ["split off"] * shift
    shifted = [*targets[:first], *lines, *targets[first:]][:N] if shift > 0 else [*targets[-shift:], *targets[:-shift]]
    check(tmp_path, sources, shifted)
    (warning,) = (line for line in logged if line.startswith("warning: "))
    assert warning.startswith(f"warning: {named}: the correlation of lengths is 0.9")


@pytest.mark.parametrize("kind", ["independent", "related", "same length", "unrelated sides", "few"])
def test_other_text_is_no_cause_for_a_warning(tmp_path: Path, logged: list[str], kind: str) -> None:
    sources, targets = sides(related=0.5 if kind == "related" else 0.0)
    if kind == "same length":
        sources = [f"{i:5d}" for i in range(N)]
    if kind == "unrelated sides":
        random.Random(2).shuffle(targets)
    if kind == "few":  # too few to tell
        sources, targets = sources[:90], targets[1:91]
    check(tmp_path, sources, targets)
    assert not any(line.startswith("warning: ") for line in logged)


def test_copies_of_sources_are_counted(tmp_path: Path, logged: list[str]) -> None:
    sources, targets = sides(1_001)
    for n_copies, n_warnings in ((90, 0), (300, 1)):
        logged.clear()
        check(tmp_path, sources, sources[:n_copies] + targets[n_copies:])
        warnings = [line for line in logged if line.startswith("warning: ")]
        assert len(warnings) == n_warnings
    assert warnings == [
        "warning: training text: copied (the same text on both sides): 300 of 1,001 pairs; a model of these pairs"
        " learns to copy"
    ]


def test_three_pairs_are_shown_from_the_beginning_the_middle_and_the_end(tmp_path: Path, logged: list[str]) -> None:
    check(tmp_path, [f"one {i}" for i in range(20)], [f"eins {i}" + "x" * 100 for i in range(20)])
    cut = {i: f"eins {i}".ljust(80, "x") for i in range(20)}
    assert logged[:3] == [f"t.en:{i + 1}: 'one {i}' → {cut[i]!r}" for i in (0, 10, 19)]


def real_pairs() -> list[tuple[Path, Path]]:
    """The files of English text, each with its translation into German or French."""
    found = []
    for source in sorted(DATA.rglob("*.en.?z")):
        for language in re.findall(r"\.en-(de|fr)\.", source.name) or ["de", "fr"]:
            target = source.with_name(source.name.replace(".en.", f".{language}."))
            found += [(source, target)] if target.exists() else []
    return found


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason=f"no {DATA}; set MINITRANSFORMER_DATA to a folder of real text")
def test_real_text_is_shifted_only_after_a_side_was_shifted() -> None:
    for source, target in real_pairs():
        sides = zip(*islice(read_pairs(source, target), N_CHECKED), strict=True)
        lengths = np.log1p([[len(line) for line in side] for side in sides]).T
        assert find_shift(lengths) is None, source
        shifted = np.stack([lengths[:-1, 0], lengths[1:, 1]], axis=1)
        for start in range(0, len(shifted) - SMALLEST_BLOCK + 1, BLOCK):
            assert find_shift(shifted[start : start + BLOCK]) is not None, (source, start)
