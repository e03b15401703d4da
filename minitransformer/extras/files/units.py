"""Translation units: texts of the same meaning, each with the code of its language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

_TRADITIONAL = {"tw", "hk", "mo"}  # regions that write Chinese in the traditional script


@dataclass(frozen=True)
class Unit:
    """A translation unit: the line at which it begins, and the text of its first segment in each language."""

    line: int
    texts: Mapping[str, str]
    is_illegal: bool = False
    """True if it has characters that XML excludes; then ``texts`` is empty."""
    element: ElementTree.Element | None = None
    """The whole unit, if it was asked for."""

    def code(self, language: str) -> str | None:
        """Return the unit's code for a language, None if it has no text in it."""
        return next(iter(self._matching(language)), None)

    def codes(self, source: str, target: str) -> tuple[str | None, str | None]:
        """Return the unit's codes for a source and a target language, which are never the same code.

        The source takes no code that is exactly the target's, such as "en-GB" from "en" into "en-GB".
        """
        others = (code for code in self._matching(source) if normalised(code) != normalised(target))
        source_code = next(others, None)
        return source_code, next((code for code in self._matching(target) if code != source_code), None)

    def _matching(self, language: str) -> list[str]:
        """Return the unit's codes for a language: first the same one, then its regions, then other regions.

        So "en" also finds "en-US", and "de-AT" also "de" and "de-DE".  Scripts stay apart: "zh-TW" never finds "zh-CN".
        """
        wanted = normalised(language)
        parts, script = wanted.split("-"), _script(wanted)
        found = [code for code in self.texts if normalised(code).partition("-")[0] == parts[0]]
        same = [code for code in found if normalised(code) == wanted]
        regional = [code for code in found if normalised(code).startswith(f"{wanted}-")]
        others = [code for code in found if len(parts) > 1 and _script(normalised(code)) == script]
        return list(dict.fromkeys(same + regional + others))


def fits(code: str, language: str) -> bool:
    """Return whether a code is one for a language, as a unit's codes are."""
    return Unit(0, {code: ""}).code(language) is not None


def normalised(language: str) -> str:
    """Return the code of a language in lower case, its parts joined by hyphens."""
    return language.lower().replace("_", "-")


def _script(code: str) -> str | None:
    """Return the script that a code of a language names, or that Chinese has in its region; None for the usual one."""
    language, *parts = code.split("-")
    if language == "zh" and (_TRADITIONAL & set(parts)):
        return "hant"
    named = next((part for part in parts if len(part) == 4 and part.isalpha()), None)
    return None if (language, named) == ("zh", "hans") else named


def without_region(language: str) -> str:
    """Return the code of a language without its region: "en" for "en-US"."""
    return normalised(language).partition("-")[0]
