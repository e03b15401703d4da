"""The words of a text, with the punctuation around them; a character of a script without blanks is a word."""

from __future__ import annotations

import re
import unicodedata

from minitransformer.data.normalisation import BLANKS

# Thai, Lao, Burmese, Khmer, Chinese and Japanese.  Source: Unicode 16, Blocks.txt.
_WITHOUT_BLANKS = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u30fa\u30fc-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_MARKS = "".join(mark for mark in map(chr, range(0xE01, 0x17FF)) if unicodedata.category(mark) in ("Mn", "Mc"))
WORD = re.compile(f"[{_WITHOUT_BLANKS}][{_MARKS}]*[^\\w{BLANKS}]*|[^{BLANKS}{_WITHOUT_BLANKS}]+")
"""A word, or a character of a script without blanks between words, with the punctuation after it."""
