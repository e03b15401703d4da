"""A reader of gettext's PO files, which keeps the place of each message in the text.

It refuses the files that msgfmt refuses.

Source: GNU gettext's manual, "The Format of PO Files", and its grammar, po-gram-gen.y.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from minitransformer.data.survey import LONGEST_LINE, CorpusError

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+)|(?P<comment>\#[^\n]*)
    |(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)(?=[\s"]|\Z)
    |(?P<text>"(?:[^"\\\n]++|\\.)*+")""",
    re.VERBOSE,
)
_KEYWORDS = re.compile(r"(?:msgctxt )?msgid (?:msgstr |msgid_plural (?:msgstr\[\d+\] )+)")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([\da-fA-F]{1,2})|(.))", re.DOTALL)
ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}


@dataclass
class Message:
    """A message of a PO file; offsets are those of the file's text."""

    line: int
    comments: list[tuple[int, str]]  # the offset and the text of each; "#~" begins a list anew
    start: int = -1  # of its first keyword
    texts: dict[str, list[str]] = field(default_factory=dict)  # of each keyword
    target: tuple[int, int] = (-1, -1)  # from the first msgstr to the end of the last one

    def text(self, keyword: str) -> str | None:
        """Return the text of a keyword, or None if the message lacks the keyword."""
        return "".join(self.texts[keyword]) if keyword in self.texts else None

    @property
    def source(self) -> tuple[str | None, ...]:
        """The context, the text for one and the text for several, which a translation never changes."""
        return self.text("msgctxt"), self.text("msgid"), self.text("msgid_plural")

    @property
    def translations(self) -> list[str]:
        """The translations, one for each plural form."""
        return ["".join(texts) for keyword, texts in self.texts.items() if keyword.startswith("msgstr")]

    @property
    def is_header(self) -> bool:
        """True for the header, a list of fields."""
        return self.source == (None, "", None)

    @property
    def flags(self) -> set[str]:
        """The flags of the message, such as "c-format"."""
        flags = (comment[2:].split(",") for _, comment in self.comments if comment.startswith("#,"))
        return {flag.strip() for some in flags for flag in some}


class _MessageReader:
    """A reader of the messages of a PO file.  Obsolete messages are comments."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self._line, self._counted = 1, 0  # the line of the offset ``_counted``
        self.messages = list[Message]()
        self._message = Message(1, [])
        self._keyword, self._size = "", 0
        offset = 0
        while offset < len(text):
            token = _TOKEN.match(text, offset)
            if token is None:
                self._refuse(offset, _problem(text[offset : offset + 200]))
            self._add(str(token.lastgroup), token[0], offset)
            offset = token.end()
        self._end_message(offset)

    def _refuse(self, offset: int, problem: str) -> NoReturn:
        raise CorpusError(f"{self._path}, line {self._line_of(offset):,}: cannot be read as a PO file: {problem}")

    def _line_of(self, offset: int) -> int:
        self._line += self._text.count("\n", self._counted, offset)
        self._counted = offset
        return self._line

    def _add(self, kind: str, token: str, offset: int) -> None:
        message = self._message
        if kind == "comment":
            if message.texts:
                self._end_message(offset)
            comments = self._message.comments
            if token.startswith("#~"):
                comments.clear()
            else:
                comments.append((offset, token.rstrip("\r")))
        elif kind == "keyword":
            if token in {"msgctxt", "msgid"} and message.translations:
                self._end_message(offset)
            self._add_keyword(token, offset)
        elif kind == "text":
            self._add_text(token, offset)

    def _add_keyword(self, keyword: str, offset: int) -> None:
        message = self._message
        if keyword in message.texts:
            self._refuse(offset, f"the message has a second {keyword}")
        if message.start < 0:
            message.start, message.line = offset, self._line_of(offset)
        if keyword.startswith("msgstr") and message.target[0] < 0:
            message.target = offset, offset
        message.texts[keyword] = []
        self._keyword, self._size = keyword, 0

    def _add_text(self, token: str, offset: int) -> None:
        message = self._message
        if not message.texts:
            self._refuse(offset, "a text follows no keyword; expected msgid before it")
        self._size += len(token)
        if self._size > LONGEST_LINE:
            self._refuse(offset, f"a text has more than {LONGEST_LINE:,} characters; expected a few sentences")
        try:
            message.texts[self._keyword].append(_ESCAPE.sub(_unescaped, token[1:-1]))
        except ValueError as error:
            self._refuse(offset, str(error))
        if self._keyword.startswith("msgstr"):
            message.target = message.target[0], offset + len(token)

    def _end_message(self, offset: int) -> None:
        message = self._message
        if message.texts:
            if not _KEYWORDS.fullmatch("".join(f"{keyword} " for keyword in message.texts)):
                listed = ", ".join(message.texts)
                self._refuse(
                    offset, f"a message has {listed}; expected msgid and msgstr, or msgid_plural and msgstr[0]"
                )
            if empty := [keyword for keyword, texts in message.texts.items() if not texts]:
                self._refuse(offset, f"no text in quotation marks follows {empty[0]}")
            forms = [keyword for keyword in message.texts if keyword.startswith("msgstr[")]
            if forms != [f"msgstr[{i}]" for i in range(len(forms))]:
                self._refuse(offset, f"the plural forms of a message are {', '.join(forms)}; expected 0, 1, 2 …")
            self.messages.append(message)
        self._message = Message(0, [])


def _problem(rest: str) -> str:
    """Return why no token begins with ``rest``."""
    line = rest.partition("\n")[0].rstrip("\r")
    if line.startswith('"'):
        return f"the line ends within a text: {line!r:.80}; add the quotation mark at its end"
    return f"expected a keyword such as msgid, a text in quotation marks, or a comment; got {line!r:.80}"


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if letter is None:
        return chr(int(octal, 8)) if octal else chr(int(hexadecimal, 16))
    if letter not in ESCAPED:
        raise ValueError(rf"a text has \{letter}; expected \n, \t, \" or another escape of C")
    return ESCAPED[letter]


def read_messages(path: Path, text: str) -> list[Message]:
    """Return the messages of a PO file.  Raises: CorpusError naming file and line."""
    return _MessageReader(path, text).messages
