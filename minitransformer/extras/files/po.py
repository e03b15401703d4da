"""Gettext's PO files: messages without a translation get one, marked "fuzzy".

Source: GNU gettext's manual, "The Format of PO Files".
"""

from __future__ import annotations

import gettext
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minitransformer.data.survey import CorpusError
from minitransformer.data.units import fits, without_region
from minitransformer.extras.files.codes import UNCERTAIN, Parts, TranslatedSegment, with_textual_codes
from minitransformer.extras.files.memories import Languages
from minitransformer.extras.packages import import_extra

_PLURALS = re.compile(r"\s*nplurals\s*=\s*([1-9])\s*;\s*plural\s*=\s*([^;]+)")


class PoDocument:
    """A PO file.  Each line of a message is a segment.

    The form for the number 1 is translated from the singular, all other forms from the plural.
    """

    def __init__(self, path: Path, content: bytes, languages: Languages | None) -> None:
        polib = import_extra("files", "polib")
        try:
            encoding = polib.detect_encoding(content.decode("latin-1") + "\n")
            self.file = polib.pofile(content.decode(encoding) + "\n")  # polib reads a text without \n as a file's name
        except (OSError, ValueError, LookupError) as error:  # OSError: a line that no PO file has
            raise CorpusError(f"{path}: cannot be read as a PO file: {error}") from error
        self._line_end = "\r\n" if b"\r\n" in content else "\n"
        metadata = self.file.metadata
        metadata["Content-Type"] = "text/plain; charset=UTF-8"
        named = metadata.get("Language")
        if languages and named and not fits(named, languages[1]):
            raise CorpusError(
                f"{path}: its language is {named}, not {languages[1]}; set languages to those of the file"
            )
        if languages and not named:
            metadata["Language"] = languages[1]
        if not _PLURALS.match(metadata.get("Plural-Forms", "")) and any(each.msgid_plural for each in self.file):
            metadata["Plural-Forms"] = _plural_forms(metadata.get("Language", ""))
        elif "EXPRESSION" in metadata.get("Plural-Forms", ""):
            del metadata["Plural-Forms"]
        plurals = _PLURALS.match(metadata.get("Plural-Forms", ""))
        self.n_plurals, self.singular = (
            (int(plurals[1]), _index_of_one(plurals[2], int(plurals[1]))) if plurals else (2, 0)
        )
        self.entries = [each for each in self.file if not each.obsolete and not self._is_translated(each)]
        self.segments = [
            with_textual_codes([line])
            for entry in self.entries
            for text in self._texts(entry)
            for line in text.split("\n")
        ]

    def _is_translated(self, entry: Any) -> bool:
        return bool(entry.msgstr or any(entry.msgstr_plural.values()))

    def _texts(self, entry: Any) -> list[str]:
        if not entry.msgid_plural:
            return [entry.msgid]
        texts = [entry.msgid_plural] * self.n_plurals
        if self.n_plurals > 1:
            texts[self.singular] = entry.msgid
        return texts

    def fill(self, found: Sequence[TranslatedSegment]) -> None:
        remaining = iter(found)
        for entry in self.entries:
            lines = [[next(remaining) for _ in text.split("\n")] for text in self._texts(entry)]
            texts = ["\n".join(_text(line.parts) for line in form) for form in lines]
            if not any(texts):
                continue
            if entry.msgid_plural:
                entry.msgstr_plural = dict(enumerate(texts))
            else:
                entry.msgstr = texts[0]
            if "fuzzy" not in entry.flags:
                entry.flags.append("fuzzy")
            if UNCERTAIN not in entry.tcomment and any(line.is_uncertain for form in lines for line in form):
                entry.tcomment = "\n".join(filter(None, (entry.tcomment, UNCERTAIN)))

    def content(self) -> bytes:
        return f"{self.file}\n".replace("\n", self._line_end).encode()


def _plural_forms(language: str) -> str:
    """Return the rule of a language's plural forms, for a PO file's header; English's rule if it is not known."""
    rules = import_extra("files", "babel.messages.plurals").PLURALS
    code, english = language.replace("-", "_"), (2, "(n != 1)")
    n_forms, rule = rules.get(code) or rules.get(without_region(language), english)
    return f"nplurals={n_forms}; plural={rule};"


def _index_of_one(rule: str, n_forms: int) -> int:
    """Return the index of the plural form for the number 1; 0 if ``rule``, an expression in C, is wrong."""
    try:
        index = int(gettext.c2py(rule)(1))
    except (ValueError, ArithmeticError):
        return 0
    return index if index < n_forms else 0


def _text(parts: Parts) -> str:
    return "".join(part if isinstance(part, str) else part.content for part in parts)
