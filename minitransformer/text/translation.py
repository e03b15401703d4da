"""The translation of a text, and the notes on what was done with the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Links: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a source word and a target word, counted from 0, in the order of target words."""
CUT = "the translation was cut off at the greatest length, which max_length_factor and max_extra_tokens set"
NoteKind: TypeAlias = Literal[
    "sentences", "codes", "unknown", "capitals", "terms", "numbers", "loop", "cut", "language"
]


@dataclass(frozen=True)
class Note:
    """A note on what was done with a text: a message, and the words that it is about.

    ``is_uncertain`` asks a reader to check the translation.
    """

    kind: NoteKind
    message: str
    words: str = ""
    is_uncertain: bool = False

    def __str__(self) -> str:
        return f"{self.message}: {self.words}" if self.words else self.message


@dataclass(frozen=True)
class Translation:
    """One translation of a text: its text, log p in nats, and its score, log p divided by the length penalty.

    ``alignment`` links words of the source with words of the text, if alignments were requested.  ``is_cut`` is true if
    the translation of a sentence has the greatest length, so that it may be incomplete.
    ``parts`` are the texts and the inline codes of the translation (see ``codes``), and ``notes`` say what was done
    with the text.  A translation by the model alone has neither.
    """

    text: str
    log_probability: float
    score: float
    alignment: Links = ()
    is_cut: bool = False
    parts: Sequence[Any] = ()
    notes: tuple[Note, ...] = ()

    @property
    def is_uncertain(self) -> bool:
        """True if a note asks a reader to check the translation."""
        return any(note.is_uncertain for note in self.notes)
