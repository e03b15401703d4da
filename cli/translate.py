"""minitransformer-translate: translate raw lines, from stdin to stdout or from file to file."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autograd.array import Device
from autograd.kernel_registry import KernelChoice, references_only
from cli.command import counting, run_command, say, standard_streams
from cli.options import Repeated, Rule, as_text, given, parse_options, require_rules, require_threads
from minitransformer.config import ConfigError, Normalisation, RunConfig
from minitransformer.config.data import require_language
from minitransformer.data.languages import without_region
from minitransformer.data.pair_files import languages_of, read_pair_file
from minitransformer.data.sentences import SentenceSplitter
from minitransformer.data.units import fits
from minitransformer.extras.files.documents import is_document, output_endings, read_document
from minitransformer.extras.files.memories import (
    Languages,
    MemoryTranslator,
    groups_of_input,
    languages_between,
    languages_of_file,
)
from minitransformer.extras.files.notes import NoteLog
from minitransformer.extras.files.resumable import translate_file
from minitransformer.extras.files.resumable_document import translate_document
from minitransformer.extras.files.stream import (
    LINES_AT_ONCE,
    LineFormat,
    LinesDone,
    LineTranslator,
    Prefixes,
    Source,
    TextTranslator,
    groups_of_file,
    groups_of_standard_input,
    read_prefixes,
)
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator, load_translator
from minitransformer.model.transformer import WeightsChoice
from minitransformer.system.file_kinds import has_both_sides, is_compressed, is_memory
from minitransformer.system.files import is_same_file
from minitransformer.text.road import STEPS, Road, Step
from minitransformer.text.terms import Terms

DESCRIPTION = """Translate standard input, line by line, to standard output: exactly one line out for each line in.
With --n-best N: up to N lines for each, as "line number <TAB> score <TAB> log-probability <TAB> translation".
With several --run DIR: an ensemble of models. With --sample: translations drawn at random instead of the best ones.
With --input FILE --output FILE --resume, the same command continues after an interruption at any moment."""


ALONE = ("prefix", "prefix_text", "alignments")  # options for lines that the model alone translates, without steps
RULES = (
    Rule(("output",), "needs", ("input",), "standard input goes to standard output"),
    Rule(("resume",), "needs", ("input", "output")),
    Rule(("temperature", "top_p", "seed"), "needs", ("sample",)),
    Rule(("prefix",), "does not go with", ("prefix_text",)),
    Rule(ALONE, "does not go with", ("split_sentences", "terms", "skip"), "its lines are translated as they are"),
    Rule(("as_is",), "does not go with", ("skip", "split_sentences"), "it leaves out all steps"),
)


@dataclass(frozen=True)
class TranslateOptions:
    """The options of minitransformer-translate."""

    run: Repeated[Path] = ()
    """Directory of a training run, or any directory with a model and its tokenizer; runs/demo if not given. Give --run
    several times for an ensemble: the models' probabilities are averaged; they must have the same tokenizer."""
    beam: int = SearchConfig.beam
    """Hypotheses kept alive for each sentence; 1 is greedy search."""
    alpha: float | None = SearchConfig.alpha
    """Exponent of the length penalty; if not given, the model's: what its training, or minitransformer-score
    tune-length, has stored."""
    normalisation: Normalisation | None = SearchConfig.normalisation
    """The length penalty: "gnmt", ((5 + length)/6)^alpha, or "length", length^alpha; if not given, the penalty in the
    model's configuration, which is "gnmt" unless the option compat of its training changed it."""
    max_length_factor: float | None = SearchConfig.max_length_factor
    """A translation has at most this many tokens for each token of its source, plus 20."""
    max_extra_tokens: int = SearchConfig.max_extra_tokens
    """The greatest number of tokens by which a translation exceeds its source."""
    n_best: int | None = None
    """Number of different translations to print for each line, with their scores."""
    threads: int | None = None
    """Threads to compute on; all cores if not given."""
    device: Device = RunConfig.device
    """Where to compute."""
    kernels: KernelChoice = RunConfig.kernels
    """"compiled" kernels, or the "reference" of each operation in NumPy or CuPy, which is slower."""
    weights: WeightsChoice = "automatic"
    """The numbers in which the search computes. automatic: float32; on a GPU, products round their factors to TF32.
    float32: nothing is rounded. bfloat16 rounds weights and their inputs, and is faster on a CPU that has instructions
    for it; on a GPU all numbers have 16 bits, as with float16 (GPU only). int8 (CPU only) rounds to 255 levels, and is
    faster still, with slightly worse translations."""
    no_repeat: int = SearchConfig.no_repeat
    """No translation has the same sequence of this many tokens twice; 0 allows it, except for translations that would
    repeat themselves."""
    split_sentences: str | None = None
    """Language code of the source, such as en or de, by whose rules every line is split into sentences; if not given,
    the run's, for lines with more sentences than those of its training text."""
    skip: tuple[Step, ...] = ()
    """Steps to leave out: "sentences" splits lines; "codes" keeps tags, placeholders and addresses; "unknown" copies
    characters that the vocabulary lacks; "capitals" reads lines in capitals as sentences; "loops" searches again if a
    translation repeats itself."""
    as_is: bool = False
    """Leave out all steps: each line is translated by the model alone, as it is."""
    terms: Path | None = None
    """File with translations of terms, one a line: source term, tab, target term. They are put in without
    inflection."""
    verbose: bool = False
    """Say for each line what was done with it."""
    input: Path | None = None
    """File to translate: text, a translation memory (.tmx) or another file with both sides (.tsv, .jsonl, .zip),
    plain, .gz, .xz or .zst; or a document (.xlf, .po, .json, Android's .xml). Standard input if not given."""
    output: Path | None = None
    """File to write, with --input; standard output if not given. A name that ends in .tmx makes it a translation
    memory; for a document, it must have the document's ending."""
    to_language: str | None = None
    """Code of the language to translate to, such as fr, for a model of several languages."""
    languages: tuple[str, str] | None = None
    """Language codes of source and target in .tmx, .xlf and .po files, such as en de; if not given, those of the
    model, in the regions that the input names."""
    resume: bool = False
    """Continue an interrupted output file, or start a new one; no line is lost or repeated."""
    alignments: Path | None = None
    """File to write word alignments to, one line for each line of the output: "0-0 2-1" means that source word 0
    corresponds to word 0 of the translation, and source word 2 to word 1."""
    prefix: Path | None = None
    """File with the beginning of each line's translation, one line for each input line; an empty line gives none. Its
    last word may be continued, unless a blank follows it."""
    prefix_text: str | None = None
    """The beginning of every translation, in place of --prefix."""
    sample: bool = False
    """Draw translations at random from the model's distribution, --n-best of them for each line; --beam has no
    effect."""
    temperature: float | None = None
    """With --sample: below 1, likely tokens are drawn even more often; 1 if not given."""
    top_p: float | None = None
    """With --sample: draw only from the most likely tokens, whose probabilities add up to this; 1 if not given."""
    seed: int | None = None
    """With --sample: the seed of the random numbers; 1 if not given. The same seed gives the same samples."""

    def check(self) -> None:
        """Raise ConfigError for options that cannot be combined."""
        require_threads(self.threads)
        require_rules(self, RULES)
        for code in self.languages or ():
            require_language("--languages", code)
        self.check_files()
        if self.n_best is not None and self.n_best > self.beam and not self.sample:
            raise ConfigError(
                f"--n-best {self.n_best} needs a beam of at least {self.n_best}: give --beam {self.n_best}"
            )

    def check_files(self) -> None:
        """Raise ConfigError for files of the wrong kind, or for a file with two purposes."""
        files = [path for path in (self.input, self.output) if path]
        if self.languages and not any(has_both_sides(path) or is_document(path) for path in files):
            raise ConfigError("--languages: are those of a .tmx, .xlf or .po file; name one with --input or --output")
        if self.output and is_compressed(self.output):
            raise ConfigError(
                f"--output {self.output}: the output is plain text; choose a name without {self.output.suffix}, and"
                " compress the file afterwards"
            )
        if self.input and is_document(self.input):
            self.check_document(self.input)
        elif self.output and is_document(self.output):
            raise ConfigError(
                f"--output {self.output}: is written only for an input of its kind; choose another ending"
            )
        if self.output and is_memory(self.output):
            self.refuse(("n_best",), f"{self.output}, a translation memory")
        for written in filter(None, (self.alignments, self.output)):
            if self.prefix and written.resolve() == self.prefix.resolve():
                raise ConfigError(f"{written}: is the file of prefixes, too; choose another file")
        if self.alignments and self.input and self.alignments.resolve() == self.input.resolve():
            raise ConfigError(f"--alignments {self.alignments}: is the input, too; choose another file")

    def check_document(self, document: Path) -> None:
        """Raise ConfigError for an output of another kind than the document, or for options of lines of text."""
        self.refuse(("n_best", "prefix", "prefix_text", "alignments"), f"{document}, a document")
        if not self.output or self.output.suffix.lower() not in output_endings(document):
            raise ConfigError(f"{document}: give --output FILE with the same ending, for a translated copy")
        if is_same_file(self.output, document):
            raise ConfigError(f"--output {self.output}: is the input, too; choose another file")

    def refuse(self, names: Sequence[str], file: str) -> None:
        """Raise ConfigError if one of these options of lines of text is given for another kind of file."""
        if refused := given(self, names):
            raise ConfigError(f"{refused[0]}: is for text, not for {file}; leave it out")

    @property
    def sampling(self) -> Sampling | None:
        """The settings of sampling, or None without --sample.  Raises: ConfigError for invalid options."""
        if not self.sample:
            return None
        values = {"seed": self.seed, "temperature": self.temperature, "top_p": self.top_p}
        return Sampling(**{name: value for name, value in values.items() if value is not None})  # type: ignore[arg-type]

    @property
    def search(self) -> SearchConfig:
        """The settings of the search.  Raises: ConfigError for invalid options."""
        return SearchConfig(
            beam=max(1, self.n_best or 1) if self.sample else self.beam,
            alpha=self.alpha,
            n_best=SearchConfig.n_best if self.n_best is None else self.n_best,
            normalisation=self.normalisation,
            max_length_factor=self.max_length_factor,
            max_extra_tokens=self.max_extra_tokens,
            no_repeat=self.no_repeat,
        )

    def road(self, translator: Translator) -> Road:
        """Return the road of texts.  Raises: ConfigError for a wrong language or term; CorpusError."""
        profile = translator.profile
        if self.split_sentences is not None:
            language = SentenceSplitter(self.split_sentences).language
            profile = dataclasses.replace(profile, source=language, sentences=1)
        elif self.languages and profile.source is None:
            profile = dataclasses.replace(profile, source=self.languages[0], target=self.languages[1])
        terms = None if self.terms is None else read_terms(self.terms, languages_of_model(translator, self.to_language))
        is_alone = self.as_is or given(self, ALONE)
        return Road(translator.tokenizer, profile, STEPS if is_alone else self.skip, terms, self.to_language)


