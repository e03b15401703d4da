"""Reading and writing of the Penn Treebank's bracket format: (S (NP (DT the) (NN dog)) (VP (VBZ barks)))."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from minitransformer.data.survey import CorpusError, read_lines
from minitransformer.extras.parsing.tree import OUTERMOST, Closing, Leaf, Opening, Step, Tree

_BLANK, _PLAIN = r"[ \t\r\n]", r"[^() \t\r\n]"  # only ASCII blanks separate words: a word may contain other spaces
_TOKEN = re.compile(
    rf"\({_BLANK}*({_PLAIN}+){_BLANK}+({_PLAIN}[^()]*)\)"  # 1, 2: tag and word of a leaf
    rf"|\({_BLANK}*({_PLAIN}*)"  # 3: the label of an opening
    rf"|(\))"  # 4
    rf"|({_PLAIN}+)"  # 5: text outside of leaves
)
_STRIPPED, _BLANKS = " \t\r\n", re.compile(rf"{_BLANK}+")
BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})  # brackets inside words
EXPECTED_TREES = "expected Penn brackets: (S (NP (NN word)))"


def read_trees(path: Path) -> Iterator[Tree]:
    """Yield the trees of a file (plain, .gz, .xz or .zst); a tree may extend over several lines.

    A leaf with blanks, as in a few trees of CRAFT, is one word; its blanks become underscores.

    Raises: CorpusError naming file and line for brackets that do not match, words outside of brackets, and brackets
    without a word.
    """
    return _over_lines(path, read_lines(path))


def _over_lines(path: Path, lines_of_file: Iterable[str]) -> Iterator[Tree]:
    lines: list[str] = []
    depth = number = first = 0
    for number, line in enumerate(lines_of_file, 1):
        first = number if depth == 0 else first
        lines.append(line)
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            try:
                yield from _trees("\n".join(lines))
            except ValueError as error:
                lines_read = f"line {number}" if first == number else f"lines {first} to {number}"
                raise CorpusError(f"{path}, {lines_read}: {error}; {EXPECTED_TREES}") from error
            lines.clear()
    if depth:
        raise CorpusError(
            f"{path}, line {number}: the file ends within the tree that begins in line {first};"
            f" brackets that are not closed: {depth}"
        )


def read_candidates(path: Path) -> Iterator[Tree | CorpusError]:
    """Yield one tree for every line of a parser's output; several trees in a line are yielded as one ``Tree``.

    An empty line is an empty tree.  So is a line of brackets without words: some parsers write (()) if they find no
    tree.  For an invalid line, yield a CorpusError that names file and line, and go on with the next line.
    """
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield Tree(()) if _has_only_brackets(line) else read_tree(line)
        except ValueError as error:
            yield _error_in_line(path, number, error)


def _has_only_brackets(line: str) -> bool:
    return not line.strip("()" + _STRIPPED) and line.count("(") == line.count(")")


def _error_in_line(path: Path, number: int, error: ValueError) -> CorpusError:
    return CorpusError(f"{path}, line {number}: {error}; expected complete trees in one line")


def _in_lines(path: Path, lines: Iterable[str]) -> Iterator[Tree]:
    for number, line in enumerate(lines, 1):
        try:
            yield read_tree(line)
        except ValueError as error:
            raise _error_in_line(path, number, error) from error


def read_gold_trees(path: Path) -> Iterator[Tree]:
    """Return the gold trees of a file, one for each line of the file of candidates.

    If every line has equally many opening and closing brackets, each line is one tree, and an empty line is an empty
    tree.  Otherwise, trees extend over several lines as in the Penn Treebank's own files, and empty lines are ignored.
    The file is read once, so it may be a pipe.
    Raises: CorpusError naming file and line for an invalid tree.
    """
    lines = list(read_lines(path))
    whole_in_lines = all(line.count("(") == line.count(")") for line in lines)
    return (_in_lines if whole_in_lines else _over_lines)(path, lines)


def read_tree(text: str) -> Tree:
    """Return the tree, or the sequence of trees, in a text.  Raises: ValueError if the text is invalid."""
    return Tree(tuple(itertools.chain.from_iterable(tree.walk for tree in _trees(text))))


def write_tree(tree: Tree) -> str:
    """Write a tree in one line, within (TOP ...), or "" if it is empty.  Brackets in words become -LRB- and -RRB-."""
    if not tree.walk:
        return ""
    parts = [f"({OUTERMOST}"]
    for step in tree.walk:
        match step:
            case Opening(label):
                parts.append(f" ({label}")
            case Leaf(tag, word):
                parts.append(f" ({tag} {word.translate(BRACKETS)})")
            case Closing():
                parts.append(")")
    return "".join([*parts, ")"])


def _trees(text: str) -> Iterator[Tree]:
    """Yield the trees in a text.

    Raises: ValueError for brackets that do not match, brackets without a word, and words outside of brackets.
    """
    walk: list[Step] = []
    open_labels: list[str] = []
    for token in _TOKEN.finditer(text):
        tag, word, label, closing, stray = token.groups()
        if stray:
            raise ValueError(f"{stray!r} is outside of a leaf's brackets")
        if tag:
            walk.append(Leaf(tag, _BLANKS.sub("_", word.strip(_STRIPPED))))
        elif closing is None:
            open_labels.append(label)
            walk.append(Opening(label))
        elif not open_labels:
            raise ValueError("')' without '('")
        elif isinstance(walk[-1], Opening):
            raise ValueError(f"({walk[-1].label}): a bracket without a word")
        else:
            walk.append(Closing(open_labels.pop()))
        if not open_labels:
            yield Tree(tuple(walk))
            walk.clear()
    if open_labels:
        raise ValueError(f"brackets that are not closed: {len(open_labels)}")
