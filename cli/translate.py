"""minitransformer-translate: translate raw lines, from stdin to stdout or from file to file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autograd.array import Device
from autograd.kernel_choice import KernelChoice, choose_kernels
from cli.command import run_command, say
from cli.options import Common, parse_options, require_threads
from cli.streams import standard_streams
from minitransformer.config import ConfigError, Normalisation, RunConfig
from minitransformer.config.data import is_memory
from minitransformer.data.survey import COMPRESSED
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.memories import MemoryTranslator, groups_of_input, languages_between
from minitransformer.inference.resumable import translate_file
from minitransformer.inference.sentences import SentenceSplitter
from minitransformer.inference.stream import (
    LINES_AT_ONCE,
    LineTranslator,
    Source,
    groups_of_lines,
)
from minitransformer.inference.translator import Translator, WeightsDtype

DESCRIPTION = """Translate standard input, line by line, to standard output: exactly one line out for each line in.
With --n-best N: up to N lines for each, as "line number <TAB> score <TAB> log-probability <TAB> translation".
With --input FILE --output FILE --resume, the same command continues after an interruption at any moment."""


@dataclass(frozen=True)
class TranslateOptions(Common):
    """The options of minitransformer-translate."""

    run: Path = RunConfig.run
    """Directory of a training run, or any directory with a model and its tokenizer."""
    beam: int = SearchConfig.beam
    """Hypotheses kept alive for each sentence; 1 is greedy search."""
    alpha: float | None = SearchConfig.alpha
    """Exponent of the length penalty; if not given, the model's, which is 0.6 unless minitransformer-score tune-length
    has stored another."""
    normalisation: Normalisation | None = SearchConfig.normalisation
    """The length penalty: "gnmt", ((5 + length)/6)^alpha, or "length", length^alpha; if not given, the penalty in the
    model's configuration, which is "gnmt" unless the option compat of its training changed it."""
    n_best: int | None = None
    """Number of translations to print for each line, with their scores."""
    threads: int | None = None
    """Threads to compute on; all cores if not given."""
    device: Device = RunConfig.device
    """Where to compute."""
    kernels: KernelChoice = RunConfig.kernels
    """"compiled" kernels, or the "reference" of each operation in NumPy or CuPy, which is slower."""
    weights: WeightsDtype = "float32"
    """int8 rounds each weight to one of 255 levels: faster for few sentences at once, slightly worse translations."""
    split_sentences: str | None = None
    """Language code of the source, such as en or de: split lines into sentences, by the rules of this language, and
    translate these one by one."""
    input: Path | None = None
    """File to translate: UTF-8 or a translation memory (.tmx), plain, .gz or .xz; standard input if not given."""
    output: Path | None = None
    """File to write (--input must be given too), a translation memory if its name ends in .tmx; standard output if not
    given."""
    languages: tuple[str, str] | None = None
    """Language codes of source and target in .tmx files, such as en de; if not given, those of the input."""
    resume: bool = False
    """Continue an interrupted output file, or start a new one; no line is lost or repeated."""

    def check(self) -> None:
        """Raise ConfigError for options that cannot be combined."""
        require_threads(self.threads)
        if self.output and not self.input:
            raise ConfigError("--output: needs --input FILE; standard input goes to standard output")
        if self.output and self.output.suffix in COMPRESSED:
            raise ConfigError(
                f"--output {self.output}: the output is plain text; choose a name without {self.output.suffix}, and"
                " compress the file afterwards"
            )
        if self.resume and not self.output:
            raise ConfigError("--resume: needs --input FILE and --output FILE")
        if self.languages and not any(path and is_memory(path) for path in (self.input, self.output)):
            raise ConfigError("--languages: are those of a .tmx file; name one with --input or --output")
        if self.n_best is not None and self.split_sentences:
            raise ConfigError("--n-best: does not go with --split-sentences; a line's sentences have one list each")

    @property
    def search(self) -> SearchConfig:
        """The settings of the search.  Raises: ConfigError for invalid options."""
        return SearchConfig(
            beam=self.beam,
            alpha=self.alpha,
            n_best=SearchConfig.n_best if self.n_best is None else self.n_best,
            normalisation=self.normalisation,
        )


def main() -> int:
    """Run the command."""
    return run_command(lambda: translate(sys.argv[1:], *standard_streams()))


def translate(arguments: Sequence[str], source: Source, target: BinaryIO) -> int:
    """Translate from ``source`` to ``target``, or between the files that the options name."""
    remedy = 'to translate a file, give "< {file}" or "--input {file}"'
    options = parse_options(TranslateOptions(), DESCRIPTION, arguments, remedy)
    options.check()
    splitter = SentenceSplitter(options.split_sentences) if options.split_sentences else None
    choose_kernels(options.kernels)
    translator = Translator.load(options.run, device=options.device, weights=options.weights)
    translation = LineTranslator(translator, options.search, options.n_best, options.threads, splitter)
    try:
        if options.input:
            translate_input(translation, options.input, options, target)
        else:
            if source.isatty():
                say("type a sentence and press Enter; Ctrl-D ends")
            translate_groups(translation, groups_of_lines(source, LINES_AT_ONCE), target)
    finally:
        translation.unknown.log()
    return 0


def translate_input(translation: LineTranslator, path: Path, options: TranslateOptions, target: BinaryIO) -> None:
    """Translate the file ``path`` to the output that the options name, or else to ``target``."""
    languages = languages_between(path, options.output, options.languages)
    if options.output:
        translate_file(
            MemoryTranslator(translation, languages) if languages and is_memory(options.output) else translation,
            path,
            options.output,
            resume=options.resume,
            lines_at_once=LINES_AT_ONCE,
            languages=languages,
        )
    else:
        with groups_of_input(path, LINES_AT_ONCE, languages) as groups:
            translate_groups(translation, groups, target)


def translate_groups(translation: LineTranslator, groups: Iterable[list[bytes]], target: BinaryIO) -> None:
    """Write the translations of each group of lines as soon as they are computed."""
    n_lines = 0
    for lines in groups:
        target.write(translation(lines, n_lines))
        target.flush()
        n_lines += len(lines)
