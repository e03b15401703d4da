"""Settings, weights and subword models of other programs, read with errors that name the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.convert.parts import ConversionError
from minitransformer.convert.vocabulary import Array
from minitransformer.system.files import read_json


class Fields:
    """The settings of a configuration file, of which each must have its type."""

    def __init__(self, path: Path, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise ConversionError(f"{path}: expected an object with settings; it is corrupt or of another kind")
        self.path, self._fields = path, fields

    @classmethod
    def load(cls, path: Path) -> Fields:
        """Read a JSON object.  Raises: CorruptFileError, ConversionError."""
        return cls(path, read_json(path))

    def of(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a setting.  Raises: ConversionError if it is missing and has no default, or is of another type."""
        value = self._fields.get(name)
        value = default if value is None else value
        value = float(value) if kind is float and type(value) is int and abs(value) < 2**53 else value
        if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, float)):
            raise ConversionError(f"{self.path}: {name} must be of type {kind.__name__}; got {value!r}")
        return value


class Arrays:
    """The arrays of a weights file, as float32."""

    def __init__(self, path: Path, arrays: Mapping[str, Array]) -> None:
        self.path, self._arrays = path, arrays
        self._read: set[str] = set()

    def find(self, *names: str, default: Array | None = None) -> Array:
        """Return the array that has the first of these names.  Raises: ConversionError if there is none."""
        for name in filter(self.has, names):
            self._read.add(name)
            return self._arrays[name].astype(np.float32)
        if default is None:
            raise ConversionError(f"{self.path}: it has no {' or '.join(names)}; is it complete, and of this kind?")
        return default

    def has(self, name: str) -> bool:
        """Return whether there is an array of this name."""
        return name in self._arrays

    def unread(self) -> list[str]:
        """Return the names of the arrays that nobody has read."""
        return sorted(self._arrays.keys() - self._read)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.  Raises: ConversionError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConversionError(f"{path}: cannot be read ({error.strerror}); it is a part of the model") from error
