"""The binary file of CTranslate2 models, ``model.bin``: versions 2 to 6 are read, version 6 is written.

All numbers are little-endian.  A string is its length in 2 bytes, the final NUL counted, and its bytes.

=====================  =================================================================================
version                4 bytes
name of the model      string, such as "TransformerSpec"
revision of the model  4 bytes
number of variables    4 bytes; then of each: name, rank (1 byte), dimensions (4 bytes each), and the data
data, version ≥ 4      type (1 byte), number of bytes (4 bytes), values
data, version < 4      bytes of a value (1 byte), number of values (4 bytes), values
number of aliases      4 bytes, version ≥ 3; then of each: alias, name of the variable
=====================  =================================================================================

Source: CTranslate2 4.8.5, ``python/ctranslate2/specs/model_spec.py`` and ``src/models/model.cc``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from minitransformer.convert.foreign_files import read_bytes
from minitransformer.convert.parts import ConversionError
from minitransformer.model.storage import Storage
from minitransformer.system.files import atomic_write

Array: TypeAlias = np.ndarray[Any, Any]

OLDEST_VERSION, NEWEST_VERSION = 2, 6
_FIRST_VERSION_WITH_ALIASES, _FIRST_VERSION_WITH_TYPES = 3, 4
_TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_TYPE_OF_SIZE = {1: "int8", 2: "int16", 4: "float32"}  # before version 4
_NUMPY_TYPES = {"float32": "<f4", "int8": "<i1", "int16": "<i2", "int32": "<i4", "float16": "<f2"}
_SCALE = "_scale"
_OLD_INT16_SCALE = 1_000.0  # of int16 variables whose scale is not in the file
_MAX_INT8 = np.float32(127)
_MOST_AXES = 4
_ZERO_POINT = "_zero"  # only 4-bit weights (AWQ) have it


@dataclass(frozen=True)
class ModelFile:
    """The content of a ``model.bin``: the name and the revision of the model, and its variables as they are stored."""

    model: str
    revision: int
    variables: Mapping[str, Array]


def read_model_file(path: Path) -> ModelFile:
    """Read a ``model.bin``; an alias becomes a variable with the same array.

    Raises: ConversionError if the file is truncated or corrupt, of an unknown version, or has variables in bfloat16.
    """
    reader = _Reader(path, read_bytes(path))
    version = reader.number("I", "the version")
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise ConversionError(
            f"{path}: expected version {OLDEST_VERSION} to {NEWEST_VERSION} of CTranslate2's format, got {version};"
            " convert the original model again with a CTranslate2 that writes one of these"
        )
    model, revision = reader.string("the model's name"), reader.number("I", "the revision")
    variables: dict[str, Array] = {}
    for _ in range(reader.number("I", "the number of variables")):
        name = reader.string("a variable's name")
        variables[name] = reader.array(name, version)
    if version >= _FIRST_VERSION_WITH_ALIASES:
        for alias, name in reader.aliases():
            if name in variables:
                variables[alias] = variables[name]
                if name + _SCALE in variables:
                    variables[alias + _SCALE] = variables[name + _SCALE]
    reader.expect_end()
    return ModelFile(model, revision, variables)


class _Reader:
    """The bytes of a file, read from front to back; every length is compared with what is left of the file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self._path, self._data, self._position = path, data, 0

    def _take(self, n_bytes: int, what: str) -> int:
        """Return the position of the next ``n_bytes`` bytes, and move behind them."""
        begin, left = self._position, len(self._data) - self._position
        if n_bytes > left:
            raise self._corrupt(f"{what} needs {n_bytes:,} bytes, but {left:,} are left of the file")
        self._position += n_bytes
        return begin

    def _corrupt(self, problem: str) -> ConversionError:
        return ConversionError(
            f"{self._path}: at byte {self._position:,}, {problem}: the file is truncated or corrupt; copy it again"
        )

    def number(self, kind: str, what: str) -> int:
        begin = self._take(struct.calcsize(f"<{kind}"), what)
        return int(struct.unpack_from(f"<{kind}", self._data, begin)[0])

    def string(self, what: str) -> str:
        length = self.number("H", what)
        begin = self._take(length, what)
        try:
            return self._data[begin : begin + length].removesuffix(b"\0").decode()
        except UnicodeDecodeError as error:
            raise self._corrupt(f"{what} is not UTF-8") from error

    def array(self, name: str, version: int) -> Array:
        shape = tuple(self.number("I", name) for _ in range(self.number("B", name)))
        kind = self.number("B", name)
        if version >= _FIRST_VERSION_WITH_TYPES:
            type_name = _TYPES[kind] if kind < len(_TYPES) else f"number {kind}"
            n_bytes = self.number("I", name)
        else:
            type_name = _TYPE_OF_SIZE.get(kind, f"of {kind} bytes")
            n_bytes = self.number("I", name) * kind
        if type_name not in _NUMPY_TYPES:
            raise ConversionError(
                f"{self._path}: {name} is of type {type_name}; expected one of {', '.join(_NUMPY_TYPES)}:"
                " convert the original model again with another quantization, such as float32"
            )
        dtype = np.dtype(_NUMPY_TYPES[type_name])
        if math.prod(shape) * dtype.itemsize != n_bytes or not n_bytes or len(shape) > _MOST_AXES:
            raise self._corrupt(f"{name} has shape {shape} of {type_name}, but {n_bytes:,} bytes")
        begin = self._take(n_bytes, name)
        return np.frombuffer(self._data, dtype, math.prod(shape), begin).reshape(shape)

    def aliases(self) -> Iterator[tuple[str, str]]:
        for _ in range(self.number("I", "the number of aliases")):
            yield self.string("an alias"), self.string("the variable of an alias")

    def expect_end(self) -> None:
        if left := len(self._data) - self._position:
            raise self._corrupt(f"{left:,} bytes are left over")


