"""Words as tokens: a frequent word has its own id, a rare word has the id of its class.

The class of a word is given by its shape and its ending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from minitransformer.model.symbols import BLANK, UNKNOWN

SPLIT_AT_BLANKS = b"words separated by blanks"  # marks a model whose lines are looked up word by word
LEAST_COUNT = 2  # words below this count are not in the vocabulary, so that the model learns their classes
_SHAPES = ("number", "digits", "capitals", "capital", "lower", "signs")
# sentencepiece makes two pieces of each, with BLANK and without.  Words without an ending get the piece with BLANK.
SHAPE_CLASSES = tuple(f"<rare:{shape}>" for shape in _SHAPES)


def rare_word_classes(word: str) -> tuple[str, str]:
    """Return the class of a rare word, and the wider class to use if the vocabulary lacks the first class.

    The classes of "phosphorylated" are "<rare:lower:ed>" and "<rare:lower>"; the class of "12.5" is "<rare:number>".
    Shape and ending determine the part of speech of most words.

    Source: the signatures that the Stanford and Berkeley parsers give unknown words (Klein and Manning 2003, "Accurate
    Unlexicalized Parsing"; Petrov et al. 2006, "Learning Accurate, Compact, and Interpretable Tree Annotation").
    **Differs**: the ending is the last two letters, not one of a list of English suffixes, so that classes exist in any
    language.
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
    """Split a line into words at blanks only; other spaces, as in "10\u00a0mg", may be part of a treebank's word."""
    return [word for word in line.split(" ") if word]


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Return the count of each word."""
    return Counter(word for line in lines for word in words_of(line))


def with_endings_of_rare_words(lines: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    """Yield the lines; each word that occurs fewer than LEAST_COUNT times is replaced by its class.

    Rare words whose class has no ending are left out: the vocabulary always contains SHAPE_CLASSES.
    """
    for line in lines:
        tokens = (word if counts[word] >= LEAST_COUNT else rare_word_classes(word)[0] for word in words_of(line))
        yield " ".join(token for token in tokens if token not in SHAPE_CLASSES)


class WordEncoder:
    """An encoder with one id for each word.

    A word of the vocabulary has its own id.  Any other word has the id of the first of its classes that is in the
    vocabulary.
    """

    def __init__(self, vocabulary: sentencepiece.SentencePieceProcessor) -> None:
        self._vocabulary, self._id = vocabulary, vocabulary.piece_to_id

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of lines whose words are separated by blanks.

        sentencepiece's own encoder would merge adjacent unknown words into one token.
        """
        return [[self._id_of(word) for word in words_of(line)] for line in lines]

    def classes(self) -> list[int]:
        """Return a list that has for each id of a word the id of the word's class, for any other id the id itself."""
        pieces = (str(self._vocabulary.id_to_piece(i)) for i in range(self._vocabulary.get_piece_size()))
        return [self._first_of(*_class_pieces(piece[1:])) if _is_word(piece) else i for i, piece in enumerate(pieces)]

    def _id_of(self, word: str) -> int:
        return self._first_of(BLANK + word, *_class_pieces(word))

    def _first_of(self, *pieces: str) -> int:
        return next((i for i in map(self._id, pieces) if i != UNKNOWN), UNKNOWN)


def _class_pieces(word: str) -> tuple[str, str]:
    narrow, wide = rare_word_classes(word)
    return BLANK + narrow, wide


def _is_word(piece: str) -> bool:
    return len(piece) > 1 and piece.startswith(BLANK) and not piece.startswith(f"{BLANK}<rare:")


def splits_at_blanks(model: bytes) -> bool:
    """Return whether lines for a sentencepiece model must be split at blanks, and have one id for each word."""
    return SPLIT_AT_BLANKS in model


def is_of_words(vocabulary: sentencepiece.SentencePieceProcessor) -> bool:
    """Return whether a vocabulary consists of words and classes of rare words."""
    return bool(vocabulary.piece_to_id(SHAPE_CLASSES[0]) != UNKNOWN)
