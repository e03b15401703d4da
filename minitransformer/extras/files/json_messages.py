"""JSON files of messages, as web programs have them: each string that is a value is translated, keys never.

All else stays as it is, byte for byte.  JSON has no place for a mark: the log names the lines to check.

Source: RFC 8259, "The JavaScript Object Notation (JSON) Data Interchange Format".
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from minitransformer.data.survey import BYTE_ORDER_MARK, CorpusError, Found
from minitransformer.extras.files.editing import Edit, coded, edited, log_uncertain, require_same_units
from minitransformer.extras.files.memories import Languages
from minitransformer.text.codes import Parts
from minitransformer.text.translation import Translation

_STRING = re.compile(r'(?P<text>"(?:[^"\\]++|\\.)*+")(?P<key>\s*:)?')


class JsonDocument:
    """A JSON file of messages.  Each line of a string is a segment."""

    def __init__(self, path: Path, content: bytes, languages: Languages | None = None) -> None:
        self._path = path
        self._mark = BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK) else b""
        self._text = content.removeprefix(self._mark).decode("utf-8")
        try:
            json.loads(self._text)
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path}, line {error.lineno:,}: cannot be read as JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:  # a number of over 4,300 digits; arrays within each other
            raise CorpusError(f"{path}: cannot be read as JSON: {error}") from error
        self._values = [match for match in _STRING.finditer(self._text) if not match["key"]]
        self._lines = list(_line_numbers(self._text, self._values))
        self._sources = list(map(self._segments, self._values, self._lines))
        self.segments = [line for lines in self._sources for line in lines]
        self._edits = list[Edit]()

    def _segments(self, value: re.Match[str], number: int) -> list[Parts]:
        where, text = f"{self._path}, line {number:,}", json.loads(value["text"])
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise CorpusError(f"{where}: a text has one half of a pair of surrogates; write the character")
        return [coded(line, where) for line in text.split("\n")]

    def fill(self, found: Sequence[Translation]) -> None:
        remaining, uncertain = iter(found), Found()
        has_escapes = "\\u" in self._text and self._text.isascii()
        for value, sources, number in zip(self._values, self._sources, self._lines, strict=True):
            lines = [next(remaining) for _ in sources]
            text = "\n".join(line.text for line in lines)
            if text != json.loads(value["text"]):
                self._edits.append((*value.span("text"), json.dumps(text, ensure_ascii=has_escapes)))
                if any(line.is_uncertain for line in lines):
                    uncertain.add(number)
        log_uncertain(self._path, uncertain)

    def content(self) -> bytes:
        """Return the content of the file.  Raises: CorpusError if its keys are not those of the input."""
        text = edited(self._text, self._edits)
        require_same_units(self._path, _around_values(self._text), _around_values(text))
        return self._mark + text.encode()


def _line_numbers(text: str, values: Sequence[re.Match[str]]) -> Iterator[int]:
    """Yield the number of the line at which each value begins."""
    number, counted = 1, 0
    for value in values:
        number += text.count("\n", counted, value.start())
        counted = value.start()
        yield number


def _around_values(text: str) -> list[str]:
    """Return the pieces of a JSON text between the strings that are values: all that a translation must not change."""
    values = (match.span("text") for match in _STRING.finditer(text) if not match["key"])
    ends = [0, *itertools.chain.from_iterable(values), len(text)]
    return [text[begin:end] for begin, end in zip(ends[::2], ends[1::2], strict=True)]
