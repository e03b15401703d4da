"""The languages of the lines of a side, by the n-grams of py3langid.

Source: Lui and Baldwin 2012, langid.py: An Off-the-shelf Language Identification Tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from minitransformer.config.checks import ConfigError

LEAST_SHARE = 0.1  # of a side's lines: a rarer language is not one of the side
LEAST_MARGIN = 20.0  # nats: a line of another language is so much more probable in it
_LONGEST = 120  # characters of a line that are compared


def can_tell(required: bool) -> bool:
    """Return whether py3langid is installed.  Raises: ConfigError if it is required and not installed."""
    is_installed = find_spec("py3langid") is not None
    if required and not is_installed:
        raise ConfigError(
            'data.filter has "language", which needs the package py3langid: install it (pip install py3langid), or take'
            ' "language" out of data.filter'
        )
    return is_installed


class SideLanguages:
    """The languages of one side of a text: those of at least a tenth of a sample of its lines."""

    def __init__(self, sample: Sequence[str]) -> None:
        self._langid: Any = import_module("py3langid")
        self._sample = {line: self._classify(line) for line in sample}
        counts = Counter(self._sample[line][0] for line in sample)
        self._own = {language for language, n in counts.items() if n >= LEAST_SHARE * len(sample)}

    def is_other(self, line: str) -> bool:
        """Return whether a line is much more probable in another language than in those of the side.

        This is never so if no language has a tenth of the lines, because then py3langid may not know the side's.
        """
        language, score = self._sample.get(line) or self._classify(line)
        if language in self._own or not self._own:
            return False
        scores = dict(self._langid.rank(line[:_LONGEST]))
        return bool(score - max(scores[own] for own in self._own) > LEAST_MARGIN)

    def _classify(self, line: str) -> tuple[str, float]:
        """Return the most probable language of a line, and its score in nats."""
        language, score = self._langid.classify(line[:_LONGEST])
        return language, score
