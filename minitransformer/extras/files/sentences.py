"""Translation of texts of several sentences: cut a text into sentences, translate each, and join the translations."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from minitransformer.config import ConfigError
from minitransformer.extras.packages import import_extra
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.model.symbols import LANGUAGE_CODE
from minitransformer.system.errors import require_lists

Split: TypeAlias = Callable[[str], Sequence[str]]
# Source: ISO 639-1.  For any other code sentencex uses English rules, so nobody would notice a wrong code.
LANGUAGES = {
    "aa", "ab", "ae", "af", "ak", "am", "an", "ar", "as", "av", "ay", "az", "ba", "be", "bg", "bi", "bm", "bn",
    "bo", "br", "bs", "ca", "ce", "ch", "co", "cr", "cs", "cu", "cv", "cy", "da", "de", "dv", "dz", "ee", "el",
    "en", "eo", "es", "et", "eu", "fa", "ff", "fi", "fj", "fo", "fr", "fy", "ga", "gd", "gl", "gn", "gu", "gv",
    "ha", "he", "hi", "ho", "hr", "ht", "hu", "hy", "hz", "ia", "id", "ie", "ig", "ii", "ik", "io", "is", "it",
    "iu", "ja", "jv", "ka", "kg", "ki", "kj", "kk", "kl", "km", "kn", "ko", "kr", "ks", "ku", "kv", "kw", "ky",
    "la", "lb", "lg", "li", "ln", "lo", "lt", "lu", "lv", "mg", "mh", "mi", "mk", "ml", "mn", "mr", "ms", "mt",
    "my", "na", "nb", "nd", "ne", "ng", "nl", "nn", "no", "nr", "nv", "ny", "oc", "oj", "om", "or", "os", "pa",
    "pi", "pl", "ps", "pt", "qu", "rm", "rn", "ro", "ru", "rw", "sa", "sc", "sd", "se", "sg", "si", "sk", "sl",
    "sm", "sn", "so", "sq", "sr", "ss", "st", "su", "sv", "sw", "ta", "te", "tg", "th", "ti", "tk", "tl", "tn",
    "to", "tr", "ts", "tt", "tw", "ty", "ug", "uk", "ur", "uz", "ve", "vi", "vo", "wa", "wo", "xh", "yi", "yo",
    "za", "zh", "zu",
}  # fmt: skip


class SentenceSplitter:
    """A function that cuts a text into sentences by the rules and abbreviations of a language in sentencex.

    The sentences of a text, joined, are the text.  A region or script after the language ("de-AT") changes nothing.
    For a language without rules of its own, sentencex uses the rules of another language.
    Raises: ConfigError if ``language`` is no code of ISO 639-1; MissingExtraError if the extra "sentences" is missing.
    """

    def __init__(self, language: str) -> None:
        self.language = language.lower().replace("_", "-").partition("-")[0]
        if self.language not in LANGUAGES:
            raise ConfigError(
                f'language {language!r}: expected a code such as "en" or "de"; for a language without a code of two'
                " letters, give that of a language with similar abbreviations"
            )
        self._segment = import_extra("sentences", "sentencex").segment

    def __call__(self, text: str) -> list[str]:
        """Return the sentences of a text, each with the whitespace after it."""
        return list(self._segment(self.language, text))


@dataclass
class SplitTexts:
    """The sentences of several texts, without surrounding whitespace, and the whitespace between them.

    ``text_of`` has for each sentence the index of its text.
    """

    sentences: list[str] = field(default_factory=list)
    text_of: list[int] = field(default_factory=list)
    _blanks: list[list[str]] = field(default_factory=list)  # for each text: before its first sentence, after each

    @classmethod
    def of(cls, texts: Iterable[str], split: Split) -> SplitTexts:
        """Cut texts into sentences; the pieces that ``split`` returns for a text, joined, must be the text.

        If a sentence begins with a language code, such as >>fra<<, the code is put before later sentences of its text.
        """
        parts = cls()
        for i, text in enumerate(texts):
            blanks, code = [""], ""
            for piece in split(text):
                sentence = piece.strip()
                if not sentence:
                    blanks[-1] += piece
                    continue
                before, after = piece.split(sentence, 1)
                blanks[-1] += before
                blanks.append(after)
                if own := LANGUAGE_CODE.match(sentence):
                    code = f"{own[0]} "
                parts.sentences.append(sentence if own else code + sentence)
                parts.text_of.append(i)
            parts._blanks.append(blanks)
        return parts

    def joined(self, translations: Sequence[str]) -> list[str]:
        """Return the translation of each text: the translations of its sentences, with the whitespace of the text.

        Chinese and Japanese have no blank between sentences.  If their translation is in another script, a blank is
        added.
        """
        pairs, texts = iter(zip(self.sentences, translations, strict=True)), list[str]()
        for first, *others in self._blanks:
            text = first
            for n_left, blank in zip(reversed(range(len(others))), others, strict=True):
                sentence, translation = next(pairs)
                lacks_blank = n_left and not blank and needs_blank(sentence, translation)
                text += translation + (" " if lacks_blank else blank)
            texts.append(text)
        return texts


def sentences_of(text: str, split: Split) -> list[str]:
    """Return the sentences of a text, each with the whitespace after it; the sentences, joined, are the text."""
    found = list[str]()
    for piece in split(text):
        if found and not (piece.strip() and found[-1].strip()):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def needs_blank(sentence: str, translation: str) -> bool:
    """Return whether a blank must follow ``translation``, although no blank follows ``sentence``."""
    return _is_wide(sentence) and translation != "" and not _is_wide(translation)


def _is_wide(text: str) -> bool:
    """Return whether the last letter or digit of a text has full width, as in Chinese and Japanese."""
    last = next(filter(str.isalnum, reversed(text)), text[-1:])
    return last != "" and unicodedata.east_asian_width(last) in ("W", "F")


def translate_texts(
    translator: Translator,
    texts: Sequence[str],
    split: Split,
    *,
    beam: int = SearchConfig.beam,
    alpha: float | None = SearchConfig.alpha,
    n_threads: int | None = None,
) -> list[str]:
    """Translate texts, such as paragraphs, sentence by sentence; return the translation of each text.

    ``split`` cuts a text into sentences: ``SentenceSplitter("en")``, or a function of your own.  Whitespace around
    sentences is kept.
    """
    require_lists("translate_texts", texts)
    parts = SplitTexts.of(texts, split)
    return parts.joined(translator.translate(parts.sentences, beam=beam, alpha=alpha, n_threads=n_threads))
