"""The directions of a server: the model of each pair of languages, pairs by a third language, and languages of texts.

Source: Lui and Baldwin 2012, "langid.py: An Off-the-shelf Language Identification Tool" (the package py3langid).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from minitransformer.data.languages import normalised, without_region
from minitransformer.data.line_languages import can_tell
from minitransformer.extras.serve.languages import Language
from minitransformer.inference.translator import Translator
from minitransformer.text.codes import with_textual_codes
from minitransformer.text.road import Road, Step
from minitransformer.text.terms import Terms

SHORT_TEXT = 40  # a text of at most so many characters is of the language of all texts of its request
_LONGEST = 1_000  # characters by which a language is detected
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Direction:
    """A direction in which a model translates."""

    source: Language
    target: Language
    translator: Translator

    @property
    def tag(self) -> str | None:
        """The tag of ``target``, with which a model of several languages was trained; None for a model without it."""
        tags = self.translator.profile.targets or self.translator.tokenizer.languages
        return next((tag for tag in tags if normalised(tag) == self.target.code), None)

    def road(self, skip: Collection[Step], terms: Terms | None) -> Road:
        """Return the ``Road`` of this direction's model, with its languages, and without the steps in ``skip``."""
        profile = replace(self.translator.profile, source=self.source.code, target=self.target.code)
        return Road(self.translator.tokenizer, profile, skip, terms, self.tag)


Chain: TypeAlias = tuple[Direction, ...]
"""A direction; or two, where the target of the first is the source of the second; or none for no translation."""


class Detection(NamedTuple):
    """A language that a text may have, and its probability in percent."""

    language: Language
    confidence: float


class Directions:
    """A table of directions, the chains between its languages, and the languages of texts."""

    def __init__(self, rows: Sequence[Direction]) -> None:
        self._rows = {(row.source, row.target): row for row in rows}
        self.first = rows[0]
        self.sources = tuple(dict.fromkeys(row.source for row in rows))
        self.languages = tuple(dict.fromkeys((*self.sources, *(row.target for row in rows))))
        pairs = ((source, target) for source in self.sources for target in self.languages)
        self._chains = {pair: chain for pair in pairs if (chain := self._find(*pair))}
        self._by_code = {without_region(language.code): language for language in reversed(self.languages)}
        self._identifier = _identifier(self._by_code) if len(self.sources) > 1 else None

    def _find(self, source: Language, target: Language) -> Chain:
        if direct := self._rows.get((source, target)):
            return (direct,)
        shared = [each for each in self.languages if {(source, each), (each, target)} <= self._rows.keys()]
        if source == target or not shared:
            return ()
        pivot = min(shared, key=lambda each: without_region(each.code) != "en")
        return self._rows[source, pivot], self._rows[pivot, target]

    def chain(self, source: Language, target: Language) -> Chain:
        """Return the direction between two languages, or else two directions by a pivot; () if there is neither.

        The pivot is English, or else the first language that both directions share.
        """
        return self._chains.get((source, target), ())

    def targets(self, source: Language) -> list[Language]:
        """Return the languages to which there is a chain from ``source``."""
        return [target for start, target in self._chains if start == source]

    def pairs(self) -> str:
        """Return all pairs of languages that have a chain, as text: "en to de, de to en, de to fr by en"."""
        return ", ".join(map(_pair, sorted(self._chains.values(), key=len)))

    @property
    def can_detect(self) -> bool:
        """True if the language of a text can be detected, or if there is one source language only."""
        return len(self.sources) == 1 or self._identifier is not None

    def detect(self, text: str) -> list[Detection]:
        """Return the languages that a text may have, the most probable first; markup and addresses do not count.

        With one source language, return that language.
        """
        if self._identifier is None:
            return [Detection(self.sources[0], 100.0)]
        words = " ".join(part for part in with_textual_codes([text]) if isinstance(part, str))
        ranks = self._identifier.rank(words[:_LONGEST])
        return [Detection(self._by_code[code], round(100 * share, 1)) for code, share in ranks]

    def detect_each(self, texts: Sequence[str]) -> list[Detection]:
        """Return the most probable language of each text; up to 40 characters, that of all texts together."""
        together = self.detect("\n".join(texts))
        return [(self.detect(text) if len(text) > SHORT_TEXT else together)[0] for text in texts]


def _pair(chain: Chain) -> str:
    pivot = f" by {chain[0].target.code}" if len(chain) > 1 else ""
    return f"{chain[0].source.code} to {chain[-1].target.code}{pivot}"


def _identifier(codes: Collection[str]) -> Any:
    """Return py3langid's identifier, limited to ``codes``; None if it is not installed or knows fewer than two."""
    if not can_tell(required=False):
        _log.info("languages of texts are not detected; to detect them: pip install py3langid")
        return None
    module = import_module("py3langid.langid")
    identifier = module.LanguageIdentifier.from_model_file(module.MODEL_FILE, norm_probs=True)
    known = set(codes) & set(identifier.labels)
    if len(known) < 2:
        return None
    identifier.set_languages(known)
    return identifier
