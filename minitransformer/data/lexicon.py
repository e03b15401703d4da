"""The lexicon: the leaves of each word in a treebank.  It is stored in the sentencepiece model of the words."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import TypeAlias

from minitransformer.data.protobuf import bytes_field, fields
from minitransformer.model.batch import IdPair
from minitransformer.model.symbols import END

Lexicon: TypeAlias = dict[int, list[int]]
"""Source id (of a word, or of a class of rare words) → the target ids of its leaves."""

LEAST_SEEN = 10  # times; rarer words may have leaves that the training text does not show
_FIELD = 200  # of ModelProto: the first one that sentencepiece leaves to other programs


def is_bracket(symbol: str) -> bool:
    """Return whether a symbol of a tree opens or closes a constituent; all other symbols are leaves, one per word."""
    return symbol.startswith(("(", ")"))


def makes_trees(symbols: Sequence[str]) -> bool:
    """Return whether a vocabulary has labelled brackets, which a vocabulary of ordinary subwords never has."""
    known = frozenset(symbols)
    return any(symbol.startswith("(") and symbol[1:2].isalpha() and f"){symbol[1:]}" in known for symbol in symbols)


def lexicon_of(pairs: Iterable[IdPair], leaf_ids: Container[int]) -> Lexicon:
    """Return the lexicon of trees; leave out rare words, and trees that have more or fewer leaves than words."""
    seen = defaultdict[int, Counter[int]](Counter)
    for words, symbols in pairs:
        leaves = [symbol for symbol in symbols if symbol in leaf_ids]
        if len(words) == len(leaves):
            for word, leaf in zip(words, leaves, strict=True):
                seen[word][leaf] += 1
    return {
        word: sorted(leaves) for word, leaves in sorted(seen.items()) if word > END and leaves.total() >= LEAST_SEEN
    }


def with_lexicon(model: bytes, lexicon: Lexicon) -> bytes:
    """Append a lexicon to a sentencepiece model, in a field that sentencepiece ignores."""
    return model + bytes_field(_FIELD, json.dumps(lexicon, separators=(",", ":")).encode())


def read_lexicon(model: bytes) -> Lexicon:
    """Return the lexicon of a sentencepiece model; {} if the model has none."""
    found = next((value for number, _, value in fields(model) if number == _FIELD), b"{}")
    return {int(word): leaves for word, leaves in json.loads(found).items()}