def main() -> int:
    """Run the command."""
    return run_command(lambda: translate(sys.argv[1:], *standard_streams()))


def translate(arguments: Sequence[str], source: Source, target: BinaryIO) -> int:
    """Translate from ``source`` to ``target``, or between the files that the options name."""
    remedy = 'to translate a file, give "< {file}" or "--input {file}"; for one more model, "--run {file}"'
    options = parse_options(TranslateOptions, DESCRIPTION, arguments, remedy)
    options.check()
    with references_only(when=options.kernels == "reference"):
        _translate(options, source, target)
    return 0


def _translate(options: TranslateOptions, source: Source, target: BinaryIO) -> None:
    search, sampling = options.search, options.sampling
    require_target(options.languages, options.to_language)
    prefixes = prefixes_of(options)
    runs = options.run or (RunConfig.run,)
    translator = load_translator(*runs, device=options.device, weights=options.weights)
    languages = languages_of_input(options, languages_of_model(translator, options.to_language))
    translation = LineTranslator(
        TextTranslator(translator, search, options.road(translator), sampling, options.threads),
        LineFormat(options.n_best, options.alignments),
        prefixes,
        NoteLog(verbose=options.verbose),
    )
    try:
        if options.input:
            translate_input(translation, options.input, options, languages, target)
        else:
            groups = groups_of_standard_input(source, LINES_AT_ONCE)
            if source.isatty():
                say("type a sentence and press Enter; Ctrl-D ends")
                groups = warned_of_each(groups, translation.notes)
            with counting("lines", None, shown=not (source.isatty() or target.isatty())) as advance:
                translate_groups(translation, groups, target, advance)
    finally:
        translation.notes.log()


