"""Codes and placeholders within segments: removed before translation, and inserted again by the word alignment.

Codes of formatting (<b>, XML elements) are always removed.  Placeholders ({0}, %s, &amp;, addresses) stay in the text
at first, because they stand for words.  If a translation has other placeholders than its source, the source is
translated again without placeholders.  So every code of a source is in the translation as often as in the source, and
pairs are nested.
A segment whose text has no letters is copied.

Source: ISO C, "fprintf" and "strftime"; the manuals of gettext ("Format Flags"), Python ("Format String Syntax"), Qt
("QString::arg") and ICU ("MessageFormat").
"""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from minitransformer.data.tmx import is_break
from minitransformer.extras.attention import WORD
from minitransformer.inference.translator import Links, Translation

UNCERTAIN = "codes were placed without a word to which they belong: check them"

_TAG = re.compile(r"<(?P<close>/)?(?P<name>[A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(?P<alone>/)?>")
_CONVERSION = r"[-+\#0']*+(?:\d++|\*(?:\d+\$)?)?(?:\.(?:\d++|\*(?:\d+\$)?)?)?(?:hh|ll|[hljztqL])?[a-zA-Z@]"
_PLACEHOLDER = re.compile(
    r"""(?:https?://|www\.)[^\s<>"']*[^\s<>"'.,;:!?)\]]"""  # addresses
    r"|(?<![\w.%+-])[A-Za-z0-9._%+-]++@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
    r"|&(?:\w+|\#\d+|\#x[\da-fA-F]+);"  # entities
    r"|[$%\#]?\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"  # {0}, {name!r}, ${name}, {{name}}, plurals of ICU
    r"|%[A-Za-z_]\w+%(?![\w%])"  # %name%
    rf"|%\(\w+\){_CONVERSION}|(?<!(?<!%)\d)%(?:L\d\d?|(?:\d+\$)?{_CONVERSION}|\d\d?(?!\d))|%%"  # not 20%discount
    r"|\$t\([^()]*\)|\$[A-Za-z_]\w*"  # $t(key) of i18next
    r"|\\[nrt](?![a-z])|[\t\n]+"
)
_ENDS_WORD = re.compile(r"[\w.,;:!?)\]»”’]\Z")
_LINE_END, _NOWHERE = re.compile(r"(?<!\s)\s*\n\s*"), re.compile("(?!)")  # XML may break lines anywhere
_CORE = re.compile(r"\w(?:.*\w)?", re.DOTALL)  # a word without the punctuation around it

Kind: TypeAlias = Literal["begin", "end", "alone"]


@dataclass(frozen=True, eq=False)
class Code:
    """A code of a segment.

    ``content`` is written to the translation: a text, an XML element, or the parts of a mark (see ``_with_marks``).
    The begin and the end of a pair have the same ``name``.  ``is_break`` is true for a code that stands for a blank,
    such as <br/>.
    """

    content: Any
    kind: Kind = "alone"
    name: str = ""
    is_break: bool = False
    is_placeholder: bool = False


Part: TypeAlias = str | Code
Parts: TypeAlias = list[Part]
Translate: TypeAlias = Callable[[Sequence[str]], Sequence[Translation]]
"""A function that translates texts and aligns their words; the translation of an empty text is empty."""


@dataclass(frozen=True)
class TranslatedSegment:
    """The parts of a translation; ``is_uncertain`` if a code was placed without a word to which the code belongs."""

    parts: Parts
    is_uncertain: bool
    translation: Translation


def joined(found: Sequence[TranslatedSegment]) -> TranslatedSegment:
    """Join the translations of the pieces of a segment; return the translation of the segment."""
    if len(found) == 1:
        return found[0]
    parts, translations = [part for one in found for part in one.parts], [one.translation for one in found]
    translation = Translation(
        " ".join(each.text for each in translations if each.text),
        sum(each.log_probability for each in translations),
        sum(each.score for each in translations),
    )
    return TranslatedSegment(parts, any(one.is_uncertain for one in found), translation)


