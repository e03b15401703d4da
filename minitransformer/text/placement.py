"""The placement of codes in a translation, by the alignment of its words with the words of the source.

Every code of a source is in the translation as often as in the source, and pairs are nested.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from minitransformer.text.codes import PLACEHOLDER, Code, Parts, has_letters
from minitransformer.text.translation import Links
from minitransformer.text.words import WORD

_ENDS_WORD = re.compile(r"[\w.,;:!?)\]»”’]\Z")
_DEEPEST = 100  # pairs within each other; no real text has so many
_CORE = re.compile(r"\w(?:.*\w)?", re.DOTALL)  # a word without the punctuation around it


def with_marks(parts: Parts) -> Parts:
    """Return parts in which a pair around a mark at the end of a word, such as <sup>1</sup>, is a single code.

    A mark has neither letters nor placeholders.  As text, the mark would become a part of the word before it.
    """
    if len(parts) <= 1:
        return parts
    found, i, before = Parts(), 0, ""
    while i < len(parts):
        end = _end_of_pair(parts, i)
        pair, after = parts[i : end + 1], next((part for part in parts[end + 1 :] if isinstance(part, str)), "")
        has_words = has_letters(pair) or any(isinstance(part, Code) and part.is_placeholder for part in pair)
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


@dataclass(frozen=True)
class FlatText:
    """A text without codes, and each code with its offset; ``blanks`` are the offsets of blanks that breaks became."""

    text: str
    codes: list[tuple[Code, int]]
    blanks: Collection[int] = ()

    def around(self, translation: str) -> str:
        """Return ``translation`` with the blanks at both ends of the text; the text itself if it has only blanks."""
        n_leading, core = len(self.text) - len(self.text.lstrip()), self.text.strip()
        return self.text[:n_leading] + translation + self.text[n_leading + len(core) :] if core else self.text


def without_codes(parts: Parts, *, keep_words: bool) -> FlatText:
    """Take the codes out of parts; with ``keep_words``, placeholders stay as the words that a model reads."""
    text, codes, blanks = "", list[tuple[Code, int]](), set[int]()
    read = [part if isinstance(part, str) else part.word if keep_words else "" for part in parts]
    last_text = max((i for i, words in enumerate(read) if words.strip()), default=-1)
    for i, part in enumerate(parts):
        if read[i] or isinstance(part, str):
            text += read[i]
        else:
            codes.append((part, len(text)))
            if part.is_break and i < last_text and text.strip():
                blanks.add(len(text))
                text += " "
    return FlatText(text, codes, blanks)


def with_codes(source: FlatText, translation: str, links: Links) -> tuple[Parts, bool]:
    """Put the codes of a source into its translation.

    Returns: the parts of the translation, and whether a code was placed without a word to which it belongs.
    """
    text = source.around(translation)
    if not source.codes:
        return [text] if text else [], False
    placement = _Placement(source.text, text, links)
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
        has_blank = node.start in source.blanks and not source.text[: node.start][-1:].isspace()
        if has_blank and text[end : end + 1].isspace():
            end += 1  # the code replaces the blank
    parts.append(text[end:])
    written: Parts = []
    for part in parts:
        written += part.content if isinstance(part, Code) and isinstance(part.content, tuple) else [part]
    return [part for part in written if part != ""], placement.is_uncertain


@dataclass(frozen=True, eq=False)
class _Node:
    """A single code (``end`` is None), or a pair with the codes within it; ``start``, ``stop`` are source offsets."""

    begin: Code
    start: int
    end: Code | None
    stop: int
    children: list[_Node]


def _tree(source: FlatText) -> list[_Node]:
    """Return the pairs and single codes of a source; a begin or an end without the other is a single code."""
    partner: dict[int, int] = {}
    open_codes: list[int] = []
    for i, (code, _) in enumerate(source.codes):
        if code.kind == "begin" and len(open_codes) < _DEEPEST:
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
    placeholders = [match.span() for match in PLACEHOLDER.finditer(text)]
    for match in WORD.finditer(text, len(text) - len(text.lstrip()), len(text.rstrip())):
        start, stop = match.span()
        core = _CORE.search(text, start, stop)
        cores = [span for span in placeholders if start <= span[0] and span[1] <= stop]
        cores += [core.span()] if core else []
        first, last = min((span[0] for span in cores), default=start), max((span[1] for span in cores), default=stop)
        words.append(_Word(start, stop, first, last))
    return words
