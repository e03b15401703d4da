"""A warning about characters of a source that the tokenizer does not know."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import BLANK, UNKNOWN

N_NAMED = 10  # characters that the warning names
_log = logging.getLogger(__name__)


class UnknownCharacters:
    """The number of lines with characters that the tokenizer does not know, and the first such characters."""

    def __init__(self) -> None:
        self.n_lines = 0
        self.first: dict[str, None] = {}

    def add(self, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
        """Count the lines that have unknown characters."""
        for line, ids in zip(lines, tokenizer.encode_source(lines), strict=True):
            if UNKNOWN not in ids:
                continue
            self.n_lines += 1
            pieces = (piece for id, piece in zip(ids, tokenizer.source_pieces(line), strict=True) if id == UNKNOWN)
            for character in "".join(pieces).replace(BLANK, ""):
                if len(self.first) <= N_NAMED:  # one more than the warning names, so that it can end with "…"
                    self.first[character] = None

    def log(self) -> None:
        """Log a warning if lines had unknown characters; then reset the count and the characters."""
        if not self.n_lines:
            return
        named = ", ".join(map(repr, list(self.first)[:N_NAMED])) + (" …" if len(self.first) > N_NAMED else "")
        lines = "1 line has" if self.n_lines == 1 else f"{self.n_lines:,} lines have"
        _log.warning(
            f"{lines} characters that the tokenizer does not know: {named}; the model reads them as unknown words"
        )
        self.n_lines, self.first = 0, {}
