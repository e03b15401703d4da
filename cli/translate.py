"""minitransformer-translate: raw lines on standard input, their translations on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from cli.command import run_command
from cli.options import parse_options
from minitransformer.config import ConfigError
from minitransformer.inference.beam import Normalisation, SearchConfig
from minitransformer.inference.translator import Translation, Translator

DESCRIPTION = """Translate standard input, line by line, to standard output: exactly one line out for each line in.
With --n-best N: up to N lines for each, as "line number <TAB> score <TAB> log-probability <TAB> translation"."""

LINES_AT_ONCE = 2_048  # sorted by length together; their translations appear together


@dataclass(frozen=True)
class TranslateOptions:
    """What to translate with."""

    run: Path = Path("runs/demo")
    """Directory of a training run, or any directory with a model and its tokenizer."""
    beam: int = 4
    """Hypotheses kept alive for each sentence; 1 is greedy search."""
    alpha: float = 0.6
    """Exponent of the length penalty."""
    normalisation: Normalisation = "gnmt"
    """The length penalty: ((5 + length)/6)^alpha, or length^alpha."""
    n_best: int | None = None
    """Print so many translations of each line, with their scores."""
    threads: int | None = None
    """Threads to compute on; all cores if not given."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""

    @property
    def search(self) -> SearchConfig:
        """How to search.  Raises: ConfigError for options that make no search."""
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"--threads must be at least 1, got {self.threads}")
        return SearchConfig(
            beam=self.beam,
            alpha=self.alpha,
            n_best=1 if self.n_best is None else self.n_best,
            normalisation=self.normalisation,
        )


def main() -> int:
    """Entry point."""
    return run_command(lambda: translate(sys.argv[1:], sys.stdin.buffer, sys.stdout.buffer))


def translate(arguments: Sequence[str], source: BinaryIO, target: BinaryIO) -> int:
    """Translate ``source`` into ``target`` as the options say."""
    options = parse_options(TranslateOptions, DESCRIPTION, arguments, default=TranslateOptions())
    config = options.search
    translator = Translator.load(options.run, device=options.device)
    interactive = source.isatty()
    if interactive:
        print("type a sentence and press Enter; Ctrl-D ends", file=sys.stderr)
    n_lines = 0
    for lines in _chunks(_decoded_lines(source), 1 if interactive else LINES_AT_ONCE):
        for number in (n for n, line in enumerate(lines, n_lines + 1) if translator.is_cut(line, config)):
            limit = translator.longest_source(config)
            print(f"warning: line {number} has over {limit:,} subword tokens; the rest is cut off", file=sys.stderr)
        for translations in translator.n_best(lines, config, n_threads=options.threads):
            n_lines += 1
            target.write(_formatted(translations, n_lines, options.n_best).encode())
        target.flush()
    return 0


def _decoded_lines(source: BinaryIO) -> Iterator[str]:
    for number, line in enumerate(source, 1):
        try:
            yield line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            print(f"warning: line {number} is not UTF-8 ({error.reason}); read with replacements", file=sys.stderr)
            yield line.decode("utf-8", errors="replace").strip()


def _chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    while chunk := list(islice(lines, size)):
        yield chunk


def _formatted(translations: Sequence[Translation], number: int, n_best: int | None) -> str:
    if n_best is None:
        return translations[0].text + "\n"
    return "".join(f"{number}\t{t.score:.4f}\t{t.log_probability:.4f}\t{t.text}\n" for t in translations)
