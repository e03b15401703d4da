"""Pairs for constituency parsing: the words of a tree, and the tree as a sequence of symbols."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from minitransformer.config import DataConfig, LeafSymbols
from minitransformer.data.inspection import Inspection
from minitransformer.data.survey import CorpusError, Pair, Survey, survey
from minitransformer.extras.parsing.linear import linearised
from minitransformer.extras.parsing.penn import read_trees
from minitransformer.extras.parsing.plain import plain


@dataclass(frozen=True)
class TreebankCorpus:
    """A corpus of trees in Penn bracket format, without traces and functional tags; trees without words are left out.

    ``surveys`` holds the survey of each file, ``n_trees`` the number of trees with words; ``of`` fills both.
    """

    train_files: Sequence[Path]
    validation_files: Sequence[Path]
    leaves: LeafSymbols
    surveys: dict[Path, Survey] = field(default_factory=dict)
    n_trees: dict[Path, int] = field(default_factory=dict)
    inspection = Inspection()  # trees are not inspected
    targets_are_symbols = True

    @classmethod
    def of(cls, config: DataConfig) -> TreebankCorpus:
        """Open the treebank of a configuration; read every file once, so that an invalid file is reported early.

        Raises: CorpusError for files that are missing, without trees, or not in Penn bracket format.
        """
        train, validation = (
            [config.raw / name for name in names] for names in (config.train_trees, config.validation_trees)
        )
        corpus = cls(train, validation, config.leaf_symbols)
        for path in (*train, *validation):
            corpus.surveys[path] = survey(path)
            corpus.n_trees[path] = sum(1 for _ in corpus._pairs([path]))
            if not corpus.n_trees[path]:
                raise CorpusError(f"{path}: holds no trees; expected Penn brackets: (S (NP (NN word)))")
        return corpus

    def train(self) -> Iterator[Pair]:
        return self._pairs(self.train_files)

    def validation(self) -> Iterator[Pair]:
        return self._pairs(self.validation_files)

    def test(self) -> Iterator[Pair]:
        """Return an empty iterator, because users parse and score a test set themselves, after training."""
        return iter(())

    def held_out_location(self, i: int) -> None:
        """Return None, because held-out trees have their own files."""

    def location(self, i: int) -> str:
        """Return the file of the i-th training tree (from 0), and the tree's number among the file's trees with words.

        Raises: IndexError if there are fewer training trees.
        """
        for path in self.train_files:
            if i < self.n_trees[path]:
                return f"{path.name}, tree {i + 1:,}"
            i -= self.n_trees[path]
        raise IndexError("TreebankCorpus.location: there are not so many training trees")

    def file_of(self, i: int) -> int:
        """Return 0, because no setting tells the files of a treebank apart."""
        return 0

    def _pairs(self, paths: Sequence[Path]) -> Iterator[Pair]:
        for tree in map(plain, itertools.chain.from_iterable(map(read_trees, paths))):
            if tree.walk:
                yield " ".join(tree.words), " ".join(linearised(tree, self.leaves))
