"""Codes within a text: markup, placeholders and addresses, which a translation has as often as its source.

Codes of formatting (<b>, XML elements) are never read by a model.  Placeholders ({0}, %s, &amp;, addresses) stand for
words, so a model reads them, or a stand-in, at first.

Source: ISO C, "fprintf" and "strftime"; the manuals of gettext ("Format Flags"), Python ("Format String Syntax"), Qt
("QString::arg") and ICU ("MessageFormat").
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from minitransformer.data.tmx import is_break

_TAG = re.compile(r"<(?P<close>/)?(?P<name>[A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(?P<alone>/)?>")
_CONVERSION = r"[-+\#0']*+(?:\d++|\*(?:\d+\$)?)?(?:\.(?:\d++|\*(?:\d+\$)?)?)?(?:hh|ll|[hljztqL])?[a-zA-Z@]"
PLACEHOLDER = re.compile(
    r"""(?:https?://|www\.)[^\s<>"']*[^\s<>"'.,;:!?)\]]"""  # addresses
    r"|(?<![\w.%+-])[A-Za-z0-9._%+-]++@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
    r"|(?<![\w@#.])[@\#]\w*[^\W\d_]\w*"  # mentions and hashtags
    r"|&(?:\w+|\#\d+|\#x[\da-fA-F]+);"  # entities
    r"|[$%\#]?\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"  # {0}, {name!r}, ${name}, {{name}}, plurals of ICU
    r"|%[A-Za-z_]\w+%(?![\w%])"  # %name%
    rf"|%\(\w+\){_CONVERSION}|(?<!(?<!%)\d)%(?:L\d\d?|(?:\d+\$)?{_CONVERSION}|\d\d?(?!\d))|%%"  # not 20%discount
    r"|\$t\([^()]*\)|\$[A-Za-z_]\w*"  # $t(key) of i18next
    r"|\\[nrt](?![a-z])|\t+|\n+"
)

_MAY_HAVE_CODES = re.compile(r"[<&{%$@#\\\t\n]|https?://|www\.")  # for speed: the beginning of any code
Kind: TypeAlias = Literal["begin", "end", "alone"]


@dataclass(frozen=True, eq=False)
class Code:
    """A code of a segment.

    ``content`` is written to the translation: a text, an XML element, or the parts of a mark (see ``placement``).
    The begin and the end of a pair have the same ``name``.  ``is_break`` is true for a code that stands for a blank,
    such as <br/>.  ``stand_in`` is the text that a model reads at first in place of a placeholder; None for the
    placeholder's content.  ``origin`` is the code of the segment that this code stands for, if it is another object.
    """

    content: Any
    kind: Kind = "alone"
    name: str = ""
    is_break: bool = False
    is_placeholder: bool = False
    stand_in: str | None = None
    origin: Code | None = None

    @property
    def word(self) -> str:
        """The text that a model reads at first in place of this code; "" for none."""
        if not self.is_placeholder:
            return ""
        return str(self.content) if self.stand_in is None else self.stand_in


Part: TypeAlias = str | Code
Parts: TypeAlias = list[Part]


Span: TypeAlias = tuple[int, int, Sequence[Part]]  # begin and end of a piece of a text, and the parts in its place


def with_textual_codes(parts: Sequence[Part]) -> Parts:
    """Return parts, with a Code for each tag, placeholder, tab and line end within their texts."""
    return replaced(parts, _textual_codes)


def replaced(parts: Sequence[Part], find: Callable[[str], Iterable[Span]]) -> Parts:
    """Return parts, with other parts in place of the spans that ``find`` yields of each text; drop empty texts.

    Spans of a text are in its order, and do not overlap.
    """
    found: Parts = []
    for part in parts:
        if isinstance(part, Code):
            found.append(part)
            continue
        end = 0
        for begin, stop, others in find(part):
            found += [part[end:begin], *others]
            end = stop
        found.append(part[end:])
    return [part for part in found if part != ""]


def _textual_codes(text: str) -> Iterator[Span]:
    if not _MAY_HAVE_CODES.search(text):
        return
    end = 0
    matches = sorted((*_TAG.finditer(text), *PLACEHOLDER.finditer(text)), key=lambda match: match.start())
    for match in matches:
        if match.start() < end:  # a placeholder within a tag is a part of it
            continue
        end = match.end()
        if match.re is _TAG:
            kind: Kind = "alone" if match["alone"] else "end" if match["close"] else "begin"
            code = Code(match[0], kind, match["name"], is_break=is_break(match[0]))
        else:
            code = Code(match[0], is_break=match[0].isspace(), is_placeholder=not match[0].isspace())
        yield *match.span(), [code]


def text_of(part: Part) -> str:
    """Return the text of a part; the text of a code is "", except for placeholders, tabs and line ends."""
    if isinstance(part, str):
        return part
    is_text = part.is_placeholder or (isinstance(part.content, str) and part.content.isspace())
    return part.content if is_text else ""


def cut_parts(parts: Sequence[Part], pieces: Sequence[str]) -> list[Parts]:
    """Cut the parts of a segment at the beginnings of ``pieces``, but not within a pair or a code.

    Args:
        pieces: texts that, joined, are the text of the parts.
    """
    starts = deque(itertools.accumulate(map(len, pieces[:-1])))
    found, position, n_open = list[Parts]([[]]), 0, 0
    for part in parts:
        while starts and starts[0] < position:
            starts.popleft()
        if isinstance(part, Code):
            if starts and starts[0] == position and not n_open and part.kind != "end" and found[-1]:
                starts.popleft()
                found.append([])
            n_open = max(0, n_open + (part.kind == "begin") - (part.kind == "end"))
            found[-1].append(part)
        else:
            end = 0
            while starts and starts[0] < position + len(part) and not n_open:
                start, end = end, starts.popleft() - position
                found[-1] += [part[start:end]] if end > start else []
                found.append([])
            found[-1].append(part[end:])
        position += len(text_of(part))
    return [piece for piece in found if piece]


def has_letters(parts: Sequence[Part]) -> bool:
    """Return whether the texts of parts have a letter."""
    return any(isinstance(part, str) and any(map(str.isalpha, part)) for part in parts)


def plain_text(parts: Sequence[Part]) -> str:
    """Return texts and codes as one text, without XML elements."""
    if len(parts) == 1 and isinstance(parts[0], str):  # most sentences
        return parts[0]
    contents = (part if isinstance(part, str) else part.content for part in parts)
    return "".join(content for content in contents if isinstance(content, str))
