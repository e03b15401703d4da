"""An endless, exactly referenced English-German corpus from a small grammar, for demonstrations without a download.

Numbers follow the conventions of `numbers`, dates and times those of `dates`, word order those of `german`.
"""

from minitransformer.data.demo.corpus import SHOWCASE, DemoCorpus, demo_corpus
from minitransformer.data.demo.grammar import sentence_pair
from minitransformer.data.demo.numbers import english_number, german_number

__all__ = ["SHOWCASE", "DemoCorpus", "demo_corpus", "english_number", "german_number", "sentence_pair"]
