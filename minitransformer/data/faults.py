"""Faults that the text of a pair shows: a copy, mojibake, markup, a repetition, other numbers; the script of a line."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from minitransformer.config.data import Fault
from minitransformer.data.numbers import changed_numbers

LEAST_CHARACTERS, LEAST_WORDS = 10, 5  # of a repetition
# Bytes 80 to BF of UTF-8 that were read as Latin-1, or as Windows-1252, which has other characters for 80 to 9F.
_CP1252 = "".join(bytes([code]).decode("cp1252", "ignore") for code in range(0x80, 0xA0))
_NEXT = f"[\x80-\xbf{_CP1252}]"
# The same without the quotes, dashes and blanks that may follow a letter such as Ä at the end of a word.
_NEXT_IN_WORD = f"[\x80-\x84\x86-\x9f\xa1-\xaa\xac-\xba\xbc-\xbf{re.sub('[«»“”‘’–—…‹›]', '', _CP1252)}]"
_SUSPECT = re.compile(f"[Â-ô]{_NEXT}")
MOJIBAKE = re.compile(
    f"[ÂÃ]{_NEXT}"  # U+0080 to U+00FF, and the first character of all that was misread twice
    f"|[ÄÅ]{_NEXT_IN_WORD}"  # letters of Central Europe and Turkish
    f"|â[€\x80‚\x82„\x84]{_NEXT}"  # quotes, dashes, currencies and the trademark
    f"|ð[Ÿ\x9f]{_NEXT}{{2}}"  # emoji
    f"|(?:[Ä-ß]{_NEXT}|[à-ï]{_NEXT}{{2}}){{3}}"  # a word in Cyrillic, Greek, Hebrew, Arabic, Chinese …
)
MARKUP = re.compile(
    r"&(?:amp;)*(?:#\d+|#x[\da-f]+|[a-z]{2,}\d{0,2});|</?[a-z][a-z\d]*(?:[ \t][^<>\n]*)?/?>", re.IGNORECASE
)
_LATIN = re.compile("[A-Za-zÀ-ÖØ-öø-ʯ]")
# Characters of other scripts: neither Latin letters, nor punctuation, symbols and emoji, which all scripts share.
_OTHER = re.compile(
    "[\u0370-\u1dff\u1f00-\u1fff\u2c00-\u2dff\u3005-\ufdff\ufe70-\ufeff\uff66-\uffef\U00010000-\U0001efff\U00020000-\U000fffff]"
)
_DIGITS = re.compile(r"\d+")
_scripts = dict[str, str]()  # of letters that were seen


def faults_of(source: str, target: str) -> Iterator[Fault]:
    """Yield the names of the faults of a pair, in the order of ``FAULTS``, except those that depend on other pairs."""
    if source == target:
        yield "copied"
    both = f"{source}\n{target}"
    if has_mojibake(both):
        yield "mojibake"
    if has_markup(both):
        yield "markup"
    if is_repetition(source) or is_repetition(target):
        yield "repetition"
    if has_other_numbers(source, target):
        yield "numbers"


def has_mojibake(text: str) -> bool:
    """Return whether a text certainly has UTF-8 that was read as Latin-1 or Windows-1252, once or twice: Ã¼ for ü.

    Sequences that may also be the end of a word with a quote, such as Ä“, do not count.
    """
    return not text.isascii() and _SUSPECT.search(text) is not None and MOJIBAKE.search(text) is not None


def has_markup(text: str) -> bool:
    """Return whether a text has an entity or a tag of HTML or XML, such as &nbsp; or <br>."""
    return ("&" in text or "<" in text) and MARKUP.search(text) is not None


def is_repetition(line: str) -> bool:
    """Return whether a line is one character at least ten times, or one word at least five times, and nothing else."""
    line = line.strip()
    character, word = line[:1], line.partition(" ")[0]
    if line.endswith(character) and line.count(character) + line.count(" ") >= max(LEAST_CHARACTERS, len(line)):
        return True
    return line.endswith(word) and line.count(word) >= LEAST_WORDS and len(set(line.split())) == 1


def has_other_numbers(source: str, target: str) -> bool:
    """Return whether each side has a number in digits that the other side lacks.

    One side alone does not count, because a translation may write a number in words, or in another unit.
    """
    numbers, others = _DIGITS.findall(source), _DIGITS.findall(target)
    if not numbers or not others or "".join(numbers) == "".join(others):  # equal also for 500,000 and 500 000
        return False
    return bool(changed_numbers(source, target) and changed_numbers(target, source))


def script_of(line: str) -> str | None:
    """Return the script of most letters of a line, as in the names of Unicode's characters; None without letters."""
    if line.isascii() or not _OTHER.search(line):
        return "LATIN" if _LATIN.search(line) else None
    counts = Counter(script for script in map(_script, line) if script)
    return counts.most_common(1)[0][0] if counts else None


def _script(character: str) -> str:
    """Return the script of a letter, such as "LATIN" or "CJK"; "" for other characters."""
    script = _scripts.get(character)
    if script is None:
        script = unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
        _scripts[character] = script
    return script
