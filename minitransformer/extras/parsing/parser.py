"""Constituency parsing: from the words of a sentence to its tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from autograd.array import Device, IntArray
from minitransformer.data.lexicon import makes_trees
from minitransformer.data.rare_words import words_of
from minitransformer.extras.parsing.brackets import BracketConstraint, BracketVocabulary
from minitransformer.extras.parsing.linear import tree_of
from minitransformer.extras.parsing.majority import majority_tree
from minitransformer.extras.parsing.tree import Tree
from minitransformer.inference.search import Advance, SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.model.transformer import WeightsChoice
from minitransformer.system.files import CheckpointError
from minitransformer.text.translation import Translation

PARSING = SearchConfig(beam=21, alpha=0.3, max_extra_tokens=300, max_length_factor=None)  # section 6.3


class Parser:
    """A translator whose target sequences are linearised trees.

    Source: Vaswani et al. 2017, section 6.3.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        tokenizer = translator.tokenizer
        self.vocabulary = BracketVocabulary(tokenizer.target_symbols, tokenizer.lexicon)

    @classmethod
    def load(
        cls, directory: str | Path, *others: str | Path, device: Device = "cpu", weights: WeightsChoice = "automatic"
    ) -> Parser:
        """Load the model of a run on a treebank, or an ensemble of the models of several runs.

        Raises: CheckpointError if there is no model, if it is not a parser, or if the runs have different tokenizers.
        """
        parser = cls(Translator.load(directory, *others, device=device, weights=weights))
        if not makes_trees(parser.translator.tokenizer.target_symbols):
            raise CheckpointError(f"{directory}: the model makes no trees; name a run that was trained on a treebank")
        return parser

    def parse(
        self,
        sentences: Sequence[Sequence[str]],
        config: SearchConfig = PARSING,
        *,
        majority: bool = False,
        n_threads: int | None = None,
        advance: Advance = lambda n: None,
    ) -> list[Tree]:
        """Return a tree over the words of each sentence; an empty sentence has an empty tree.

        It is the best tree of the beam, or with ``majority`` the tree of the constituents that more than half of the
        beam's trees have, weighted by their probabilities (``majority_tree``).

        Differs: the search considers only sequences that are trees over the words of the sentence, with leaves that
        these words had in training (``BracketConstraint``).  A sequence that is cut off at the greatest length is
        completed to a tree (``tree_of``).  ``advance``: see ``Translator.n_best``.

        Raises: TypeError if a sentence is a str instead of a list of words.
        """

        def constraint_of(numbers: IntArray) -> BracketConstraint:
            words = [sentences[i] for i in numbers]
            return BracketConstraint(self.vocabulary, words, self.translator.tokenizer.encode_source(_lines(words)))

        found = self.translator.n_best(
            _lines(sentences),
            dataclasses.replace(config, n_best=config.beam if majority else 1),
            n_threads=n_threads,
            constraint_of=constraint_of,
            advance=advance,
        )
        return [_chosen(candidates, words) for candidates, words in zip(found, sentences, strict=True)]

    def cut(self, sentences: Sequence[Sequence[str]]) -> list[int]:
        """Return the indices of sentences that are too long; the model gets only the beginning of such a sentence."""
        return self.translator.cut(_lines(sentences))


def _chosen(candidates: Sequence[Translation], words: Sequence[str]) -> Tree:
    trees = [tree_of(words_of(each.text), words) for each in candidates]
    return majority_tree(trees, [each.log_probability for each in candidates]) if len(trees) > 1 else trees[0]


def _lines(sentences: Sequence[Sequence[str]]) -> list[str]:
    for words in sentences:
        if isinstance(words, str):
            raise TypeError(f"expected a list of words for each sentence, got one str: use {words.split()!r:.80}")
    return [" ".join(words) for words in sentences]
