"""Terms: words of a source whose translation is given.

A model reads the source term as it is.  The words of the translation to which it is aligned are replaced by the target
term.  So the sentence around the term stays the model's, but the target term is not inflected.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

from minitransformer.config import ConfigError
from minitransformer.text.codes import Code, Parts, Span, plain_text, replaced

MOST_TERMS = 100_000
_WORD = re.compile(r"\w+|[^\w\s]")
_SIGNS = re.compile(r"\W*\Z")


class Terms:
    """Source terms with their translations.

    A term without capitals is found in any case; a term with capitals only as it is written.  Of overlapping terms the
    longest one that begins first is taken.
    Raises: ConfigError if a term is empty, or if there are more than ``MOST_TERMS``.
    """

    def __init__(self, targets: Mapping[str, str]) -> None:
        if len(targets) > MOST_TERMS:
            raise ConfigError(f"terms: expected at most {MOST_TERMS:,}; got {len(targets):,}")
        for source, target in targets.items():
            if not source.strip() or not target.strip() or "\n" in source + target:
                raise ConfigError(f"terms: expected two texts of one line; got {source!r} and {target!r}")
        self.targets = {source.strip(): target.strip() for source, target in targets.items()}

    def checksum(self) -> str:
        """Return a checksum of all terms."""
        return hashlib.blake2b(repr(sorted(self.targets.items())).encode(), digest_size=16).hexdigest()

    @cached_property
    def _by_first_word(self) -> dict[str, list[str]]:
        """The source terms that begin with a word, or with a sign, in lower case; the longest first."""
        found = defaultdict[str, list[str]](list)
        for term in sorted(self.targets, key=len, reverse=True):
            found[_WORD.findall(term)[0].lower()].append(term)
        return found

    def _find(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the offset and the source term of each term in a text."""
        end = 0
        for word in _WORD.finditer(text):
            if word.start() < end:
                continue
            for term in self._by_first_word.get(word[0].lower(), ()):
                stop = word.start() + len(term)
                written = text[word.start() : stop]
                is_same = written == term or (term == term.lower() and written.lower() == term)
                if is_same and not (term[-1].isalnum() and text[stop : stop + 1].isalnum()):
                    yield word.start(), term
                    end = stop
                    break

    def with_codes(self, parts: Parts) -> Parts:
        """Return parts in which each source term is between a pair of codes, whose begin has the target term."""
        numbers = itertools.count()

        def codes(text: str) -> Iterator[Span]:
            for start, term in self._find(text):
                name, written = f"term {next(numbers)}", text[start : start + len(term)]
                pair = TermCode(self.targets[term], "begin", name), TermCode(written, "end", name)
                yield start, start + len(term), [pair[0], written, pair[1]]

        return replaced(parts, codes) if self.targets else parts


class TermCode(Code):
    """A code before or after a source term, or the target term in its place, which a second model copies.

    The content of the begin is the target term, that of the end the source term.
    """


def with_targets(parts: Parts) -> tuple[Parts, list[str]]:
    """Replace what stands between the codes of each term by its target term.

    Returns: the parts, and the source terms to which no word of the translation was aligned.
    """
    found: Parts = []
    unplaced, inside = list[str](), list[TermCode]()
    words = signs = ""
    for part in parts:
        if isinstance(part, TermCode) and part.kind == "begin":
            inside.append(part)
            words = ""
        elif isinstance(part, TermCode) and part.kind == "end":
            term = inside.pop()
            if not words.strip():
                unplaced.append(str(part.content))
                found += [" "] * (found[-1:] != [] and plain_text(found[-1:])[-1:].isalnum())
            found.append(TermCode(term.content, is_placeholder=True))
            signs = _SIGNS.findall(str(part.content))[0]  # an alignment leaves the signs at the end of C++ behind
        elif inside and (isinstance(part, str) or (part.kind == "alone" and isinstance(part.content, str))):
            words += part if isinstance(part, str) else ""
        else:
            found.append(part.removeprefix(signs) if isinstance(part, str) else part)
            signs = ""
    return found, unplaced
