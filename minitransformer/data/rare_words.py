"""Words as tokens: the frequent ones as they are, of rare ones the class that shape and ending put them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from minitransformer.symbols import UNKNOWN

LEAST_COUNT = 2  # words that training text has less often are rare there, too: so their classes are learnt
_BLANK = "▁"  # what sentencepiece puts before words
_SHAPES = ("number", "digits", "capitals", "capital", "lower", "signs")
# sentencepiece makes two pieces of each, with and without _BLANK; where a class has no ending the first is found.
SHAPE_CLASSES = tuple(f"<rare:{shape}>" for shape in _SHAPES)


def rare_word_classes(word: str) -> tuple[str, str]:
    """The class of a word that is rare, and a wider one in case that nobody has seen this one either.

    "phosphorylated" is of "<rare:lower:ed>", else of "<rare:lower>"; "12.5" of "<rare:number>".  Shape and ending tell
    the part of speech of most of them.

    Source: the signatures that the Stanford and Berkeley parsers give unknown words (Klein and Manning 2003, "Accurate
    Unlexicalized Parsing"; Petrov et al. 2006, "Learning Accurate, Compact, and Interpretable Tree Annotation").
    **Differs**: the last two letters instead of a list of English suffixes, so that any language's endings do.
    """
    shape = _shape(word)
    wide = f"<rare:{shape}>"
    return (f"<rare:{shape}:{word[-2:].lower()}>" if shape in ("capital", "lower") else wide), wide


def _shape(word: str) -> str:
    if any(character.isdigit() for character in word):
        return "digits" if any(character.isalpha() for character in word) else "number"
    if not any(character.isalpha() for character in word):
        return "signs"
    if word.isupper() and len(word) > 1:
        return "capitals"
    return "capital" if word[0].isupper() else "lower"


def words_of(line: str) -> list[str]:
    """The words that blanks separate; other spaces, as that of "10\u00a0mg", may be part of a treebank's word."""
    return [word for word in line.split(" ") if word]


def count_words(lines: Iterable[str]) -> Counter[str]:
    """How often there is each word."""
    return Counter(word for line in lines for word in words_of(line))


def with_endings_of_rare_words(lines: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    """The lines, with classes by ending for words that were counted less than LEAST_COUNT times.

    Words that have a class by shape only are left out: the vocabulary has SHAPE_CLASSES whatever the text is.
    """
    for line in lines:
        tokens = (word if counts[word] >= LEAST_COUNT else rare_word_classes(word)[0] for word in words_of(line))
        yield " ".join(token for token in tokens if token not in SHAPE_CLASSES)


class WordEncoder:
    """One id for each word: its own, or that of the first of its classes which the vocabulary has."""

    def __init__(self, vocabulary: sentencepiece.SentencePieceProcessor) -> None:
        self._id = vocabulary.piece_to_id

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of lines of words with blanks between.

        sentencepiece's own would make one unknown token of all neighbours that it does not know.
        """
        return [[self._id_of(word) for word in words_of(line)] for line in lines]

    def _id_of(self, word: str) -> int:
        narrow, wide = rare_word_classes(word)
        ids = map(self._id, (_BLANK + word, _BLANK + narrow, wide))
        return next((i for i in ids if i != UNKNOWN), UNKNOWN)


def is_of_words(vocabulary: sentencepiece.SentencePieceProcessor) -> bool:
    """Whether a model is a vocabulary of words and of classes of rare ones."""
    return bool(vocabulary.piece_to_id(SHAPE_CLASSES[0]) != UNKNOWN)
