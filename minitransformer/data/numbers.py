"""Numbers in digits: those of a source that its translation lacks, and those that it has in their place."""

from __future__ import annotations

import re
from collections import Counter

_NUMBER = re.compile(r"\d(?:[\d.,:'’\u00a0\u202f]*\d)?")
_DIGIT = re.compile(r"\d")
_SMALL = 12  # numbers up to here may be written in words


def changed_numbers(source: str, translation: str) -> list[str]:
    """Return the numbers of a source whose digits its translation lacks.

    Separators of thousands and of decimals may differ.  A number up to twelve may be missing, because a translation may
    write it in words, unless the translation has a number that the source lacks.
    """
    if not _DIGIT.search(source):
        return []
    wanted, found = (Counter(map(_digits, _NUMBER.findall(text))) for text in (source, translation))
    missing, others = wanted - found, found - wanted
    lacking = {digits for digits in missing if others or len(digits) > 2 or int(digits) > _SMALL}
    return [number for number in dict.fromkeys(_NUMBER.findall(source)) if _digits(number) in lacking]


def _digits(number: str) -> str:
    """Return the digits of a number in ASCII: Arabic, Persian, Hindi … have digits of their own."""
    digits = re.sub(r"\D", "", number)
    return digits if digits.isascii() else "".join(str(int(digit)) for digit in digits)