def with_textual_codes(parts: Sequence[Part]) -> Parts:
    """Return parts, with a Code for each tag, placeholder, tab and line end within their texts."""
    found: Parts = []
    for part in parts:
        found.extend([part] if isinstance(part, Code) else _textual_codes(part))
    return found


def _textual_codes(text: str) -> Iterator[Part]:
    end = 0
    matches = sorted((*_TAG.finditer(text), *_PLACEHOLDER.finditer(text)), key=lambda match: match.start())
    for match in matches:
        if match.start() < end:  # a placeholder within a tag is a part of it
            continue
        if match.start() > end:
            yield text[end : match.start()]
        end = match.end()
        if match.re is _TAG:
            kind: Kind = "alone" if match["alone"] else "end" if match["close"] else "begin"
            yield Code(match[0], kind, match["name"], is_break=is_break(match[0]))
        else:
            yield Code(match[0], is_break=match[0].isspace(), is_placeholder=not match[0].isspace())
    if end < len(text):
        yield text[end:]


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


def translate_segments(segments: Sequence[Parts], translate: Translate) -> list[TranslatedSegment]:
    """Translate segments with their codes; keep blanks at both ends of a segment."""
    steps = translation_steps(segments)
    texts, done = next_texts(steps)
    while done is None:
        texts, done = next_texts(steps, translate(texts))
    return done


TranslationSteps: TypeAlias = Generator[list[str], Sequence[Translation], list[TranslatedSegment]]
"""A generator that yields texts, receives the texts' translations by ``send``, and returns the translated segments."""


def next_texts(
    steps: TranslationSteps, found: Sequence[Translation] | None = None
) -> tuple[list[str], list[TranslatedSegment] | None]:
    """Send ``found``, the translations of the last texts, to ``steps``; in the first call, ``found`` is None.

    Returns: the next texts, and None; at the end an empty list, and the translated segments.
    """
    try:
        return (next(steps) if found is None else steps.send(found)), None
    except StopIteration as end:
        return [], end.value


def translation_steps(segments: Sequence[Parts]) -> TranslationSteps:
    """Yield the texts of segments with their placeholders, and then some texts again, without placeholders.

    The second time, a text is empty if its first translation has the placeholders of the source.
    """
    worded = [_with_marks(parts) if _has_letters(parts) else [] for parts in segments]
    flat = [_without_codes(parts, keep_placeholders=True) for parts in worded]
    found = yield [one.text.strip() for one in flat]
    translated = list(map(_with_codes, flat, found))
    kept = list(map(_has_placeholders, worded, found))
    if not all(kept):
        again = [_without_codes(parts, keep_placeholders=False) for parts in worded]
        found = yield ["" if keeps else one.text.strip() for keeps, one in zip(kept, again, strict=True)]
        for i in (i for i, keeps in enumerate(kept) if not keeps):
            translated[i] = _with_codes(again[i], found[i])
    return [one if words else _copy(parts) for one, words, parts in zip(translated, worded, segments, strict=True)]


def _has_letters(parts: Parts) -> bool:
    """Return whether the texts have a letter; digits, signs and codes alone are copied, not translated."""
    return any(map(str.isalpha, "".join(part for part in parts if isinstance(part, str))))


def _copy(parts: Parts) -> TranslatedSegment:
    text = _without_codes(parts, keep_placeholders=True).text.strip()
    return TranslatedSegment(list(parts), False, Translation(text, 0.0, 0.0))


def _with_marks(parts: Parts) -> Parts:
    """Return parts in which a pair around a mark at the end of a word, such as <sup>1</sup>, is a single code.

    A mark has neither letters nor placeholders.  As text, the mark would become a part of the word before it.
    """
    found, i, before = Parts(), 0, ""
    while i < len(parts):
        end = _end_of_pair(parts, i)
        pair, after = parts[i : end + 1], next((part for part in parts[end + 1 :] if isinstance(part, str)), "")
        has_words = _has_letters(pair) or any(isinstance(part, Code) and part.is_placeholder for part in pair)
        if end > i and _ENDS_WORD.search(before) and not has_words and not after[:1].isalnum():
            found.append(Code(tuple(pair)))
            i = end + 1
            continue
        part = parts[i]
        found.append(part)
        if isinstance(part, str) or part.is_placeholder or part.is_break:
            before = part if isinstance(part, str) else " " if part.is_break else part.content
        i += 1
    return found


