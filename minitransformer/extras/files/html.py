"""HTML: the text between elements such as <p> is a segment; elements within a sentence, such as <b>, are codes.

Markup is copied unchanged.  Several blanks and line ends within a sentence become one blank.

Source: HTML Living Standard, WHATWG, "4.5 Text-level semantics" and "13.1.2 Elements".
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from typing import Literal, TypeAlias

from minitransformer.text.codes import Code, Part, Parts
from minitransformer.text.translation import Translation

_WITHIN_SENTENCES = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt",
    "u", "var", "wbr", "!--",
}  # fmt: skip
_UNTRANSLATED = {
    "code", "kbd", "math", "noscript", "pre", "samp", "script", "style", "svg", "template", "textarea", "var",
}  # fmt: skip
_WITHOUT_END = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
}  # fmt: skip
_BLANKS = re.compile(r"[ \t\n\r\f]+")
_EventKind: TypeAlias = Literal["begin", "end", "alone", "text", "other"]


class _Markup(str):
    """Markup: text that is written without escapes."""

    __slots__ = ()


@dataclass(frozen=True)
class _Event:
    """A tag, a text or another part of a page, which begins at ``offset``; ``name`` is the name of a tag's element."""

    offset: int
    kind: _EventKind
    name: str = ""
    text: str = ""
    is_untranslated: bool = False


class _EventReader(HTMLParser):
    """A parser that collects the events of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.events: list[_Event] = []
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.feed(text)
        self.close()

    def _add(self, kind: _EventKind, name: str = "", text: str = "", *, is_untranslated: bool = False) -> None:
        line, column = self.getpos()
        self.events.append(_Event(self._line_starts[line - 1] + column, kind, name, text, is_untranslated))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_marked = given.get("translate") == "no" or "notranslate" in (given.get("class") or "").split()
        self._add("alone" if tag in _WITHOUT_END else "begin", tag, is_untranslated=is_marked or tag in _UNTRANSLATED)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("alone", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text", text=data)

    def handle_comment(self, data: str) -> None:
        self._add("alone", "!--")

    def handle_decl(self, decl: str) -> None:
        self._add("other")

    def handle_pi(self, data: str) -> None:
        self._add("other")

    unknown_decl = handle_pi


class HtmlText:
    """A text in HTML, and its segments.

    Scripts, program code, and elements with translate="no" or the class "notranslate" are copied, not translated.
    """

    def __init__(self, text: str) -> None:
        self.segments: list[Parts] = []
        self._pieces: list[str | int] = []  # markup between segments, and indices of segments
        self._parts: Parts = []  # of the current segment
        self._source = ""  # of the current segment
        events = [_Event(0, "other"), *_EventReader(text).events, _Event(len(text), "other")]
        untranslated: _Event | None = None  # the begin of the element that is copied
        depth = 0  # number of open elements with the name of the copied element
        for event, after in pairwise(events):
            source = text[(untranslated or event).offset : after.offset]
            if untranslated:
                depth += (event.kind == "begin") - (event.kind == "end") if event.name == untranslated.name else 0
            elif event.is_untranslated and event.kind == "begin":
                untranslated, depth = event, 1
            if untranslated and depth and after.offset < len(text):
                continue
            self._add(untranslated or event, source, is_whole=untranslated is not None)
            untranslated = None
        self._end_segment()

    def _add(self, event: _Event, source: str, *, is_whole: bool) -> None:
        """Add a text or a tag to the current segment; end the segment at markup that cannot be within a sentence."""
        # A comment before a segment is no code of it; a comment within a sentence, as React writes it, is a code.
        is_before = event.name == "!--" and not self._parts
        if is_before or (event.kind != "text" and event.name not in _WITHIN_SENTENCES):
            self._end_segment()
            self._pieces.append(source)
            return
        self._source += source
        part: Part = _BLANKS.sub(" ", event.text)
        if event.kind != "text":
            assert event.kind != "other"
            part = Code(_Markup(source), "alone" if is_whole else event.kind, f"<{event.name}")
        self._parts.append(part)

    def _end_segment(self) -> None:
        if any(isinstance(part, str) and any(map(str.isalpha, part)) for part in self._parts):
            self._pieces.append(len(self.segments))
            self.segments.append(self._parts)
        else:
            self._pieces.append(self._source)
        self._parts, self._source = [], ""

    def translation(self, found: Sequence[Translation]) -> Translation:
        """Return the translation of the text, given that of each segment."""
        text, notes = self.filled(found), dict.fromkeys(note for each in found for note in each.notes)
        return Translation(text, 0.0, sum(each.score for each in found), notes=tuple(notes))

    def filled(self, found: Sequence[Translation]) -> str:
        """Return the text with each segment replaced by its translation."""
        texts = ["".join(map(_to_html, segment.parts)) for segment in found]
        return "".join(texts[piece] if isinstance(piece, int) else piece for piece in self._pieces)


def _to_html(part: Part) -> str:
    content = part.content if isinstance(part, Code) else part
    return content if isinstance(content, _Markup) else html.escape(content, quote=False)
