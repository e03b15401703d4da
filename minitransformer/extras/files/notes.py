"""The notes on translated lines: warnings of what is uncertain and, if wanted, a line for each note."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minitransformer.data.survey import Found
from minitransformer.text.translation import Translation

N_NAMED = 10  # words that a warning names
_log = logging.getLogger(__name__)


class NoteLog:
    """The uncertain notes on lines, by their messages; with ``verbose``, all notes are logged at once."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self._found: dict[str, tuple[Found, dict[str, None]]] = {}

    def add(self, found: Sequence[Sequence[Translation]], n_before: int) -> None:
        """Add the notes on the best translation of each line; ``n_before`` lines come before the first."""
        for number, translations in enumerate(found, n_before + 1):
            for note in translations[0].notes if translations else ():
                if self.verbose:
                    _log.info(f"line {number:,}: {note}")
                elif note.is_uncertain:
                    lines, words = self._found.setdefault(note.message, (Found(), {}))
                    lines.add(number)
                    words |= dict.fromkeys(filter(None, note.words.split(", ")))

    def log(self) -> None:
        """Log a warning for each message, with the first lines and words; then forget them."""
        for message, (lines, words) in self._found.items():
            named = ", ".join(list(words)[:N_NAMED]) + (" …" if len(words) > N_NAMED else "")
            name = "line" if lines.count == 1 else f"{lines.count:,} lines:"
            _log.warning(f"{name} {lines.locations}: {message}{f' ({named})' if named else ''}")
        self._found = {}