def _end_of_pair(parts: Parts, first: int) -> int:
    """Return the index of the end of the pair that begins at ``first``; ``first`` if no pair begins there."""
    begin, depth = parts[first], 0
    if isinstance(begin, Code) and begin.kind == "begin":
        for i, part in enumerate(parts[first:], first):
            if isinstance(part, Code) and part.name == begin.name:
                depth += (part.kind == "begin") - (part.kind == "end")
                if not depth:
                    return i
    return first


def _has_placeholders(parts: Parts, translation: Translation) -> bool:
    """Return whether a translation has each placeholder of its source as often as the source, and no others."""
    wanted = Counter(part.content for part in parts if isinstance(part, Code) and part.is_placeholder)
    found = Counter(
        part.content for part in _textual_codes(translation.text) if isinstance(part, Code) and part.is_placeholder
    )
    return found == wanted


@dataclass(frozen=True)
class _Flat:
    """A text without codes, and each code with its offset in this text."""

    text: str
    codes: list[tuple[Code, int]]

    def around(self, translation: str) -> str:
        """Return ``translation`` with the blanks at both ends of the text; the text itself if it has only blanks."""
        n_leading, core = len(self.text) - len(self.text.lstrip()), self.text.strip()
        return self.text[:n_leading] + translation + self.text[n_leading + len(core) :] if core else self.text


def _without_codes(parts: Parts, *, keep_placeholders: bool) -> _Flat:
    text, codes = "", list[tuple[Code, int]]()
    last_text = max((i for i, part in enumerate(parts) if isinstance(part, str) and part.strip()), default=-1)
    for i, part in enumerate(parts):
        if isinstance(part, str):
            text += part
        elif part.is_placeholder and keep_placeholders:
            text += part.content
        else:
            codes.append((part, len(text)))
            text += " " * (part.is_break and i < last_text and text.strip() != "")
    return _Flat(text, codes)


def _with_codes(source: _Flat, translation: Translation) -> TranslatedSegment:
    text = source.around(translation.text)
    placement = _Placement(source.text, text, translation.alignment)
    placed = list[tuple[int, _Node, bool]]()
    placement.place(_tree(source), 0, len(text), placed)
    parts: Parts = []
    end = 0
    for offset, node, is_end in placed:
        parts.append(text[end:offset])
        end = offset
        code = node.end if is_end and node.end else node.begin
        before, after = placement.blanks(node, offset) if node.end is None else ("", "")
        parts += [before, code, after]
        if code.is_break and not source.text[: node.start][-1:].isspace() and text[end : end + 1].isspace():
            end += 1  # the code replaces the blank
    parts.append(text[end:])
    written: Parts = []
    for part in parts:
        written += part.content if isinstance(part, Code) and isinstance(part.content, tuple) else [part]
    return TranslatedSegment([part for part in written if part != ""], placement.is_uncertain, translation)


@dataclass(frozen=True, eq=False)
class _Node:
    """A single code (``end`` is None), or a pair with the codes within it; ``start``, ``stop`` are source offsets."""

    begin: Code
    start: int
    end: Code | None
    stop: int
    children: list[_Node]


def _tree(source: _Flat) -> list[_Node]:
    """Return the pairs and single codes of a source; a begin or an end without the other is a single code."""
    partner: dict[int, int] = {}
    open_codes: list[int] = []
    for i, (code, _) in enumerate(source.codes):
        if code.kind == "begin":
            open_codes.append(i)
        elif code.kind == "end":
            same = [j for j in open_codes if source.codes[j][0].name == code.name]
            if same:
                partner[same[-1]] = i
                del open_codes[open_codes.index(same[-1]) :]  # later begins have no end

    def nodes(first: int, last: int) -> list[_Node]:
        found, i = list[_Node](), first
        while i < last:
            code, offset = source.codes[i]
            if i in partner:
                end, stop = source.codes[partner[i]]
                found.append(_Node(code, offset, end, stop, nodes(i + 1, partner[i])))
                i = partner[i]
            else:
                found.append(_Node(code, offset, None, offset, []))
            i += 1
        return found

    return nodes(0, len(source.codes))


