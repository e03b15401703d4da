"""Terms: words of a source whose translation is given.

A model reads the source term as it is.  The words of the translation to which it is aligned are replaced by the target
term.  So the sentence around the term stays the model's, but the target term is not inflected.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property

from minitransformer.config import ConfigError
from minitransformer.text.codes import Code, Parts, plain_text

MOST_TERMS = 100_000
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
    def _pattern(self) -> re.Pattern[str]:
        exact = (re.escape(term) for term in self.targets if term != term.lower())
        any_case = (f"(?i:{re.escape(term)})" for term in self.targets if term == term.lower())
        longest_first = sorted((*exact, *any_case), key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)")

    def with_codes(self, parts: Parts) -> Parts:
        """Return parts in which each source term is between a pair of codes, whose begin has the target term."""
        if not self.targets:
            return parts
        found: Parts = []
        for part in parts:
            if not isinstance(part, str):
                found.append(part)
                continue
            end = 0
            for match in self._pattern.finditer(part):
                target = self.targets.get(match[0]) or self.targets[match[0].lower()]
                name = f"term {len(found)}"
                found += [part[end : match.start()], TermCode(target, "begin", name), match[0]]
                found.append(TermCode(match[0], "end", name))
                end = match.end()
            found.append(part[end:])
        return [part for part in found if part != ""]


class TermCode(Code):
    """A code before or after a source term, or the target term in its place.

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
        elif isinstance(part, TermCode):
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
