"""minitransformer-score compare: the translations of several systems, compared by paired tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cli.command import say
from cli.options import Positional
from minitransformer.config.data import common_ending
from minitransformer.data.corpus import check_aligned
from minitransformer.data.survey import CorpusError, read_lines
from minitransformer.extras.report.comparison import PairedTestName, compare_systems, comparison_table
from minitransformer.system.provenance import code_version


@dataclass(frozen=True)
class CompareOptions:
    """Compare two or more systems with the first one: BLEU, chrF and TER with p-values, by sacrebleu's paired tests.

    TER is left out for languages without blanks between words.
    """

    files: Positional[tuple[Path, ...]]
    """Files of translations, one for each system, then the file of references, all aligned line by line."""
    language: str | None = None
    """Language of the translations, such as zh, for BLEU's tokenizer; if not given, the ending of the references."""
    test: PairedTestName = "bootstrap"
    """Paired bootstrap with 1,000 resampled corpora, or paired approximate randomisation with 10,000 trials."""


def score_compare(options: CompareOptions) -> int:
    """Print a table with a row for each system."""
    if len(options.files) < 3:
        raise CorpusError(
            f"score: expected two files of translations or more, then the references; got {len(options.files)} files"
        )
    *systems, reference = ((path, list(read_lines(path))) for path in options.files)
    for path, lines in systems:
        check_aligned((reference[0], len(reference[1])), (path, len(lines)))
    if not reference[1]:
        raise CorpusError(f"{reference[0]}: is empty")
    names = [str(path) for path, _ in systems]
    compared = compare_systems(
        [(str(path), lines) for path, lines in systems],
        reference[1],
        test=options.test,
        language=options.language or common_ending([reference[0]]),
    )
    print("\n".join(comparison_table(names, compared)))
    say(f"code {code_version()}")
    return 0
