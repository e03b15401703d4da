"""minitransformer-report: show a model's attention, all its numbers for a sentence, or training runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.command import run_command, say
from cli.options import Positional, as_text, given, parse_kind
from minitransformer.config import RunConfig
from minitransformer.extras.packages import import_extra
from minitransformer.extras.report.attended import AttendedPair, Kind, attended_pair
from minitransformer.extras.report.errors import PICTURES, ReportError, check_suffix
from minitransformer.extras.report.page import attention_page
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_runs
from minitransformer.extras.report.sentence_page import sentence_page
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.files import write_text

DESCRIPTION = """Show what a model computes and how it was trained. "attention" draws every head of every layer for
one sentence. "sentence" shows all its numbers, step by step. "training" shows training runs side by side."""


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


@dataclass(frozen=True)
class AttentionOptions(TranslationOptions):
    """Draw every head of every layer for one sentence, as a self-contained HTML page or as a picture."""

    output: Path = Path("attention.html")
    """File to write: .html for the page; .png, .svg or .pdf for a picture."""
    kinds: tuple[Kind, ...] = ("encoder", "decoder", "encoder-decoder")
    """For a picture: kinds of attention to draw."""
    layers: tuple[int, ...] = ()
    """For a picture: layers to draw, counted from 1; all if none is given."""
    heads: tuple[int, ...] = ()
    """For a picture: heads to draw, counted from 1; all if none is given."""
    least_weight: float = 0.0
    """For a picture: draw no line for smaller weights; 0.2 keeps sentences of 40 tokens readable."""


@dataclass(frozen=True)
class TrainingReportOptions:
    """Show curves, scores, translations, costs and settings of training runs, finished or not, side by side.

    BLEU of several runs is compared by a paired bootstrap test, if they have translated the same validation set.
    """

    runs: Positional[tuple[Path, ...]] = (RunConfig.run,)
    """Directories of training runs."""
    output: Path = Path("training.html")
    """File to write: .html for the self-contained page; .png, .svg or .pdf for a picture of the curves."""


PICTURE_OPTIONS = ("kinds", "layers", "heads", "least_weight")
KINDS = {"attention": AttentionOptions, "sentence": SentenceOptions, "training": TrainingReportOptions}


def main() -> int:
    """Run the command."""
    return run_command(lambda: report(sys.argv[1:]))


def report(arguments: Sequence[str]) -> int:
    """Draw the page or the picture that the options describe."""
    options: AttentionOptions | SentenceOptions | TrainingReportOptions = parse_kind(
        KINDS, DESCRIPTION, arguments, '; to draw the attention of a sentence, give "attention" before it'
    )
    if isinstance(options, SentenceOptions):
        return report_sentence(options)
    return report_training(options) if isinstance(options, TrainingReportOptions) else report_attention(options)


def report_sentence(options: SentenceOptions) -> int:
    """Write the page of one sentence."""
    check_suffix(options.output, (".html",))
    page, translation = sentence_page(*options.load())
    write_text(options.output, page)
    say(f"{translation}\nwrote {options.output}")
    return 0


def report_attention(options: AttentionOptions) -> int:
    """Draw the attention of one sentence."""
    check_suffix(options.output, (".html", *PICTURES))
    is_page = options.output.suffix.lower() == ".html"
    if is_page and (chosen_there := given(options, PICTURE_OPTIONS)):
        raise ReportError(
            f"{chosen_there[0]}: an option of pictures, but {options.output} is a page, on which you choose; leave it"
            " out, or name a file that ends in .png, .svg or .pdf"
        )
    if not is_page:
        check_picture_options(options)
    pair = attended_pair(*options.load())
    if is_page:
        write_text(options.output, attention_page(pair))
    else:
        draw(pair, options)
    say(f"{pair.translation}\nwrote {options.output}")
    return 0


def report_training(options: TrainingReportOptions) -> int:
    """Write the page or the picture that the options describe."""
    check_suffix(options.output, (".html", *PICTURES))
    runs = read_runs(options.runs)
    if options.output.suffix.lower() == ".html":
        write_text(options.output, run_page(runs))
    else:
        import_extra("report", "matplotlib")
        from minitransformer.extras.report.run_picture import run_picture  # noqa: PLC0415
        from minitransformer.extras.report.saving import save_picture  # noqa: PLC0415

        save_picture(run_picture(runs), options.output)
    say(f"wrote {options.output}")
    return 0


def check_picture_options(options: AttentionOptions) -> None:
    """Raise ReportError for options that are invalid for every model; MissingExtraError without matplotlib."""
    import_extra("report", "matplotlib")
    if not options.kinds:
        raise ReportError("--kinds: name at least one kind of attention")
    if not 0 <= options.least_weight <= 1:
        raise ReportError(f"--least-weight: weights are between 0 and 1; got {options.least_weight}")


def draw(pair: AttendedPair, options: AttentionOptions) -> None:
    """Write a picture of the kinds, layers and heads that the options name."""
    from minitransformer.extras.report.picture import attention_picture  # noqa: PLC0415
    from minitransformer.extras.report.saving import save_picture  # noqa: PLC0415

    layers = chosen("layers", options.layers, pair.depth(options.kinds))
    heads = chosen("heads", options.heads, pair.weights.encoder.shape[1])
    save_picture(
        attention_picture(pair, options.kinds, layers, heads, least_weight=options.least_weight), options.output
    )


def chosen(name: str, numbers: Sequence[int], n: int) -> list[int]:
    """Convert numbers counted from 1 to indices; without numbers, return all ``n`` indices.  Raises: ReportError."""
    if wrong := [number for number in numbers if not 1 <= number <= n]:
        raise ReportError(f"--{name}: expected numbers from 1 to {n}; got {wrong[0]}")
    return [number - 1 for number in numbers] or list(range(n))
