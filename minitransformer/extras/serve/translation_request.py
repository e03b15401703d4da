"""Requests in LibreTranslate's words, checked, and their answers.

Source: the API of LibreTranslate 1.6, https://docs.libretranslate.com/guides/api_usage
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minitransformer.data.normalisation import BLANKS
from minitransformer.extras.serve.languages import Languages
from minitransformer.inference.translator import Translation

_EMPTY = Translation("", 0.0, 0.0)


class RequestError(Exception):
    """An error in a request: the HTTP status, and a message for whoever sent it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class Limits:
    """The limits of one request."""

    characters: int
    """Characters of all texts together."""
    alternatives: int
    """Alternatives to the best translation."""

    @property
    def body_bytes(self) -> int:
        """The greatest size of a body: JSON and forms write a character in up to 12 bytes."""
        return 12 * self.characters + 16_384


@dataclass(frozen=True)
class TranslationRequest:
    """Texts to translate."""

    texts: tuple[str, ...]
    is_list: bool
    """True if the texts came as a list; then the answer is a list, too."""
    alternatives: int = 0

    @property
    def lines(self) -> list[list[str]]:
        """The lines of each text, between line feeds; each is translated as a sentence of its own.

        The translation has as many: clients that join segments by line feeds count on it.
        """
        return [[line.strip(BLANKS) for line in text.split("\n")] for text in self.texts]


def request_of(fields: Mapping[str, Any], languages: Languages, limits: Limits) -> TranslationRequest:
    """Return what the fields of a JSON object or a form ask for.  Raises: RequestError."""
    _check_languages(fields, languages)
    if fields.get("format") not in (None, "", "text"):
        raise RequestError(400, f"{_short(fields['format'])} format is not supported: send text")
    texts = texts_of(fields, "q", limits)
    alternatives = _alternatives(fields.get("alternatives"), limits)
    return TranslationRequest(tuple(texts), isinstance(fields["q"], list), alternatives)


def texts_of(fields: Mapping[str, Any], name: str, limits: Limits) -> Sequence[str]:
    """Return the texts of a field, which holds a string or a list of strings.  Raises: RequestError."""
    given = fields.get(name)
    texts: list[Any] = given if isinstance(given, list) else [given]
    if not given:
        raise RequestError(400, f"Invalid request: missing {name} parameter")
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(400, f"Invalid request: {name} must be a string or a list of strings")
    if (size := sum(map(len, texts))) > limits.characters:
        raise RequestError(413, f"Invalid request: request ({size}) exceeds text limit ({limits.characters})")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise RequestError(400, f"Invalid request: {name} holds half of a surrogate pair") from error
    return texts


def answer_of(wanted: TranslationRequest, found: Sequence[Sequence[Sequence[Translation]]]) -> dict[str, Any]:
    """Return the answer, with the alternatives if any were asked for.

    Scores are log-probabilities divided by the length penalty, and are added over lines.

    Args:
        found: for each text, for each line, its translations, best first; none of an empty line.
    """
    ranked = [_ranked(lines, wanted.alternatives) for lines in found]
    answer: dict[str, Any] = {"translatedText": [texts[0][0] for texts in ranked]}
    if wanted.alternatives:
        answer["alternatives"] = [[text for text, _ in texts[1:]] for texts in ranked]
        answer["scores"] = [[score for _, score in texts] for texts in ranked]
    return answer if wanted.is_list else {name: values[0] for name, values in answer.items()}


def _ranked(lines: Sequence[Sequence[Translation]], alternatives: int) -> list[tuple[str, float]]:
    """Return text and score: first of the best translations of all lines, then of the second best, and so on."""
    n = min(1 + alternatives, max((len(line) for line in lines if line), default=1))
    chosen = [[line[min(k, len(line) - 1)] if line else _EMPTY for line in lines] for k in range(n)]
    return [
        ("\n".join(translation.text for translation in translations), round(sum(t.score for t in translations), 4))
        for translations in chosen
    ]


def _check_languages(fields: Mapping[str, Any], languages: Languages) -> None:
    for side, language in (("source", languages.source), ("target", languages.target)):
        given = fields.get(side)
        if not given:
            raise RequestError(400, f"Invalid request: missing {side} parameter")
        if given == "auto" and side == "source":
            raise RequestError(400, f"auto is not supported: no language is detected here; send {language.code}")
        if not isinstance(given, str) or given.lower() != language.code:
            raise RequestError(400, f"{_short(given)} is not supported: the {side} language here is {language.code}")


def _alternatives(given: Any, limits: Limits) -> int:
    try:
        number = int(given or 0)
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(400, "Invalid request: alternatives parameter is not a number") from error
    if not 0 <= number <= limits.alternatives:
        raise RequestError(400, f"Invalid request: alternatives must be between 0 and {limits.alternatives}")
    return number


def _short(given: Any) -> str:
    """Return the beginning of a value for a message."""
    return str(given)[:20].encode(errors="replace").decode()
