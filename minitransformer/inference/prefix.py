"""Given beginnings of translations: a search is forced to decode them, then continues freely.

Source: Wuebker et al. 2016, "Models and inference for prefix-constrained machine translation".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autograd.array import BoolArray, IntArray
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.search import NEVER_GENERATED, Constraint
from minitransformer.model.batch import Ids
from minitransformer.system.errors import UserError

_NONE = -1  # no token is given at this step


class PrefixError(UserError, ValueError):
    """An error: the beginnings of translations do not belong to the lines of the input."""


@dataclass(frozen=True)
class Prefix:
    """The beginning of a translation: as it is given, as ids, and as these ids are decoded.

    The tokenizer may normalise or not know some of its characters; the translation has it as it is given.
    """

    text: str
    ids: Sequence[int]
    decoded: str

    def completed(self, decoded: str) -> str:
        """Replace the decoded prefix at the beginning of a translation by the prefix as it is given."""
        return self.text + decoded[len(self.decoded) :] if decoded.startswith(self.decoded) else decoded


@dataclass(frozen=True)
class Prefixes:
    """The beginnings of the translations of an input: one for each line, or one for all lines.

    ``path`` is the file with one for each line; None if there is one for all.
    """

    texts: Sequence[str]
    path: Path | None = None

    def of_lines(self, n_before: int, n_lines: int) -> list[str]:
        """Return the beginnings for ``n_lines`` lines after ``n_before``.  Raises: PrefixError if there are fewer."""
        if self.path is None:
            return list(self.texts) * n_lines
        self.require_lines(max(n_before + n_lines, len(self.texts)))
        return list(self.texts[n_before : n_before + n_lines])

    def require_lines(self, n_lines: int) -> None:
        """Raise PrefixError if there is one beginning for each line, but the input has another number of lines."""
        if self.path is not None and len(self.texts) != n_lines:
            more_or_fewer = "more" if len(self.texts) > n_lines else "fewer"
            raise PrefixError(
                f"{self.path}: has {len(self.texts):,} lines, {more_or_fewer} than the input; give one line for each"
                " line of the input, an empty one where nothing is given"
            )

    def checksum(self) -> str:
        """Return a checksum of all beginnings."""
        text = "\n".join(["all" if self.path is None else "each", *self.texts])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


NO_PREFIX = Prefix("", (), "")


def prefixes_of(tokenizer: Tokenizer, texts: Sequence[str], longest: int) -> list[Prefix]:
    """Return prefixes of at most ``longest`` tokens; the rest is cut off.

    Unknown characters have no token.
    """
    of_lines = [known(ids) for ids in tokenizer.encode_target(texts)]
    cut = [ids[:longest] for ids in of_lines]
    decoded = tokenizer.decode_target(cut)
    return [
        Prefix(text if len(ids) <= longest else begun, some, begun)
        for text, ids, some, begun in zip(texts, of_lines, cut, decoded, strict=True)
    ]


def known(ids: Sequence[int]) -> list[int]:
    """Return the ids that a search can generate: those of known characters."""
    return [i for i in ids if i not in NEVER_GENERATED]


class PrefixConstraint:
    """The beginning of each hypothesis: until it is complete, only its next token is allowed.

    The log p of a translation includes the given tokens.

    Shapes: ``given`` (rows, longest prefix), token ids, then −1.
    """

    def __init__(self, prefixes: Sequence[Ids], n_words: int) -> None:
        self.n_words, self.step = n_words, 0
        self.given: IntArray = np.full((len(prefixes), max(map(len, prefixes), default=0)), _NONE, np.int64)
        for row, prefix in enumerate(prefixes):
            self.given[row, : len(prefix)] = prefix

    def forbidden(self) -> BoolArray:
        """Return the tokens that may not come next, as booleans (rows, W); (1, W) if no token is given any more."""
        given = self.given[:, self.step] if self.step < self.given.shape[1] else np.empty(0, np.int64)
        rows = np.flatnonzero(given != _NONE)
        forbidden: BoolArray = np.zeros((len(given) if len(rows) else 1, self.n_words), np.bool_)
        forbidden[rows] = True
        forbidden[rows, given[rows]] = False
        return forbidden

    def follow(self, rows: IntArray, tokens: IntArray) -> None:
        """Select these rows, and append to each its token."""
        self.select(rows)
        self.step += 1

    def select(self, rows: IntArray) -> None:
        """Select these rows."""
        self.given = self.given[rows]


def constraint_of_prefixes(
    prefixes: Sequence[Ids] | None, n_words: int, other: Constraint | None = None
) -> tuple[Constraint | None, IntArray]:
    """Return the constraint of a search with these prefixes, and the number of given tokens of each.

    Without prefixes the constraint is ``other``.  Raises: ValueError for prefixes with another constraint.
    """
    if not prefixes or not any(map(len, prefixes)):
        return other, np.zeros(1, np.int64)
    if other is not None:
        raise ValueError("search: expected prefixes or a constraint; got both")
    return PrefixConstraint(prefixes, n_words), np.array([len(prefix) for prefix in prefixes])
