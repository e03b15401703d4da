"""Checked requests of LibreTranslate's API, and their answers.

Error messages are exactly LibreTranslate's, because programs compare them.

Source: the API of LibreTranslate 1.6, https://docs.libretranslate.com/guides/api_usage
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minitransformer.config import ConfigError
from minitransformer.extras.serve.languages import Language, Languages, in_requests
from minitransformer.text.road import STEPS, Step
from minitransformer.text.terms import Terms
from minitransformer.text.translation import Note, Translation


class RequestError(Exception):
    """An error in a request: the HTTP status, and a message for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class Limits:
    """The limits of one request."""

    characters: int
    """Greatest number of characters in all texts together."""
    alternatives: int
    """Greatest number of alternatives to the best translation."""

    @property
    def body_bytes(self) -> int:
        """Greatest number of bytes of a body: JSON and forms write a character in up to 12 bytes."""
        return 12 * self.characters + 16_384


@dataclass(frozen=True)
class RoadSettings:
    """The target language of a request, the steps that it leaves out, and its terms with their translations."""

    target: Language
    skip: tuple[Step, ...] = ()
    terms: Terms | None = None


@dataclass(frozen=True)
class TranslationRequest:
    """A request to translate texts."""

    texts: tuple[str, ...]
    is_list: bool
    """True if the request has a list of texts; then the answer has lists, too."""
    road: RoadSettings
    alternatives: int = 0
    detected: Language | None = None
    """The source language if the request asks the server to detect it, else None."""
    is_html: bool = False

    @property
    def n_best(self) -> int:
        """The number of translations of each line."""
        return 1 + self.alternatives


def request_of(fields: Mapping[str, Any], languages: Languages, limits: Limits) -> TranslationRequest:
    """Return the request in the fields of a JSON object or a form.  Raises: RequestError if a field is wrong."""
    require_fields(fields, "q", "source", "target")
    alternatives = _alternatives(fields.get("alternatives"), limits)
    texts = texts_of(fields, "q", limits)
    detected, target = check_languages(fields, languages)
    if (form := fields.get("format") or "text") not in ("text", "html"):
        raise RequestError(400, f"{_short(form)} format is not supported")
    is_list, road = isinstance(fields["q"], list), road_settings(fields, target, limits)
    return TranslationRequest(tuple(texts), is_list, road, alternatives, detected, form == "html")


def road_settings(fields: Mapping[str, Any], target: Language, limits: Limits) -> RoadSettings:
    """Return the steps of a request: ``skip`` names steps to leave out, ``as_is`` all, ``glossary`` maps terms.

    A form writes the glossary as JSON.  Raises: RequestError if a field is wrong.
    """
    if str(fields.get("as_is", "")).lower() in ("true", "1"):
        return RoadSettings(target, STEPS)
    given = fields.get("skip") or []
    skip = [each for each in STEPS if each in (given if isinstance(given, list) else str(given).split(","))]
    if len(skip) != len(given if isinstance(given, list) else str(given).split(",")):
        raise RequestError(400, f"Invalid request: skip parameter must name steps among {', '.join(STEPS)}")
    return RoadSettings(target, tuple(skip), _terms(fields.get("glossary"), limits))


def _terms(given: Any, limits: Limits) -> Terms | None:
    if not given:
        return None
    try:
        targets = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "Invalid request: glossary parameter is not JSON") from error
    if not isinstance(targets, dict) or not all(isinstance(target, str) for target in targets.values()):
        raise RequestError(400, "Invalid request: glossary parameter must map terms to their translations")
    if (size := sum(map(len, itertools.chain(*targets.items())))) > limits.characters:
        raise RequestError(400, f"Invalid request: glossary ({size}) exceeds text limit ({limits.characters})")
    try:
        return Terms(targets)
    except ConfigError as error:
        raise RequestError(400, f"Invalid request: {error}") from error


def require_fields(fields: Mapping[str, Any], *names: str) -> None:
    """Raise RequestError for the first of these fields that is missing or empty."""
    for name in names:
        if not fields.get(name):
            raise RequestError(400, f"Invalid request: missing {name} parameter")