def dequantised(path: Path, variables: Mapping[str, Array]) -> dict[str, Array]:
    """Return all variables with at least one axis in float32, without their scales; others as they are.

    A quantised value is the value × scale, rounded.  int8 has a scale for each row, int16 one for the whole array.
    Raises: ConversionError if an int8 variable has no scale, or scales that are not positive numbers.
    """
    found: dict[str, Array] = {}
    for name, stored in variables.items():
        if name.endswith(_ZERO_POINT) and name.removesuffix(_ZERO_POINT) in variables:
            raise ConversionError(
                f"{path}: {name.removesuffix(_ZERO_POINT)} has 4-bit values (AWQ), which are not read; convert the"
                " original model again with another quantization, such as float32"
            )
        if name.endswith(_SCALE) and name.removesuffix(_SCALE) in variables:
            continue
        if stored.ndim and stored.dtype.kind == "i":
            found[name] = _dequantised(path, name, stored, variables.get(name + _SCALE))
        else:
            found[name] = stored.astype(np.float32, copy=False) if stored.ndim else stored
    return found


def _dequantised(path: Path, name: str, stored: Array, scale: Array | None) -> Array:
    if scale is None and stored.dtype.itemsize == 2:
        scale = np.array(_OLD_INT16_SCALE)
    fits = scale is not None and scale.dtype.kind == "f" and scale.shape in ((), stored.shape[:1])
    if scale is None or not fits or not (np.isfinite(scale) & (scale > 0)).all():
        got = "none" if scale is None else f"an array {scale.shape} of {scale.dtype}"
        raise ConversionError(
            f"{path}: {name} is quantised ({stored.dtype}): expected positive scales, one for each of its"
            f" {len(stored)} rows or one for all, in {name}{_SCALE}; got {got}.  Convert the original model again"
        )
    columns = scale.astype(np.float32).reshape(-1, *[1] * (stored.ndim - 1))
    return stored.astype(np.float32) / columns


def write_model_file(path: Path, file: ModelFile, aliases: Mapping[str, str]) -> None:
    """Write a ``model.bin`` of version 6.

    Args:
        aliases: further names of variables, by name.

    Raises: CheckpointError if the file system refuses.
    """
    with atomic_write(path) as temporary, temporary.open("wb") as out:
        out.write(struct.pack("<I", NEWEST_VERSION) + _string(file.model) + struct.pack("<I", file.revision))
        out.write(struct.pack("<I", len(file.variables)))
        for name, values in sorted(file.variables.items()):
            dimensions = struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
            kind = struct.pack("<BI", _TYPES.index(values.dtype.name), values.nbytes)
            out.write(_string(name) + dimensions + kind)
            out.write(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
        out.write(struct.pack("<I", len(aliases)))
        for alias, name in sorted(aliases.items()):
            out.write(_string(alias) + _string(name))


def _string(text: str) -> bytes:
    encoded = text.encode() + b"\0"
    return struct.pack("<H", len(encoded)) + encoded


def stored_as(variables: Mapping[str, Array], storage: Storage) -> dict[str, Array]:
    """Return float32 variables as they are stored.

    float16 applies to all variables with at least one axis.  int8 applies to matrices of weights: each row is divided
    by its largest absolute value, multiplied by 127 and rounded.
    Raises: ConversionError if a value is not finite, or too large for float16.
    """
    found = {}
    for name, values in variables.items():
        limit = np.finfo(np.float16 if storage == "float16" else np.float32).max
        if values.dtype.kind == "f" and not (np.abs(values) <= limit).all():
            raise ConversionError(
                f"{name}: expected finite values of at most {limit:g} ({storage}), got {np.abs(values).max():g};"
                " store the model as float32, or take another checkpoint if it has diverged"
            )
        found[name] = values
        if storage == "float16" and values.ndim and values.dtype.kind == "f":
            found[name] = values.astype(np.float16)
        elif storage == "int8" and name.endswith("/weight"):
            largest = np.abs(values).max(axis=1)
            least = _MAX_INT8 / np.finfo(np.float32).max  # smaller values would make the scale infinite
            scale = _MAX_INT8 / np.where(largest == 0, _MAX_INT8, np.maximum(largest, least))
            found[name] = np.rint(values * scale[:, None]).astype(np.int8)
            found[name + _SCALE] = scale
    return found
