"""minitransformer-report: draw a model's attention as a page or a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from cli.command import run_command, say
from cli.options import as_text
from minitransformer.config import RunConfig
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.report.attended import AttendedPair, PictureKind, attended_pair
from minitransformer.report.errors import PICTURES, ReportError, check_suffix, matplotlib_needed
from minitransformer.report.page import attention_page
from minitransformer.system.files import write_text

DESCRIPTION = """Draw what a model computes. "attention" draws every head of every layer for one sentence."""


@dataclass(frozen=True)
class AttentionOptions:
    """Draw every head of every layer for one sentence, as a self-contained HTML page or as a picture."""

    sentence: tyro.conf.Positional[str]
    """The sentence to translate, in quotes."""
    run: Path = RunConfig.run
    """Directory of a training run, or any directory with a model and its tokenizer."""
    target: str | None = None
    """The translation to draw; the model's own if not given."""
    output: Path = Path("attention.html")
    """File to write: .html for the page; .png, .svg or .pdf for a picture."""
    beam: int = SearchConfig.beam
    """Hypotheses kept alive while the model translates; 1 is greedy search."""
    alpha: float | None = SearchConfig.alpha
    """Exponent of the length penalty; if not given, the model's."""
    kinds: tuple[PictureKind, ...] = ("encoder", "decoder", "encoder-decoder")
    """For a picture: kinds of attention to draw. "alignment" is encoder-decoder attention averaged over heads."""
    layers: tuple[int, ...] = ()
    """For a picture: layers to draw, counted from 1; all if none is given."""
    heads: tuple[int, ...] = ()
    """For a picture: heads to draw, counted from 1; all if none is given."""
    end: bool = True
    """For a picture: show the source's end symbol; without it, the other weights are divided by their sum."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: report(sys.argv[1:]))


def report(arguments: Sequence[str]) -> int:
    """Draw the page or the picture that the options describe."""
    options: AttentionOptions = tyro.extras.subcommand_cli_from_dict(
        {"attention": AttentionOptions}, description=DESCRIPTION, args=list(arguments)
    )
    check_suffix(options.output, (".html", *PICTURES))
    search = SearchConfig(beam=options.beam, alpha=options.alpha)
    sentence = as_text("sentence", options.sentence)
    target = None if options.target is None else as_text("target", options.target)
    pair = attended_pair(Translator.load(options.run), sentence, target, search)
    if options.output.suffix.lower() == ".html":
        write_text(options.output, attention_page(pair))
    else:
        draw(pair, options)
    say(f"{pair.translation}\nwrote {options.output}")
    return 0


def draw(pair: AttendedPair, options: AttentionOptions) -> None:
    """Write a picture of the kinds, layers and heads that the options name."""
    with matplotlib_needed():
        from minitransformer.report.picture import attention_picture  # noqa: PLC0415
        from minitransformer.report.saving import save_picture  # noqa: PLC0415
    if not options.kinds:
        raise ReportError("--kinds: name at least one kind of attention")
    layers = chosen("layers", options.layers, pair.depth(options.kinds))
    heads = chosen("heads", options.heads, pair.weights.encoder.shape[1])
    save_picture(attention_picture(pair, options.kinds, layers, heads, end=options.end), options.output)


def chosen(name: str, numbers: Sequence[int], n: int) -> list[int]:
    """Convert numbers counted from 1 to indices; without numbers, return all ``n`` indices.  Raises: ReportError."""
    if wrong := [number for number in numbers if not 1 <= number <= n]:
        raise ReportError(f"--{name}: the model has {n} of them, counted from 1; got {wrong[0]}")
    return [number - 1 for number in numbers] or list(range(n))