class _Placement:
    """The placement of a source's inline codes at offsets in its translation, the target."""

    def __init__(self, source: str, target: str, links: Links) -> None:
        self.source, self.target = source, target
        self.source_words, self.target_words = _words(source), _words(target)
        self.linked: dict[int, list[int]] = {}
        for i, j in links:
            self.linked.setdefault(i, []).append(j)
        self.is_uncertain = False

    def place(self, nodes: Sequence[_Node], first: int, last: int, placed: list[tuple[int, _Node, bool]]) -> None:
        """Add the codes of ``nodes`` to ``placed``: (offset in the target, node, whether the code is the pair's end).

        All offsets are within [first, last].
        """
        spans = sorted(((*self._span(node), i) for i, node in enumerate(nodes)), key=lambda span: (span[0], span[2]))
        self.is_uncertain |= any(a[1] > b[0] for a, b in itertools.pairwise(spans)) or any(
            span[0] < first or span[1] > last for span in spans
        )
        for wanted_start, wanted_stop, i in spans:
            start = min(max(wanted_start, first), last)
            stop = min(max(wanted_stop, start), last)
            placed.append((start, nodes[i], False))
            if nodes[i].end:
                self.place(nodes[i].children, start, stop, placed)
                placed.append((stop, nodes[i], True))
            first = stop

    def blanks(self, node: _Node, offset: int) -> tuple[str, str]:
        """Return the blanks that must be added before and after a single code, because the source has blanks there."""
        before = self.source[node.start - 1 : node.start].isspace() and not self.target[:offset][-1:].isspace()
        after = self.source[node.start : node.start + 1].isspace() and self.target[offset : offset + 1].isalnum()
        return " " * (before and offset > 0), " " * after

    def _span(self, node: _Node) -> tuple[int, int]:
        """Return the offsets of a pair's begin and end in the target; for a single code, both are the code's offset."""
        words = [i for i, word in enumerate(self.source_words) if word.last > node.start and word.first < node.stop]
        if node.end is None or not words:
            return self._offset(node.start), self._offset(node.stop)
        if self.source_words[words[0]].first < node.start or self.source_words[words[-1]].last > node.stop:
            start, stop = self._within(words[0], node.start), self._within(words[-1], node.stop)
            if start is not None and stop is not None:
                return start, stop
            self.is_uncertain = True  # a pair around a part of a word
        targets = [j for i in words for j in self.linked.get(i, ())]
        if not targets:
            self.is_uncertain = True
            offset = self._offset(node.start)
            return offset, offset
        first, last = self.target_words[min(targets)], self.target_words[max(targets)]
        begun, ended = self.source_words[words[0]], self.source_words[words[-1]]
        return (
            first.start if node.start <= begun.start < begun.first else first.first,
            last.stop if node.stop >= ended.stop > ended.last else last.last,  # with the punctuation, as in the source
        )

    def _within(self, i: int, offset: int) -> int | None:
        """Return the target offset for an offset within source word ``i``, or None if no linked word is the same."""
        word = self.source_words[i]
        for linked in (self.target_words[j] for j in self.linked.get(i, ())):
            if self.target[linked.first : linked.last] == self.source[word.first : word.last]:
                return linked.first + offset - word.first
        return None

    def _offset(self, offset: int) -> int:
        """Return the offset in the target of a code that has the offset ``offset`` in the source."""
        left = [i for i, word in enumerate(self.source_words) if word.first < offset]
        right = [i for i, word in enumerate(self.source_words) if word.first >= offset]
        if not left and (not right or offset <= self.source_words[right[0]].start):
            return min(offset, len(self.target))  # both begin with the same blanks
        if not right and offset >= self.source_words[left[-1]].stop:
            return max(0, len(self.target) - (len(self.source) - offset))  # both end with the same blanks
        if left and self.source_words[left[-1]].last > offset:
            within = self._within(left[-1], offset)
            if within is not None:
                return within
            self.is_uncertain = True
        is_next = (
            bool(right) and not self.source[offset - 1 : offset].strip() and self.source[offset : offset + 1].strip()
        )
        if right and (is_next or not left):
            found = [j for i in right[:1] for j in self.linked.get(i, ())]
            if found:
                return self.target_words[min(found)].first
        for i in reversed(left):
            if found := self.linked.get(i, []):
                self.is_uncertain |= i != left[-1]
                word, is_behind = self.target_words[max(found)], self.source_words[i].stop == offset
                return word.stop if is_behind else word.last
        self.is_uncertain = True
        return len(self.target)


