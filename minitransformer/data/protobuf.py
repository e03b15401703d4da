"""The part of protobuf's wire format that is needed to append and replace fields of sentencepiece models.

Source: https://protobuf.dev/programming-guides/encoding/.  A field that is appended to a message adds an element if
the field is repeated, and replaces the value if it is single.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VARINT, _BYTES, _FLOAT = 0, 2, 5  # wire types


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field whose value is text, bytes or a message."""
    return _key(number, _BYTES) + _varint(len(value)) + value


def integer_field(number: int, value: int) -> bytes:
    """Encode a field whose value is a whole number ≥ 0."""
    return _key(number, _VARINT) + _varint(value)


def float_field(number: int, value: float) -> bytes:
    """Encode a field whose value is a number in float32."""
    return _key(number, _FLOAT) + struct.pack("<f", value)


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number of each field of a message, its bytes, and the bytes of its value."""
    end = 0
    while end < len(message):
        start = end
        key, value = _read_varint(message, start)
        if key & 7 == _BYTES:
            length, value = _read_varint(message, value)
            end = value + length
        else:
            end = value + 4 if key & 7 == _FLOAT else _read_varint(message, value)[1]
        yield key >> 3, message[start:end], message[value:end]


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(number: int) -> bytes:
    """Encode a number in groups of 7 bits, lowest first; all bytes but the last have their highest bit set."""
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def _read_varint(message: bytes, start: int) -> tuple[int, int]:
    """Return the number that begins at the index ``start``, and the index after the number."""
    end = next(i for i in range(start, len(message)) if message[i] < 128) + 1
    return sum((byte & 127) << 7 * i for i, byte in enumerate(message[start:end])), end
