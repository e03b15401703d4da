"""Measure what the road adds to a model: quality on paragraphs and capitals, and time, beside the model alone.

    python benchmarks/texts.py [runs/demo]

The text is the run's held-out sentences.  Times are ratios of interleaved runs; leave the machine alone.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import sacrebleu
from contest import describe_machine

from minitransformer import Translator
from minitransformer.inference.search import SearchConfig
from minitransformer.text.road import STEPS

N_PARAGRAPHS, N_LINES, ROUNDS = 60, 100, 7
Row = tuple[str, str]  # a source and its reference
Translate = Callable[[Sequence[str]], object]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", default=Path("runs/demo"))
    parser.add_argument("--lines", type=int, default=10_000, help="lines whose translation is timed")
    options = parser.parse_args()
    translator, rows = Translator.load(options.run), held_out(options.run)
    describe_machine("sentencepiece")
    print_quality(translator, [row for row in rows if re.fullmatch(r"[^.?!]*[.?!]", row[0])])
    print_times(translator, [source for source, _ in rows], options.lines)


def held_out(run: Path) -> list[Row]:
    """Return the held-out pairs of a run."""
    lines = (run / "translations.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["source"], row["reference"]) for row in map(json.loads, lines)]


def print_quality(translator: Translator, rows: Sequence[Row]) -> None:
    """Print BLEU of paragraphs of one to eight sentences, and of lines in capitals and in title case."""
    draw = random.Random(1)
    for n in range(1, 9):
        paragraphs = [[draw.choice(rows) for _ in range(n)] for _ in range(N_PARAGRAPHS)]
        sources, references = ([" ".join(row[i] for row in rows) for rows in paragraphs] for i in (0, 1))
        alone = [" ".join(translator.translate([row[0] for row in rows], skip=STEPS)) for rows in paragraphs]
        scores = (
            bleu(found, references)
            for found in (translator.translate(sources), translator.translate(sources, skip=STEPS), alone)
        )
        print("{} sentences a line: BLEU {:.1f}; as they are {:.1f}; sentences alone {:.1f}".format(n, *scores))
    sources, references = map(list, zip(*rows[:N_LINES], strict=True))
    for name, change in (("as they are", str), ("in capitals", str.upper), ("in title case", str.title)):
        found = translator.translate([change(source) for source in sources])
        print(f"{N_LINES} lines {name}: BLEU {bleu(found, references, lowercase=True):.1f} (lower-cased)")


def bleu(found: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Return BLEU of translations."""
    return float(sacrebleu.corpus_bleu(found, [references], lowercase=lowercase).score)


def print_times(translator: Translator, lines: Sequence[str], n_lines: int) -> None:
    """Print how much longer the road takes than the model alone, for sentences one by one and for many lines.

    Only lines of one sentence are timed, because the road gives the model other work for others.
    """
    single = [line for line in lines if not re.search(r"[.?!][\"“”]? ", line)]
    many = (single * (n_lines // len(single) + 1))[:n_lines]

    def one_by_one(translate: Translate) -> Callable[[], object]:
        return lambda: [translate([line]) for line in single[:200]]

    def together(translate: Translate) -> Callable[[], object]:
        return lambda: translate(many)

    def alone(lines: Sequence[str]) -> object:
        return translator.n_best(lines, SearchConfig())

    for name, work in (("one sentence", one_by_one), (f"{n_lines:,} lines", together)):
        ratios = [seconds(work(translator.translate)) / seconds(work(alone)) for _ in range(ROUNDS)]
        median = sorted(ratios)[len(ratios) // 2]
        print(f"{name}: {median:.3f} times the model alone ({min(ratios):.3f} to {max(ratios):.3f})")


def seconds(work: Callable[[], object]) -> float:
    """Return the time of some work."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
