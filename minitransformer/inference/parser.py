"""Words in, a constituency tree out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autograd.array import Device
from autograd.ops.likeliest import IntArray
from minitransformer.data.rare_words import words_of
from minitransformer.files import CheckpointError
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.brackets import BracketConstraint, BracketVocabulary
from minitransformer.inference.translator import Translator
from minitransformer.trees.linear import tree_of
from minitransformer.trees.tree import Tree

PARSING = SearchConfig(beam=21, alpha=0.3, max_extra_tokens=300)  # section 6.3


class Parser:
    """A translator whose target language is trees.

    Source: Vaswani et al. 2017, section 6.3.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.vocabulary = BracketVocabulary(translator.tokenizer.target_symbols)

    @classmethod
    def load(cls, directory: str | Path, *, device: Device = "cpu") -> Parser:
        """The model of a run on a treebank.  Raises: CheckpointError if there is none, or it makes no trees."""
        parser = cls(Translator.load(directory, device=device))
        if not BracketVocabulary.makes_trees(parser.translator.tokenizer.target_symbols):
            raise CheckpointError(
                f"{directory}: a model that makes no trees; name a run that was trained on a treebank"
            )
        return parser

    def parse(
        self, sentences: Sequence[Sequence[str]], config: SearchConfig = PARSING, *, n_threads: int | None = None
    ) -> list[Tree]:
        """The tree of each sentence over exactly its words, whatever the model says; of no words, an empty one.

        Differs: only sequences are searched that are trees over as many words.  What is cut off all the same, at the
        greatest length, is mended (``tree_of``).
        """

        def constraint_of(numbers: IntArray) -> BracketConstraint:
            return BracketConstraint(self.vocabulary, [sentences[i] for i in numbers])

        found = self.translator.n_best(_lines(sentences), config, n_threads=n_threads, constraint_of=constraint_of)
        return [tree_of(words_of(best[0].text), words) for best, words in zip(found, sentences, strict=True)]

    def cut(self, sentences: Sequence[Sequence[str]]) -> list[int]:
        """Places of the sentences that are longer than what the model is given of them."""
        return self.translator.cut(_lines(sentences))


def _lines(sentences: Sequence[Sequence[str]]) -> list[str]:
    return [" ".join(words) for words in sentences]
