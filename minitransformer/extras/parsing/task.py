"""Constituency parsing as a task: the target of a sentence is its tree, the score is labelled bracketing F1."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from minitransformer.config import DataConfig
from minitransformer.data.corpus import Corpus
from minitransformer.data.survey import Pair
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.parsing.evalb import bracketing_f1
from minitransformer.extras.parsing.linear import leaves_of, tree_of
from minitransformer.extras.parsing.parser import PARSING, Parser
from minitransformer.extras.parsing.penn import write_tree
from minitransformer.extras.parsing.treebank import TreebankCorpus
from minitransformer.inference.search import Advance, SearchConfig
from minitransformer.inference.task import Evaluation, Task, samples
from minitransformer.inference.translator import Translator
from minitransformer.model.symbols import END


class ParsingTask:
    """The parsing task: a beam search for the tree of each sentence, with the length limit and penalty of PARSING."""

    takes_alpha, known_words = False, ""

    def corpus(self, config: DataConfig) -> Corpus:
        return TreebankCorpus.of(config)

    def settings_of(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {"leaf_symbols": leaves_of(tokenizer.target_symbols[END + 1 :])}

    def evaluate(
        self, translator: Translator, text: Sequence[Pair], search: SearchConfig, *, n_threads: int, advance: Advance
    ) -> Evaluation:
        sources = [source for source, _ in text]
        sentences = [source.split(" ") for source in sources]
        gold = [tree_of(target.split(" "), words) for (_, target), words in zip(text, sentences, strict=True)]
        search = dataclasses.replace(PARSING, beam=search.beam)
        trees = Parser(translator).parse(sentences, search, n_threads=n_threads, advance=advance)
        written = ([write_tree(tree) for tree in side] for side in (gold, trees))
        return Evaluation(bracketing_f1(trees, gold), samples(sources, *written))


TASK: Task = ParsingTask()
