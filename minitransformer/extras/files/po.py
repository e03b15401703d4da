"""Gettext's PO files: messages without a translation get one, marked "fuzzy"; all other text stays as it is.

Source: GNU gettext's manual, "The Format of PO Files" and "Plural forms".
"""

from __future__ import annotations

import gettext
import logging
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from minitransformer.data.languages import without_region
from minitransformer.data.survey import BYTE_ORDER_MARK, CorpusError
from minitransformer.data.units import fits
from minitransformer.extras.files.editing import Edit, coded, edited, require_same_units
from minitransformer.extras.files.memories import Languages
from minitransformer.extras.files.po_reader import ESCAPED, Message, read_messages
from minitransformer.extras.files.printf import FORMATS, NUMBERED_FORMATS, takes_arguments_in_order, with_arguments
from minitransformer.extras.packages import import_extra
from minitransformer.text.codes import Code, Parts, plain_text, with_textual_codes
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Translation

_ESCAPES = str.maketrans({character: f"\\{letter}" for letter, character in ESCAPED.items()})
_CHARSET = re.compile(rb"Content-Type:[^\n\"]*?charset=([\w.:-]+)", re.IGNORECASE)
_PLURALS = re.compile(r"\s*nplurals\s*=\s*([1-9])\s*;\s*plural\s*=\s*([^;]+)")
_NUMBERS = range(1_000)  # to find the numbers of a plural form; msgfmt tries these
_log = logging.getLogger(__name__)


