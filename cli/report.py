"""minitransformer-report: pages that show a model's attention and numbers, training runs, or that compute."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autograd.packed_weight import PackedDtype
from cli.command import run_command, say
from cli.options import Positional, as_text, parse_kind
from minitransformer.config import RunConfig
from minitransformer.config.run import TRANSLATIONS_FILE
from minitransformer.extras.report.attended import attended_pair
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.learning import learning_page
from minitransformer.extras.report.live import live_page
from minitransformer.extras.report.page import attention_page
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_run, read_runs
from minitransformer.extras.report.sentence_page import sentence_page
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.files import write_text

DESCRIPTION = """Show what a model computes and how it was trained. "attention" draws every head of every layer for
one sentence. "sentence" shows all its numbers, step by step. "live" writes a page that translates by itself, in a
browser; "learning" one in which a small model learns. "training" shows training runs side by side."""


@dataclass(frozen=True)
class TranslationOptions:
    """The sentence that a report shows, the run whose model translates it, and the options of the translation."""

    sentence: Positional[str]
    """The sentence to translate, in quotes."""
    run: Path = RunConfig.run
    """Directory of a training run, or any directory with a model and its tokenizer."""
    target: str | None = None
    """The translation to show; the model's own if not given."""
    beam: int = SearchConfig.beam
    """Hypotheses kept alive while the model translates; 1 is greedy search."""
    alpha: float | None = SearchConfig.alpha
    """Exponent of the length penalty; if not given, the model's."""

    def load(self) -> tuple[Translator, str, str | None, SearchConfig]:
        """Load the model; return the translator, the sentence, the given translation or None, and search settings."""
        sentence = as_text("sentence", self.sentence)
        target = None if self.target is None else as_text("target", self.target)
        return Translator.load(self.run), sentence, target, SearchConfig(beam=self.beam, alpha=self.alpha)


@dataclass(frozen=True)
class SentenceOptions(TranslationOptions):
    """Show all numbers that the model computes for one sentence, step by step, as a self-contained HTML page."""

    output: Path = Path("sentence.html")
    """File to write, which ends in .html."""

    def page(self) -> tuple[str, list[str]]:
        """Return the page, and the translation that it shows."""
        page, translation = sentence_page(*self.load())
        return page, [translation]


@dataclass(frozen=True)
class AttentionOptions(TranslationOptions):
    """Draw every head of every layer for one sentence, as a self-contained HTML page."""

    output: Path = Path("attention.html")
    """File to write, which ends in .html."""

    def page(self) -> tuple[str, list[str]]:
        """Return the page, and the translation that it shows."""
        pair = attended_pair(*self.load())
        return attention_page(pair), [pair.translation]


@dataclass(frozen=True)
class LiveOptions:
    """Write a page with the model itself, which translates in a browser, offline, and shows how."""

    sentences: Positional[tuple[str, ...]] = ()
    """Sentences that the page offers; if none is given, the first ones of the run's validation set."""
    run: Path = RunConfig.run
    """Directory of a training run, or any directory with a model and its tokenizer."""
    weights: PackedDtype = "bfloat16"
    """Type of number to which the page's weights are rounded. "int8" halves the page, and changes few translations."""
    output: Path = Path("live.html")
    """File to write, which ends in .html."""

    def page(self) -> tuple[str, list[str]]:
        """Return the page; it shows no single translation."""
        translator, sentences = Translator.load(self.run), [as_text("sentence", each) for each in self.sentences]
        if not sentences and (self.run / TRANSLATIONS_FILE).exists():
            sentences = [source for source, _ in read_run(self.run).pairs()[:N_OFFERED]]
        return live_page(translator, sentences, self.weights), []


@dataclass(frozen=True)
class LearningOptions:
    """Write a page in which a small Transformer learns to reverse lines of digits, in a browser, offline."""

    output: Path = Path("learning.html")
    """File to write, which ends in .html."""

    def page(self) -> tuple[str, list[str]]:
        """Return the page; it needs no run, and shows no translation."""
        return learning_page(), []


@dataclass(frozen=True)
class TrainingReportOptions:
    """Show curves, scores, translations, costs and settings of training runs, finished or not, side by side.

    BLEU of several runs is compared by a paired bootstrap test, if they have translated the same validation set.
    """

    runs: Positional[tuple[Path, ...]] = (RunConfig.run,)
    """Directories of training runs."""
    output: Path = Path("training.html")
    """File to write, a self-contained page, which ends in .html."""

    def page(self) -> tuple[str, list[str]]:
        """Return the page; it shows no single translation."""
        return run_page(read_runs(self.runs)), []


N_OFFERED = 4  # sentences of the validation set
KINDS = {
    "attention": AttentionOptions, "sentence": SentenceOptions, "live": LiveOptions, "learning": LearningOptions,
    "training": TrainingReportOptions,
}  # fmt: skip


def main() -> int:
    """Run the command."""
    return run_command(lambda: report(sys.argv[1:]))


def report(arguments: Sequence[str]) -> int:
    """Write the page that the options describe."""
    options: AttentionOptions | SentenceOptions | LiveOptions | LearningOptions | TrainingReportOptions = parse_kind(
        KINDS, DESCRIPTION, arguments, '; to draw the attention of a sentence, give "attention" before it'
    )
    if options.output.suffix.lower() != ".html":
        raise ReportError(f"{options.output}: is written as a page; expected a name that ends in .html")
    page, translation = options.page()
    write_text(options.output, page)
    say("\n".join([*translation, f"wrote {options.output}"]))
    return 0
