"""Checked requests of LibreTranslate's API, and their answers.

Error messages are LibreTranslate's, because programs compare them; those on languages also name the server's pairs.

Source: the API of LibreTranslate 1.6, https://docs.libretranslate.com/guides/api_usage
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minitransformer.config import ConfigError
from minitransformer.data.languages import normalised
from minitransformer.extras.serve.directions import Chain, Detection, Direction, Directions
from minitransformer.extras.serve.languages import Language
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
    """The greatest sizes that a request may have."""

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
    """The steps of the road that a request leaves out, and its terms with their translations."""

    skip: tuple[Step, ...] = ()
    terms: Terms | None = None


@dataclass(frozen=True)
class TranslationRequest:
    """A request to translate texts."""

    texts: tuple[str, ...]
    is_list: bool
    """True if the request has a list of texts; then the answer has lists, too."""
    source: Language | None
    """None if the request asks the server to detect it."""
    target: Language
    road: RoadSettings = RoadSettings()
    alternatives: int = 0
    is_html: bool = False

    @property
    def n_best(self) -> int:
        """The number of translations of each line."""
        return 1 + self.alternatives


def request_of(fields: Mapping[str, Any], directions: Directions, limits: Limits) -> TranslationRequest:
    """Return the request in the fields of a JSON object or a form.  Raises: RequestError if a field is wrong."""
    require_fields(fields, "q", "source", "target")
    alternatives = _alternatives(fields.get("alternatives"), limits)
    texts = texts_of(fields, "q", limits)
    source, target = check_languages(fields, directions)
    if (form := fields.get("format") or "text") not in ("text", "html"):
        raise RequestError(400, f"{_short(form)} format is not supported")
    is_list, road = isinstance(fields["q"], list), road_settings(fields, limits)
    return TranslationRequest(tuple(texts), is_list, source, target, road, alternatives, form == "html")


def road_settings(fields: Mapping[str, Any], limits: Limits) -> RoadSettings:
    """Return the steps of a request: ``skip`` names steps to leave out, ``as_is`` all, ``glossary`` maps terms.

    A form writes the glossary as JSON.  Raises: RequestError if a field is wrong.
    """
    if str(fields.get("as_is", "")).lower() in ("true", "1"):
        return RoadSettings(STEPS)
    given = fields.get("skip") or []
    named = given if isinstance(given, list) else str(given).split(",")
    skip = [each for each in STEPS if each in named]
    if len(skip) != len(named):
        raise RequestError(400, f"Invalid request: skip parameter must name steps among {', '.join(STEPS)}")
    return RoadSettings(tuple(skip), _terms(fields.get("glossary"), limits))


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


def answer_of(
    wanted: TranslationRequest,
    found: Sequence[Sequence[Translation]],
    detections: Sequence[Detection],
    chains: Sequence[Chain],
) -> dict[str, Any]:
    """Return the fields of the answer: also notes, pivots, and alternatives and scores if alternatives are requested.

    A score is the sum over all sentences of log-probability / length penalty.

    Args:
        found: for each text its translations, best first.
        detections: the language of each text; [] if the request names it.
        chains: the directions in which each text was translated.
    """
    best = [texts[0] for texts in found]
    answer: dict[str, Any] = {"translatedText": [each.text for each in best]}
    if wanted.alternatives:
        answer["alternatives"] = [[each.text for each in texts[1:]] for texts in found]
        answer["scores"] = [[round(each.score, 4) for each in texts] for texts in found]
    if detections:
        answer["detectedLanguage"] = list(map(detection_fields, detections))
    if any(pivots := list(map(pivot_code, chains))):
        answer["pivot"] = pivots
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


def detection_fields(detection: Detection) -> dict[str, Any]:
    """Return the fields that an answer has for a detection of the language."""
    return {"confidence": detection.confidence, "language": detection.language.code}


def pivot_code(chain: Chain) -> str | None:
    """Return the code of the third language by which a chain leads, or None."""
    return chain[0].target.code if len(chain) > 1 else None


def check_languages(fields: Mapping[str, Any], directions: Directions) -> tuple[Language | None, Language]:
    """Return the source language and the target language of a request; the source is None for "auto".

    Raises: RequestError if the server does not translate between these languages, or cannot detect languages.
    """
    is_auto = fields["source"] == "auto"
    if is_auto and not directions.can_detect:
        raise RequestError(400, "auto is not supported: this server cannot detect languages; name the source")
    sources = directions.sources if is_auto else (_named(fields["source"], directions.languages, directions),)
    targets = [target for source in sources for target in directions.targets(source)]
    target = _named(fields["target"], (*targets, *directions.languages), directions)
    if target not in targets:
        raise unavailable(sources[0], target, directions)
    return None if is_auto else sources[0], target


def unavailable(source: Language, target: Language, directions: Directions) -> RequestError:
    """Return the error that the server does not translate from ``source`` to ``target``."""
    pair = f"{target.name} ({target.code}) is not available as a target language from {source.name} ({source.code})"
    return RequestError(400, f"{pair}; this server translates {directions.pairs()}")


def direction_of(fields: Mapping[str, Any], directions: Directions) -> Direction:
    """Return the direction of a request, which may leave out a language if the server has no other.

    Raises: RequestError if a language is missing or unknown, or if no model translates directly between them.
    """
    source = directions.sources[0]
    if len(directions.sources) > 1:
        require_fields(fields, "source")
        source = _named(fields["source"], directions.languages, directions)
    targets = directions.targets(source)
    if len(targets) != 1 or fields.get("target"):
        require_fields(fields, "target")
        targets = [_named(fields["target"], (*targets, *directions.languages), directions)]
    chain = directions.chain(source, targets[0])
    if not chain:
        raise unavailable(source, targets[0], directions)
    if pivot := pivot_code(chain):
        raise RequestError(400, f"Invalid request: two models translate, by {pivot}; ask for each of them")
    return chain[0]


def _named(given: Any, known: Sequence[Language], directions: Directions) -> Language:
    """Return the language with a code, or else the first with a code like it.  Raises: RequestError if none has."""
    code = normalised(str(given))
    same = [each for each in known if code == each.code] or [each for each in known if _is_same(code, each.code)]
    if not same:
        raise RequestError(400, f"{_short(given)} is not supported; this server translates {directions.pairs()}")
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
