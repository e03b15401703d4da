"""Given beginnings of translations: a search must first decode a given beginning, then continues freely.

Source: Wuebker et al. 2016, "Models and inference for prefix-constrained machine translation".
Differs: the last word may be incomplete.  A tokenizer cuts "Häus" into other pieces than "Häuser", and the model was
not trained on such cuts.  So the pieces of the last word are not fixed: any pieces may spell it, or a longer word.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autograd.array import BoolArray, IntArray
from minitransformer.data.normalisation import BLANKS, words_of_line
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.search import NEVER_GENERATED
from minitransformer.model.symbols import BLANK, END

_NONE = -1  # no token is given at this step


@dataclass(frozen=True)
class Prefix:
    """The beginning of a translation.

    ``ids`` are the given tokens.  The text of the tokens after them must begin with ``rest``, in which "▁" is a blank.
    ``text`` is the beginning as the user gives it.  ``decoded`` is ``text`` encoded and decoded by the tokenizer, which
    may change characters, or lose unknown ones.
    """

    text: str
    decoded: str
    ids: Sequence[int]
    rest: str = ""

    @property
    def n_tokens(self) -> int:
        """The greatest number of tokens that spell the prefix."""
        return len(self.ids) + len(self.rest)

    def completed(self, decoded: str) -> str:
        """Replace the decoded prefix at the beginning of a translation by the prefix as the user gives it."""
        if self.text and not self.decoded:  # no character is known
            return f"{self.text} {decoded}".strip()
        return self.text + decoded[len(self.decoded) :] if decoded.startswith(self.decoded) else decoded


NO_PREFIX = Prefix("", "", ())


class Prefixer:
    """A converter of given beginnings of translations to prefixes.

    Args:
        longest: the greatest number of tokens; the rest of a longer beginning is cut off.
    """

    def __init__(self, tokenizer: Tokenizer, longest: int) -> None:
        self.tokenizer, self.longest = tokenizer, longest

    def __call__(self, text: str) -> Prefix:
        """Return the prefix of a text.  A blank at its end means that the last word is complete.

        Unknown characters have no token; ``Prefix.completed`` puts them into the translation.
        """
        words, ids = words_of_line(text), self.ids_of(text)
        if not words:
            return NO_PREFIX
        given = self.ids_of(" ".join(words[:-1]))
        last = [self.pieces[i] for i in ids[len(given) :]]
        if text[-1] in BLANKS:
            given, rest = ids, BLANK
        elif ids[: len(given)] != given or not all(last):  # pieces cross blanks, or are bytes: give all ids
            given, rest = ids, ""
        elif not "".join(last).strip(BLANK):  # the last word has only unknown characters
            given, rest = ids, BLANK
        else:
            rest = "".join(last)
        if len(ids) > self.longest:
            decoded = self.decoded(ids[: self.longest])
            return Prefix(decoded, decoded, ids[: self.longest])
        if len(given) + len(rest) > self.longest:  # too long if each character of the rest is a piece
            given, rest = ids, ""
        return Prefix(" ".join(words), self.decoded(ids), given, rest)

    def is_cut(self, text: str) -> bool:
        """Return whether a given beginning is too long, so that its end is cut off."""
        return len(self.ids_of(text)) > self.longest

    def ids_of(self, text: str) -> list[int]:
        """Return the ids of a text, without those of unknown characters."""
        return [i for i in self.tokenizer.encode_target([text])[0] if i not in NEVER_GENERATED]

    def decoded(self, ids: Sequence[int]) -> str:
        """Return the target text of token ids."""
        return self.tokenizer.decode_target([ids])[0]

    @cached_property
    def pieces(self) -> list[str]:
        """The text of each target id, with "▁" for a blank; "" for reserved ids and for single bytes of a character."""
        model, texts = self.tokenizer.target, list[str]()
        for i in range(self.tokenizer.n_target_words):
            is_text = i > END and not (model.is_control(i) or model.is_byte(i) or model.is_unused(i))
            texts.append(str(model.id_to_piece(i)) if is_text else "")
        return texts


class PrefixConstraint:
    """A constraint on the beginning of each hypothesis: the ids ``given``, then tokens that spell ``rest``.

    The log p of a translation includes the given tokens.

    Args:
        pieces: the text of each id; "" for ids that spell nothing.

    Shapes: ``given`` (rows, greatest number of given tokens) has ids, then −1; ``rest`` has one text for each row.
    """

    def __init__(self, prefixes: Sequence[Prefix], pieces: Sequence[str]) -> None:
        self.pieces, self.step = pieces, 0
        self.ids_of = {piece: i for i, piece in enumerate(pieces) if piece}
        self.by_piece = sorted(self.ids_of)
        self.given: IntArray = np.full((len(prefixes), max(len(prefix.ids) for prefix in prefixes)), _NONE, np.int64)
        for row, prefix in enumerate(prefixes):
            self.given[row, : len(prefix.ids)] = prefix.ids
        self.rest = [prefix.rest for prefix in prefixes]

    def forbidden(self) -> BoolArray:
        """Return booleans (rows, W), True for tokens that may not come next; (1, W) without True if all tokens may."""
        given = self._given_tokens()
        bound = [row for row, rest in enumerate(self.rest) if rest or given[row] != _NONE]
        forbidden: BoolArray = np.zeros((len(given) if bound else 1, len(self.pieces)), np.bool_)
        for row in bound:
            allowed = self._spelling(self.rest[row]) if given[row] == _NONE else [int(given[row])]
            forbidden[row] = bool(allowed)  # if no token fits, all are allowed
            forbidden[row, allowed] = False
        return forbidden

    def follow(self, rows: IntArray, tokens: IntArray) -> None:
        self.select(rows)
        given = self._given_tokens()
        for row, rest in enumerate(self.rest):
            if rest and given[row] == _NONE:
                piece = self.pieces[tokens[row]]
                self.rest[row] = rest[len(piece) :] if rest.startswith(piece) else ""
        self.step += 1

    def select(self, rows: IntArray) -> None:
        self.given, self.rest = self.given[rows], [self.rest[row] for row in rows]

    def _given_tokens(self) -> IntArray:
        """Return each row's given token at this step, or −1."""
        n_steps = self.given.shape[1]
        return self.given[:, self.step] if self.step < n_steps else np.full(len(self.given), _NONE)

    def _spelling(self, rest: str) -> list[int]:
        """Return the tokens with which ``rest`` begins, or that begin with ``rest``; also END after a complete word."""
        start = bisect_left(self.by_piece, rest)
        longer = itertools.takewhile(lambda piece: piece.startswith(rest), self.by_piece[start:])
        shorter = (rest[:n] for n in range(1, len(rest)))
        end = [END] if rest == BLANK else []
        return [self.ids_of[piece] for piece in (*shorter, *longer) if piece in self.ids_of] + end
