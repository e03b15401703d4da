"""YAML as Marian writes it: one level of keys, each with a scalar or a list of scalars.

Source: https://yaml.org/spec/1.2.2/, sections 5.7 (escape sequences), 7.3 (scalars) and 8.2 (lists and mappings).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Scalar = str | int | float | bool

_NAMED = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v", "N": "\x85",
    "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")


def read_vocabulary(text: str) -> dict[str, int]:
    """Return the id of each word.  Raises: ValueError for a line without an id."""
    return {_unquoted(word): int(number) for word, number in _entries(text)}


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield word and id of each line; of a long word two lines, "? word" and ": id"."""
    word = None
    for line in text.split("\n"):
        if line.startswith("? "):
            word = line[2:]
        elif line.strip():
            before, _, number = line.rstrip("\r").rpartition(":")
            yield (before if word is None else word), number
            word = None


def read_settings(text: str) -> dict[str, Scalar | list[Scalar]]:
    """Return the settings of a file; lists are "- item" lines or [a, b].  Raises: ValueError for any other line."""
    settings: dict[str, Scalar | list[Scalar]] = {}
    items: list[Scalar] = []
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if line.lstrip().startswith("- "):
            items.append(_scalar(line.lstrip()[2:].strip()))
        elif colon and line[0] not in " #":
            value = value.strip()
            is_list = value.startswith("[") and value.endswith("]")
            items = [_scalar(item.strip()) for item in value[1:-1].split(",") if item.strip()] if is_list else []
            settings[_unquoted(key)] = _scalar(value) if value and not is_list else items
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"not a setting: {line!r}")
    return settings


def _scalar(text: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return _unquoted(text)


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _ESCAPE.sub(_unescaped, text[1:-1])
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else _NAMED.get(match[4], match[4])