@dataclass(frozen=True)
class _Word:
    """The offsets of a word in a text, with punctuation (``start``, ``stop``) and without (``first``, ``last``)."""

    start: int
    stop: int
    first: int
    last: int


def _words(text: str) -> list[_Word]:
    words = []
    placeholders = [match.span() for match in _PLACEHOLDER.finditer(text)]
    for match in WORD.finditer(text, len(text) - len(text.lstrip()), len(text.rstrip())):
        start, stop = match.span()
        core = _CORE.search(text, start, stop)
        cores = [span for span in placeholders if start <= span[0] and span[1] <= stop]
        cores += [core.span()] if core else []
        first, last = min((span[0] for span in cores), default=start), max((span[1] for span in cores), default=stop)
        words.append(_Word(start, stop, first, last))
    return words


_PAIR_ELEMENTS = {"hi", "g", "mrk", "pc"}  # elements of TMX and XLIFF with text between their tags
_BEGIN_ELEMENTS, _END_ELEMENTS = {"bpt", "bx", "sc", "sm"}, {"ept", "ex", "ec", "em"}
_PARTNER_ATTRIBUTES = ("i", "rid", "startRef", "id")  # attributes with the name of an element's pair


def parts_of(element: Any, *, keeps_lines: bool = False) -> Parts:
    """Return the parts of a segment in TMX or XLIFF: its text, and its elements as codes.

    An element whose text must not be translated is one code.  With ``keeps_lines`` false, line ends become blanks.
    """
    line_end = _NOWHERE if keeps_lines else _LINE_END
    parts: Parts = [line_end.sub(" ", element.text or "")]
    for child in element:
        name = _local_name(child)
        if name in _PAIR_ELEMENTS and not _is_untranslated(child):
            pair = f"{name} {id(child)}"
            parts += [Code(child, "begin", pair), *parts_of(child, keeps_lines=keeps_lines), Code(child, "end", pair)]
        else:
            kind: Kind = "begin" if name in _BEGIN_ELEMENTS else "end" if name in _END_ELEMENTS else "alone"
            partner = next((child.get(key) for key in _PARTNER_ATTRIBUTES if child.get(key)), "")
            breaks = name != "" and is_break("".join(child.itertext()), child.get("type") or child.get("ctype"))
            parts.append(Code(child, kind, f"code {partner}", is_break=breaks))
        parts.append(line_end.sub(" ", child.tail or ""))
    return with_textual_codes([part for part in parts if part != ""])


def _is_untranslated(element: Any) -> bool:
    """Return whether an element is marked as not to be translated: translate="no", or mtype="protected" in XLIFF 1."""
    return bool(element.get("translate") == "no" or element.get("mtype") == "protected")


def write_parts(parts: Sequence[Part], element: Any) -> None:
    """Replace the content of a segment's XML element by parts; XML elements in codes are copied."""
    for child in list(element):
        element.remove(child)
    element.text, within = None, [element]
    for part in parts:
        code = part if isinstance(part, Code) else Code(part)
        if isinstance(code.content, str):
            _add_text(within[-1], code.content)
        elif _local_name(code.content) in _PAIR_ELEMENTS and code.kind == "end":
            within.pop()
        elif _local_name(code.content) in _PAIR_ELEMENTS and code.kind == "begin":
            child = element.makeelement(code.content.tag, dict(code.content.attrib))
            within[-1].append(child)
            within.append(child)
        else:
            child = copy.deepcopy(code.content)
            child.tail = None
            within[-1].append(child)


def _local_name(element: Any) -> str:
    """Return the name of an element without its namespace; "" for a comment or an instruction."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _add_text(element: Any, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