class PoDocument:
    """A PO file.  Each line of a message is a segment.

    The form for the number 1 is translated from the singular, all other forms from the plural.  The translated file is
    the text of the input with some edits.
    """

    def __init__(self, path: Path, content: bytes, languages: Languages | None) -> None:
        self._path, self._languages = path, languages
        self._mark = BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK) else b""
        self._original, self._text = content, _decoded(path, content.removeprefix(self._mark))
        self._line_end = "\r\n" if "\r\n" in self._text else "\n"
        messages = read_messages(path, self._text)
        self._units = [each.source for each in messages]
        self._header = next((each for each in messages if each.is_header), None)
        self._fields = self._header.translations[0] if self._header else ""
        named = _field(self._fields, "Language")
        if languages and named and not fits(named, languages[1]):
            raise CorpusError(
                f"{path}: its language is {named}, not {languages[1]}; set languages to those of the file"
            )
        has_plurals = any(each.text("msgid_plural") is not None for each in messages)
        plurals = _Plurals.of(self._plural_forms(has_plurals=has_plurals))
        self._messages = [each for each in messages if not each.is_header and not any(each.translations)]
        self._sources = [
            [[self._segment(line, each) for line in text.split("\n")] for text in plurals.sources(each)]
            for each in self._messages
        ]
        self.segments = [line for forms in self._sources for form in forms for line in form]
        self._edits = list[Edit]()

    def _segment(self, line: str, message: Message) -> Parts:
        return coded(line, f"{self._path}, line {message.line:,}")

    def _plural_forms(self, *, has_plurals: bool) -> str:
        """Return the rule of plural forms of the header, or that of the language if a message needs one."""
        named = _field(self._fields, "Plural-Forms")
        if _PLURALS.match(named) or not (has_plurals or "EXPRESSION" in named):
            return named
        language = _field(self._fields, "Language") or (self._languages[1] if self._languages else "")
        self._fields = _with_field(self._fields, "Plural-Forms", rule := _rule_of_language(language))
        return rule

    def fill(self, found: Sequence[Translation]) -> None:
        remaining, n_lost = iter(found), 0
        for message, sources in zip(self._messages, self._sources, strict=True):
            forms = [[next(remaining) for _ in form] for form in sources]
            if not any(line.parts for form in forms for line in form):
                continue
            placed = [_with_arguments(message, *each) for each in zip(sources, forms, strict=True)]
            texts = [each for each in placed if each is not None]
            if len(texts) < len(placed):
                n_lost += 1
                continue
            is_uncertain = any(each.is_uncertain for form in forms for each in form) or any(each[1] for each in texts)
            self._write(message, [text for text, _ in texts], is_uncertain=is_uncertain)
        if self._edits:
            self._write_header()
        if n_lost:
            _log.warning(
                f"{self._path}: {n_lost:,} messages stay without translation: it would lack arguments or lines, or have"
                " others"
            )

    def _write(self, message: Message, texts: Sequence[str], *, is_uncertain: bool) -> None:
        """Write the translations of a message, mark it as fuzzy, and add a comment if it is uncertain."""
        keywords = (
            [f"msgstr[{i}]" for i in range(len(texts))] if message.text("msgid_plural") is not None else ["msgstr"]
        )
        lines = [f"{keyword} {self._literals(text)}" for keyword, text in zip(keywords, texts, strict=True)]
        self._edits.append((*message.target, self._line_end.join(lines)))
        flags = next((each for each in message.comments if each[1].startswith("#,")), None)
        if is_uncertain and not any(UNCERTAIN in text for _, text in message.comments):
            others = (offset for offset, text in message.comments if text[1:2] in tuple(".:,|"))
            self._insert(next(others, message.start), f"# {UNCERTAIN}")
        if flags and "fuzzy" not in message.flags:
            end = flags[0] + len(flags[1])
            self._edits.append((end, end, ", fuzzy"))
        elif not flags:
            previous = (offset for offset, text in message.comments if text.startswith("#|"))
            self._insert(next(previous, message.start), "#, fuzzy")

    def _insert(self, offset: int, line: str) -> None:
        self._edits.append((offset, offset, line + self._line_end))

    def _literals(self, text: str) -> str:
        """Return a text as PO writes it: a literal for each line, after an empty one if there are more."""
        lines = [f'"{line.translate(_ESCAPES)}"' for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
        return self._line_end.join(lines if len(lines) == 1 else ['""', *lines])

    def _write_header(self) -> None:
        """Write the charset, and the language and the plural forms if the header lacks them; add a missing header."""
        kind = _field(self._fields, "Content-Type")
        if not re.search(r"charset=utf-?8\s*\Z", kind, re.IGNORECASE):
            self._fields = _with_field(self._fields, "Content-Type", "text/plain; charset=UTF-8")
        if self._languages and not _field(self._fields, "Language"):
            self._fields = _with_field(self._fields, "Language", self._languages[1])
        if self._header is None:
            lines = ['msgid ""', f"msgstr {self._literals(self._fields)}", "", ""]
            self._edits.insert(0, (0, 0, self._line_end.join(lines)))
        elif self._fields != self._header.translations[0]:
            self._edits.append((*self._header.target, f"msgstr {self._literals(self._fields)}"))

    def content(self) -> bytes:
        """Return the content of the file.  Raises: CorpusError if its messages are not those of the input."""
        text = edited(self._text, self._edits)
        units = [each.source for each in read_messages(self._path, text)]
        is_new = self._header is None and self._edits
        require_same_units(self._path, self._units, units[1:] if is_new else units)
        return self._mark + text.encode() if self._edits else self._original


class _Plurals(NamedTuple):
    """The plural forms of a language: their number, the form for the number 1, and whether this form is for 1 alone."""

    n_forms: int
    one: int
    is_for_one_alone: bool

    @classmethod
    def of(cls, rule: str) -> _Plurals:
        """Return the plural forms of a rule in a header; those of English if the rule is missing or wrong."""
        named = _PLURALS.match(rule)
        if not named:
            return cls(2, 0, is_for_one_alone=True)
        n_forms = int(named[1])
        try:
            index = gettext.c2py(named[2])
            forms = [int(index(n)) for n in _NUMBERS]
        except (ValueError, ArithmeticError):
            return cls(n_forms, 0, is_for_one_alone=True)
        one = forms[1] if forms[1] < n_forms else 0
        return cls(n_forms, one, is_for_one_alone=forms.count(one) == 1)

    def sources(self, message: Message) -> list[str]:
        """Return the text from which each form of a message is translated."""
        singular, plural = message.text("msgid") or "", message.text("msgid_plural")
        if plural is None:
            return [singular]
        texts = [plural] * self.n_forms
        if self.n_forms > 1 and self._may_be_singular(singular, plural):
            texts[self.one] = singular
        return texts

    def _may_be_singular(self, singular: str, plural: str) -> bool:
        """Return whether the form for 1 may be a translation of ``singular``, which may lack arguments of ``plural``.

        "one file" in place of "%d files" is wrong for a form that is also for 21.
        """
        one, several = _placeholders(singular), _placeholders(plural)
        if one == several:
            return True
        if any(map(takes_arguments_in_order, (singular, plural))) and one != several[: len(one)]:
            return False
        return self.is_for_one_alone and not Counter(one) - Counter(several)


def _placeholders(text: str) -> list[str]:
    return [part.content for part in with_textual_codes([text]) if isinstance(part, Code) and part.is_placeholder]


def _with_arguments(message: Message, source: Sequence[Parts], found: Sequence[Translation]) -> tuple[str, bool] | None:
    """Return the text of a translation, and whether arguments of printf were replaced (see ``with_arguments``).

    The result is None if a line has no translation, or if arguments are not those of the source.
    """
    lines = [list(each.parts) for each in found]
    if any(one and not other for one, other in zip(source, lines, strict=True)):
        return None
    formats = {flag for flag in message.flags if flag.endswith("-format") and not flag.startswith("no-")}
    if formats & FORMATS:
        return with_arguments(source, lines, can_be_numbered=bool(formats & NUMBERED_FORMATS))
    before, after = ("\n".join(map(plain_text, some)) for some in (source, lines))
    if formats and Counter(_placeholders(before)) != Counter(_placeholders(after)):
        return None
    return after, False


def _decoded(path: Path, content: bytes) -> str:
    named = _CHARSET.search(content)
    charset = named[1].decode() if named and named[1] not in {b"CHARSET", b"ASCII", b"US-ASCII"} else "UTF-8"
    try:
        return content.decode(charset)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CorpusError(f"{path}, line {line:,}: is not {charset} ({error.reason}); convert it to UTF-8") from error
    except (LookupError, UnicodeError) as error:
        raise CorpusError(f"{path}: its charset is {charset}, which is not known; convert it to UTF-8") from error


def _field(fields: str, name: str) -> str:
    """Return the value of a field of a header; "" if the field is missing."""
    found = re.search(rf"^{name}:[ \t]*(.*?)[ \t]*$", fields, re.MULTILINE | re.IGNORECASE)
    return found[1] if found else ""


def _with_field(fields: str, name: str, value: str) -> str:
    """Return a header in which the field ``name`` has a value; a missing field is added at the end."""
    line = f"{name}: {value}\n"
    replaced, n = re.subn(rf"^{name}:.*(?:\n|\Z)", lambda _: line, fields, count=1, flags=re.MULTILINE | re.IGNORECASE)
    return replaced if n else fields + "\n" * (fields[-1:] not in ("", "\n")) + line


def _rule_of_language(language: str) -> str:
    """Return the rule of a language's plural forms, for a PO file's header; English's rule if it is not known."""
    rules = import_extra("files", "babel.messages.plurals").PLURALS
    code, english = language.replace("-", "_"), (2, "(n != 1)")
    n_forms, rule = rules.get(code) or rules.get(without_region(language), english)
    return f"nplurals={n_forms}; plural={rule};"