def require_target(languages: Languages | None, to_language: str | None) -> None:
    """Raise ConfigError if the target language of files is not the language to translate to."""
    if languages and to_language and without_region(languages[1]) != without_region(to_language):
        raise ConfigError(
            f"--to-language {to_language}: the files are in {' and '.join(languages)}; give --languages with"
            f" {to_language} as the second code"
        )


def languages_of_model(translator: Translator, to_language: str | None) -> Languages | None:
    """Return the languages between which a model translates; None if one is not known by a code of two letters."""
    profile = translator.profile
    target = to_language if profile.targets else None if translator.tokenizer.languages else profile.target
    is_known = profile.source and target and len(without_region(profile.source)) == len(without_region(target)) == 2
    return (str(profile.source), str(target)) if is_known else None


def languages_of_input(options: TranslateOptions, model_languages: Languages | None) -> Languages | None:
    """Return the languages of the input; warn if the options name others than the model's."""
    named = options.languages
    if named and model_languages and not all(map(fits, named, model_languages)):
        say(f"warning: --languages {' '.join(named)}: the model translates from {' to '.join(model_languages)}")
    languages = languages_between(options.input, options.output, named, model_languages) if options.input else None
    if model_languages is None:
        require_target(languages, options.to_language)
    return languages


def read_terms(path: Path, model_languages: Languages | None) -> Terms:
    """Read a file of terms.  Raises: ConfigError for a wrong term or another kind of file; CorpusError."""
    if not has_both_sides(path):
        raise ConfigError(f"--terms {path}: name it .tsv if each line has a source term, a tab and a target term")
    languages = languages_of_file(path, model_languages) if model_languages else languages_of(path)
    terms = dict(read_pair_file(path, languages))
    if not terms:
        raise ConfigError(f"--terms {path}: has no term from {' to '.join(languages)}")
    return Terms(terms)


