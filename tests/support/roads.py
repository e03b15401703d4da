"""Texts on the road through translators that are functions."""

from collections.abc import Callable, Sequence

from minitransformer.data.profile import TextProfile
from minitransformer.text.codes import Parts
from minitransformer.text.road import Road, Sentences, translated
from minitransformer.text.translation import Translation

Translate = Callable[[Sequence[str]], Sequence[Translation]]


class WordTokenizer:
    """A tokenizer that knows all characters but those in ``unknown``; a word is a token."""

    spells_no_words = False

    def __init__(self, unknown: str = "", languages: Sequence[str] = ()) -> None:
        self.unknown, self.languages = unknown, languages

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        return [[0 if set(word) & set(self.unknown) else 3 for word in line.split(" ") if word] for line in lines]


def road_of(unknown: str = "", languages: Sequence[str] = (), **settings: object) -> Road:
    """A road whose tokenizer lacks some characters, and has codes of some languages, from English to German."""
    return Road(WordTokenizer(unknown, languages), **({"profile": TextProfile("en", "de")} | settings))  # type: ignore[arg-type]


def translate_segments(
    segments: Sequence[str | Parts], translate: Translate, road: Road | None = None
) -> list[Translation]:
    """The best translation of each segment; ``translate`` aligns the words of sentences."""

    def best(sentences: Sentences) -> list[list[Translation]]:
        return [[each] for each in translate(sentences.lines)]

    return [found[0] for found in translated((road or road_of()).steps(segments), best)]


def copied(texts: Sequence[str]) -> list[Translation]:
    """Translations that are the texts, with word n linked to word n."""
    words = [text.split() for text in texts]
    return [Translation(" ".join(some), 0.0, 0.0, tuple((i, i) for i in range(len(some)))) for some in words]
