"""minitransformer-parse: sentences in, constituency trees out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from cli.command import run_command, say
from cli.options import parse_options, require_threads
from cli.streams import standard_streams
from minitransformer.data.survey import CorpusError
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.parser import PARSING, Parser
from minitransformer.inference.stream import Source, cut_warning, decoded, groups_of_lines
from minitransformer.trees.penn import EXPECTED_TREES, read_trees, write_tree
from minitransformer.trees.plain import plain
from minitransformer.trees.words import Splitting, split_words

DESCRIPTION = """Parse the sentences on standard input, one a line, into trees in Penn bracket format on standard
output, one a line. With --treebank FILE: parse the words of its trees instead; then minitransformer-score trees
compares."""

SENTENCES_AT_ONCE = 512  # sorted by length together; their trees appear together


@dataclass(frozen=True)
class ParseOptions:
    """What to parse with."""

    run: Path = Path("runs/parsing-craft")
    """Directory of a training run on a treebank."""
    treebank: Path | None = None
    """Parse the words of these trees (Penn bracket format, plain, .gz or .xz) instead of standard input."""
    words: Splitting = "penn"
    """How lines become words: as in the Penn Treebank; "ontonotes": with hyphens and slashes apart, nearly as in CRAFT;
    or at blanks."""
    beam: int = PARSING.beam
    """Hypotheses kept alive for each sentence; 1 is greedy search, and the quickest."""
    alpha: float = PARSING.alpha
    """Exponent of the length penalty."""
    threads: int | None = None
    """Threads to compute on; all cores if not given."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where to compute."""

    @property
    def search(self) -> SearchConfig:
        """How to search.  Raises: ConfigError for options that make no search."""
        require_threads(self.threads)
        return SearchConfig(beam=self.beam, alpha=self.alpha, max_extra_tokens=PARSING.max_extra_tokens)


def main() -> int:
    """Entry point."""
    return run_command(lambda: parse(sys.argv[1:], *standard_streams()))


def parse(arguments: Sequence[str], source: Source, target: BinaryIO) -> int:
    """Parse ``source``, or a treebank's words, into ``target`` as the options say."""
    remedy = 'to parse a file of sentences, give "< {file}"; the words of a file of trees, "--treebank {file}"'
    options = parse_options(ParseOptions, DESCRIPTION, arguments, default=ParseOptions(), file_remedy=remedy)
    search, parser = options.search, Parser.load(options.run, device=options.device)
    if options.treebank is None and source.isatty():
        say("type a sentence and press Enter; Ctrl-D ends")
    name, n_before = "line" if options.treebank is None else "tree", 0
    for sentences in _groups(options, source):
        for i in parser.cut(sentences):
            say(cut_warning(f"{name} {n_before + 1 + i}", parser.translator))
        n_before += len(sentences)
        for tree in parser.parse(sentences, search, n_threads=options.threads):
            target.write(f"{write_tree(tree)}\n".encode())
        target.flush()
    if options.treebank is not None and n_before == 0:
        raise CorpusError(f"{options.treebank}: holds no tree; {EXPECTED_TREES}")
    return 0


def _groups(options: ParseOptions, source: Source) -> Iterator[list[list[str]]]:
    """The words of sentences, many together."""
    if options.treebank is None:
        n_before = 0
        for lines in groups_of_lines(source, SENTENCES_AT_ONCE):
            texts = [decoded(line, number, say) for number, line in enumerate(lines, n_before + 1)]
            yield [split_words(text, options.words) for text in texts]
            n_before += len(lines)
    else:
        sentences = (plain(tree).words for tree in read_trees(options.treebank))
        while group := list(islice(sentences, SENTENCES_AT_ONCE)):
            yield group
