"""minitransformer-parse: parse sentences into constituency trees."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autograd.array import Device
from autograd.kernel_registry import KernelChoice, references_only
from cli.command import counting, run_command, say, standard_streams
from cli.options import Repeated, Rule, parse_options, require_rules, require_threads
from minitransformer.config import RunConfig
from minitransformer.data.survey import CorpusError, groups_of
from minitransformer.extras.files.stream import Source, decoded, groups_of_standard_input, warn_of_cut
from minitransformer.extras.parsing.parser import PARSING, Parser
from minitransformer.extras.parsing.penn import EXPECTED_TREES, read_trees, write_tree
from minitransformer.extras.parsing.plain import plain
from minitransformer.extras.parsing.words import Splitting, split_words
from minitransformer.inference.search import SearchConfig
from minitransformer.model.transformer import WeightsChoice

DESCRIPTION = """Parse the sentences on standard input, one per line, into trees in Penn bracket format on standard
output, one per line. With --treebank FILE: parse the words of its trees instead; then compare the two files with
minitransformer-score trees."""

DEFAULT_RUN = Path("runs/parsing-craft")
SENTENCES_AT_ONCE = 512  # batched together by length; their trees are written together


RULES = (Rule(("words",), "does not go with", ("treebank",), "the trees have the words"),)


@dataclass(frozen=True)
class ParseOptions:
    """The options of minitransformer-parse."""

    run: Repeated[Path] = ()
    """Directory of a training run on a treebank; runs/parsing-craft if not given. Give --run several times for an
    ensemble: the models' probabilities are averaged; they must have the same tokenizer."""
    treebank: Path | None = None
    """Parse the words of these trees (Penn bracket format, plain, .gz, .xz or .zst) instead of standard input."""
    words: Splitting = "penn"
    """How to split lines into words: "penn", as in the Penn Treebank; "ontonotes", which also splits at hyphens and
    slashes, nearly as in CRAFT; or "blanks"."""
    beam: int = PARSING.beam
    """Hypotheses kept alive for each sentence; 1 is greedy search, the fastest."""
    alpha: float | None = PARSING.alpha
    """Exponent of the length penalty."""
    majority: bool = False
    """Write the constituents that more than half of the beam's trees have, weighted by their probabilities, instead of
    the best tree."""
    threads: int | None = None
    """Threads to compute on; all cores if not given."""
    device: Device = RunConfig.device
    """Where to compute."""
    weights: WeightsChoice = "automatic"
    """The numbers in which the search computes: see minitransformer-translate."""
    kernels: KernelChoice = RunConfig.kernels
    """"compiled" kernels, or the "reference" of each operation in NumPy or CuPy, which is slower."""

    @property
    def search(self) -> SearchConfig:
        """The settings of the search.  Raises: ConfigError for invalid options."""
        require_threads(self.threads)
        return dataclasses.replace(PARSING, beam=self.beam, alpha=self.alpha)


def main() -> int:
    """Run the command."""
    return run_command(lambda: parse(sys.argv[1:], *standard_streams()))


def parse(arguments: Sequence[str], source: Source, target: BinaryIO) -> int:
    """Parse ``source``, or the words of a treebank, and write the trees to ``target``."""
    remedy = 'to parse a file of sentences, give "< {file}"; the words of a file of trees, "--treebank {file}"'
    options = parse_options(ParseOptions, DESCRIPTION, arguments, remedy)
    require_rules(options, RULES)
    with references_only(when=options.kernels == "reference"):
        _parse(options, source, target)
    return 0


def _parse(options: ParseOptions, source: Source, target: BinaryIO) -> None:
    runs, search = options.run or (DEFAULT_RUN,), options.search
    parser = Parser.load(*runs, device=options.device, weights=options.weights)
    is_typed = options.treebank is None and source.isatty()
    if is_typed:
        say("type a sentence and press Enter; Ctrl-D ends")
    name, n_before = "line" if options.treebank is None else "tree", 0
    shown = not (is_typed or target.isatty())
    with counting("sentences", _n_sentences(options) if shown else None, shown=shown) as advance:
        advance(0)
        for sentences in _groups(options, source):
            for i in parser.cut(sentences):
                warn_of_cut(f"{name} {n_before + 1 + i}", parser.translator)
            n_before += len(sentences)
            trees = parser.parse(
                sentences, search, majority=options.majority, n_threads=options.threads, advance=advance
            )
            for tree in trees:
                target.write(f"{write_tree(tree)}\n".encode())
            target.flush()
    if options.treebank is not None and n_before == 0:
        raise CorpusError(f"{options.treebank}: contains no tree; {EXPECTED_TREES}")


def _n_sentences(options: ParseOptions) -> int | None:
    """Return the number of trees in the treebank; None if the input cannot be read twice."""
    if options.treebank is None or not options.treebank.is_file():
        return None
    return sum(1 for _ in read_trees(options.treebank))


def _groups(options: ParseOptions, source: Source) -> Iterator[list[list[str]]]:
    """Yield the words of sentences, in groups."""
    if options.treebank is None:
        n_before = 0
        for lines in groups_of_standard_input(source, SENTENCES_AT_ONCE):
            texts = [decoded(line, number) for number, line in enumerate(lines, n_before + 1)]
            yield [split_words(text, options.words) for text in texts]
            n_before += len(lines)
    else:
        sentences = (plain(tree).words for tree in read_trees(options.treebank))
        yield from groups_of(sentences, SENTENCES_AT_ONCE)