def warned_of_each(groups: Iterator[list[bytes]], notes: NoteLog) -> Iterator[list[bytes]]:
    """Yield groups of lines; log uncertain notes as soon as a group is translated, not only at the end."""
    for lines in groups:
        yield lines
        notes.log()


def translate_input(
    translation: LineTranslator, path: Path, options: TranslateOptions, languages: Languages | None, target: BinaryIO
) -> None:
    """Translate the file ``path`` to the output that the options name, or else to ``target``."""
    if options.output and is_document(path):
        document = read_document(path, languages)
        with counting("segments", len(document.segments), shown=True) as advance:
            translate_document(translation, document, options.output, advance, resume=options.resume)
        return
    shown = options.output is not None or not target.isatty()  # a terminal shows the translations themselves
    n_lines = lines_of(path) if shown else None
    if options.output:
        with counting("lines", n_lines, shown=shown) as advance:
            translate_file(
                (
                    MemoryTranslator.between(path, languages, translation)
                    if languages and is_memory(options.output)
                    else translation
                ),
                path,
                options.output,
                resume=options.resume,
                lines_at_once=LINES_AT_ONCE,
                languages=languages,
                advance=advance,
            )
    else:
        with (
            groups_of_input(path, LINES_AT_ONCE, languages) as groups,
            counting("lines", n_lines, shown=shown) as advance,
        ):
            translate_groups(translation, groups, target, advance)


def lines_of(path: Path) -> int | None:
    """Return the number of lines of a text file; None for a pipe, or a file with both sides, whose reader may warn."""
    if has_both_sides(path) or not path.is_file():
        return None
    with groups_of_file(path, LINES_AT_ONCE) as groups:
        return sum(map(len, groups))


def prefixes_of(options: TranslateOptions) -> Prefixes | None:
    """Return the beginnings of translations; None if the options give none.

    Raises: PrefixError if the input is a text file with another number of lines.
    """
    if options.prefix_text is not None:
        return Prefixes([as_text("prefix", options.prefix_text)])
    if options.prefix is None:
        return None
    prefixes = read_prefixes(options.prefix)
    if options.input and (n_lines := lines_of(options.input)) is not None:
        prefixes.require_lines(n_lines)
    return prefixes


def translate_groups(
    translation: LineTranslator, groups: Iterable[list[bytes]], target: BinaryIO, advance: LinesDone
) -> None:
    """Write the translations of each group of lines, and their alignments, as soon as they are computed."""
    n_lines = 0
    with alignments_file(translation.alignments) as alignments:
        targets = [target, *alignments]
        advance(0)
        for lines in groups:
            for file, text in zip(targets, translation(lines, n_lines, advance), strict=True):
                file.write(text)
                file.flush()
            n_lines += len(lines)
    if translation.prefixes:
        translation.prefixes.require_lines(n_lines)


@contextmanager
def alignments_file(path: Path | None) -> Iterator[list[BinaryIO]]:
    """Yield a list with the open file of alignments, or [] without one.  Raises: ConfigError if it cannot be opened."""
    if path is None:
        yield []
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise ConfigError(f"--alignments {path}: cannot be written ({error.strerror}); choose another file") from error
    with file:
        yield [file]
