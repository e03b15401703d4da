"""Translation units: texts of the same meaning, each with the code of its language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from minitransformer.data.languages import normalised

_TRADITIONAL = {"tw", "hk", "mo"}  # regions that write Chinese in the traditional script


@dataclass(frozen=True)
class Unit:
    """A translation unit: the line at which it begins, and the text of its first segment in each language."""

    line: int
    texts: Mapping[str, str]
    is_illegal: bool = False
    """True if it has characters that XML excludes; then ``texts`` is empty."""
    element: ElementTree.Element | None = None
    """The XML element of the unit, if the reader was asked for elements."""

    def code(self, language: str) -> str | None:
        """Return the code of the unit's text in a language; None if the unit has no such text."""
        return next(iter(self._matching(language)), None)

    def codes(self, source: str, target: str) -> tuple[str | None, str | None]:
        """Return the codes of the unit's texts in a source and a target language; None for a missing text.

        The two codes are always different.  A code that is equal to ``target`` is never the source's: from "en" into
        "en-GB", the source is not "en-GB".
        """
        others = (code for code in self._matching(source) if normalised(code) != normalised(target))
        source_code = next(others, None)
        return source_code, next((code for code in self._matching(target) if code != source_code), None)

    def _matching(self, language: str) -> list[str]:
        """Return the unit's codes for a language: first the same code, then codes of its regions, then other regions.

        So "en" also finds "en-US", and "de-AT" finds "de" and "de-DE".  A code of another script is no match: "zh-TW"
        never finds "zh-CN".
        """
        wanted = normalised(language)
        parts, script = wanted.split("-"), _script(wanted)
        found = [code for code in self.texts if normalised(code).partition("-")[0] == parts[0]]
        same = [code for code in found if normalised(code) == wanted]
        regional = [code for code in found if normalised(code).startswith(f"{wanted}-")]
        others = [code for code in found if len(parts) > 1 and _script(normalised(code)) == script]
        return list(dict.fromkeys(same + regional + others))


def fits(code: str, language: str) -> bool:
    """Return whether a text with the code ``code`` is a text in ``language``; see ``Unit.code``."""
    return Unit(0, {code: ""}).code(language) is not None


def _script(code: str) -> str | None:
    """Return the script that a language's code names, or that Chinese has in a region; None for the usual script."""
    language, *parts = code.split("-")
    if language == "zh" and (_TRADITIONAL & set(parts)):
        return "hant"
    named = next((part for part in parts if len(part) == 4 and part.isalpha()), None)
    return None if (language, named) == ("zh", "hans") else named