def texts_of(fields: Mapping[str, Any], name: str, limits: Limits) -> Sequence[str]:
    """Return the texts of a field, which has a string or a list of strings.

    Raises: RequestError if the field is missing or of another type, or if the texts are too long or not valid Unicode.
    """
    require_fields(fields, name)
    given = fields[name]
    texts: list[Any] = given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(400, f"Invalid request: {name} must be a string or a list of strings")
    if (size := sum(map(len, texts))) > limits.characters:
        raise RequestError(400, f"Invalid request: request ({size}) exceeds text limit ({limits.characters})")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise RequestError(400, f"Invalid request: {name} holds half of a surrogate pair") from error
    return texts


def answer_of(wanted: TranslationRequest, found: Sequence[Sequence[Translation]]) -> dict[str, Any]:
    """Return the fields of the answer: also notes, and alternatives and scores if the request asks for alternatives.

    A score is the sum over all sentences of log-probability / length penalty.

    Args:
        found: for each text its translations, best first.
    """
    best = [texts[0] for texts in found]
    answer: dict[str, Any] = {"translatedText": [each.text for each in best]}
    if wanted.alternatives:
        answer["alternatives"] = [[each.text for each in texts[1:]] for texts in found]
        answer["scores"] = [[round(each.score, 4) for each in texts] for texts in found]
    if wanted.detected:
        answer["detectedLanguage"] = [detection(wanted.detected) for _ in found]
    if any(each.notes for each in best):
        answer["notes"] = [[_note(note) for note in each.notes] for each in best]
    if any(copied := [_copied(each) for each in best]):
        answer["copied"] = copied
    return answer if wanted.is_list else {name: values[0] for name, values in answer.items()}


def _note(note: Note) -> dict[str, Any]:
    return {"kind": note.kind, "message": str(note), "uncertain": note.is_uncertain}


def _copied(translation: Translation) -> list[list[int]]:
    """Return the first character, and the one behind the last, of each code in a translation."""
    found, end = list[list[int]](), 0
    for part in translation.parts:
        content = part if isinstance(part, str) else part.content
        start, end = end, end + len(content)
        if not isinstance(part, str) and content.strip():
            found.append([start, end])
    return found


def detection(language: Language) -> dict[str, Any]:
    """Return ``language``, the server's only source language, as the result of a detection."""
    return {"confidence": 100.0, "language": language.code}


def check_languages(fields: Mapping[str, Any], languages: Languages) -> tuple[Language | None, Language]:
    """Check the languages of a request; return the source language and the target language.

    The source language is None unless the request has "auto" for it.
    Raises: RequestError if the server does not translate between these languages.
    """
    is_auto = fields["source"] == "auto"
    source = languages.source if is_auto else _named(fields["source"], (languages.source, *languages.targets))
    target = _named(fields["target"], (*languages.targets, languages.source))
    if source != languages.source or target not in languages.targets:
        raise RequestError(
            400,
            f"{target.name} ({target.code}) is not available as a target language from {source.name} ({source.code})",
        )
    return source if is_auto else None, target


def target_of(fields: Mapping[str, Any], languages: Languages) -> Language:
    """Return the target language of a request, which may leave it out if the server has one.  Raises: RequestError."""
    if languages.others or fields.get("target"):
        require_fields(fields, "target")
        return _named(fields["target"], languages.targets)
    return languages.target


def _named(given: Any, known: Sequence[Language]) -> Language:
    """Return the language with a code, or else the first with a code like it.  Raises: RequestError if none has."""
    code = in_requests(str(given))
    same = [each for each in known if code == each.code] or [each for each in known if _is_same(code, each.code)]
    if not same:
        raise RequestError(400, f"{_short(given)} is not supported")
    return same[0]


def _is_same(code: str, other: str) -> bool:
    """Return whether two codes name the same language: they are equal, or one has no region, like en-us and en."""
    return code == other or code.startswith(f"{other}-") or other.startswith(f"{code}-")


def _alternatives(given: Any, limits: Limits) -> int:
    try:
        number = max(0, int(given or 0))
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(400, "Invalid request: alternatives parameter is not a number") from error
    if number > limits.alternatives:
        raise RequestError(400, f"Invalid request: alternatives parameter must be <= {limits.alternatives}")
    return number


def _short(given: Any) -> str:
    """Return the beginning of a value for a message."""
    return str(given)[:20].encode(errors="replace").decode()
