"""Readers of settings, weights, words and subword models in files of other programs; each error names the file.

The files may have any content, and libraries may raise any error for it; ``foreign_content`` turns these errors into
ConversionErrors.
"""

from __future__ import annotations

import re
import reprlib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config.data import is_language
from minitransformer.data.profile import TextProfile
from minitransformer.data.tokenizer import JOINT_FILE
from minitransformer.extras.convert.parts import (
    Array,
    ContentError,
    ConversionError,
    looked_up,
    require_finite,
    require_inflatable,
)
from minitransformer.extras.convert.pytorch_files import read_pytorch
from minitransformer.extras.convert.vocabulary import SubwordModels, parsed
from minitransformer.system.errors import UserError
from minitransformer.system.files import read_arrays, read_json, read_regular, require_regular

INDEX = ".index.json"
WEIGHTS = ("model.safetensors", f"model.safetensors{INDEX}", "pytorch_model.bin", f"pytorch_model.bin{INDEX}")
SOURCE_FILE, TARGET_FILE = "source.spm", "target.spm"  # sentencepiece models, if each language has its own
_LARGEST_EXACT = 2**53  # every whole number up to 2⁵³ is a float without rounding


@contextmanager
def foreign_content(path: Path, kind: str) -> Iterator[None]:
    """Turn every exception except UserErrors into a ConversionError that names ``path`` and ``kind``.

    A ContentError, which is a UserError without the path, becomes a ConversionError that names ``path``.  Other
    UserErrors do not change.
    """
    try:
        yield
    except ContentError as error:
        raise ConversionError(f"{path}: {error}") from error
    except UserError:
        raise
    except Exception as error:
        details = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}".removesuffix(": ")
        cause = " ".join(f"{details:.300}".split())
        remedy = "copy it again, or free some memory" if isinstance(error, MemoryError) else "copy it again"
        raise ConversionError(
            f"{path}: cannot be read as {kind} ({cause}): it is missing, corrupt or of another kind; {remedy}"
        ) from error


class SettingsFile:
    """The settings in a file, an object that may contain objects.

    A method's argument ``name`` may have dots: "model.encoder" is the field "encoder" of the object "model".
    """

    def __init__(self, path: Path, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise ConversionError(f"{path}: expected an object with settings; it is corrupt or of another kind")
        self.path, self._fields = path, fields

    @classmethod
    def load(cls, path: Path) -> SettingsFile:
        """Read a JSON object.

        Raises: CorruptFileError if the file is missing or not JSON; ConversionError if it has no object.
        """
        return cls(path, read_json(path))

    @classmethod
    def load_if_there(cls, path: Path) -> SettingsFile:
        """Read a JSON object; if the file is missing, return no settings.

        Raises: CorruptFileError if the file is not JSON; ConversionError if it has no object.
        """
        return cls.load(path) if path.exists() else cls(path, {})

    def languages(self, source: str, target: str) -> TextProfile:
        """Return the languages that two settings name; None for a setting that is missing or names no language."""
        named = (self._fields.get(name) for name in (source, target))
        codes = [code if isinstance(code, str) and is_language(code) else None for code in named]
        return TextProfile(codes[0], codes[1])

    def of(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a setting of type ``kind``, or ``default`` if the setting is missing or null.

        A whole number is converted if ``kind`` is float.
        Raises: ConversionError if the setting is of another type, or if it is missing and there is no default.
        """
        value: Any = self._fields
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        value = default if value is None else value
        if kind is float and type(value) is int and abs(value) < _LARGEST_EXACT:
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, float)):
            raise ConversionError(
                f"{self.path}: expected the setting {name}, of type {kind.__name__}; got {reprlib.repr(value):.80}"
            )
        return value

    def is_null(self, name: str) -> bool:
        """Return whether the file has a setting that is null.  Here ``name`` has no dots."""
        return name in self._fields and self._fields[name] is None

    def common(self, kind: type, *names: str, default: Any = None) -> Any:
        """Return the value that several settings have in common.

        Raises: ConversionError if they differ, are of another type, or are missing without a default.
        """
        values = [self.of(name, kind, default) for name in names]
        if any(value != values[0] for value in values):
            raise ConversionError(f"{self.path}: {' and '.join(names)} must be equal in our models; got {values}")
        return values[0]

    def choice(self, choices: Mapping[str, Any], *names: str, default: str) -> Any:
        """Return the entry of ``choices`` whose key is the value of a setting; several settings must be equal.

        Raises: ConversionError if they differ, or if the value is none of the keys.
        """
        word = self.common(str, *names, default=default)
        return looked_up(str(self.path), " and ".join(names), word, choices)

    def refuse(self, allowed: Mapping[str, Any]) -> None:
        """Raise ConversionError if a setting in the file has another value than in ``allowed``."""
        for name, value in allowed.items():
            if (found := self.of(name, type(value), value)) != value:
                raise ConversionError(f"{self.path}: {name} = {found!r} is not supported; only {value!r}")


class WeightsFile:
    """The arrays in a file of weights.

    Readers remove each array that they use by ``take``; ``require_none_left`` then refuses arrays that no reader used.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Array]) -> None:
        self.path, self._arrays = path, dict(arrays)

    @classmethod
    def load(cls, path: Path, state: str | None = None) -> WeightsFile:
        """Read a file of safetensors or of PyTorch, or the index of several such files.

        If a PyTorch checkpoint has other content, too, ``state`` is the key of its state dict.
        Raises: CorruptFileError if a safetensors file or an index is missing or corrupt; UnfitError if a dtype is not
        supported; ConversionError if a PyTorch file is missing or corrupt, or if an index and its files differ.
        """
        return cls(path, _read_weights(path, state))

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._arrays))

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of a matrix, and keep the matrix.  Raises: ConversionError if no matrix has this name."""
        if name not in self._arrays or self._arrays[name].ndim != 2:
            raise self.unfit(name, "a matrix")
        n_rows, n_columns = self._arrays[name].shape
        return n_rows, n_columns

    def take(self, *names: str) -> Array:
        """Remove the array with the first of these names that exists, and return the array as float32.

        Raises: ConversionError if no name exists, or if a number of the array is not finite.
        """
        found = self.take_if_there(*names)
        if found is None:
            raise ConversionError(f"{self.path}: it has no {' or '.join(names)}; is it complete, and of this kind?")
        return found

    def take_if_there(self, *names: str) -> Array | None:
        """Remove the array with the first of these names that exists, and return it as float32; None if none exists.

        Raises: ConversionError if a number of the array is not finite.
        """
        for name in names:
            if name in self._arrays:
                with np.errstate(over="ignore"):  # a large float64 becomes infinite, which is refused
                    array = self._arrays.pop(name).astype(np.float32, copy=False)
                return require_finite(self.path, name, array)
        return None

    def take_equal(self, setting: str, *names: str) -> Array:
        """Remove the arrays with these names, which ``setting`` ties, and return one of them as float32.

        Raises: ConversionError if no name exists, if the arrays differ, or if a number is not finite.
        """
        self.require_equal(setting, *names)
        array = self.take(*names)
        for name in names:
            self._arrays.pop(name, None)
        return array

    def require_equal(self, setting: str, *names: str) -> None:
        """Raise ConversionError if arrays with these names differ, although ``setting`` ties them."""
        first, *others = [name for name in names if name in self._arrays] or [""]
        for name in others:
            if not np.array_equal(self._arrays[first], self._arrays[name]):
                raise ConversionError(
                    f"{self.path}: {first} and {name} differ, although {setting} is true; correct the setting, or copy"
                    " the weights again"
                )

    def rename(self, old: str, new: str) -> None:
        """Rename an array.  Raises: ConversionError if another array has the new name."""
        self._require_free(old, new)
        self._arrays[new] = self._arrays.pop(old)

    def _require_free(self, old: str, *new: str) -> None:
        if there := [name for name in new if name in self._arrays]:
            raise ConversionError(f"{self.path}: {old} and {there[0]} are two names of one array; remove one of them")

    def split(self, old: str, new: list[str]) -> None:
        """Replace an array by slices of its rows, one for each name in ``new``.

        Raises: ConversionError if the slices cannot have equal sizes, or if another array has one of the new names.
        """
        self._require_free(old, *new)
        array = self._arrays.pop(old)
        if not array.ndim or len(array) % len(new):
            raise ConversionError(f"{self.path}: {old} of shape {array.shape} has no {len(new)} equal parts")
        self._arrays.update(zip(new, np.split(array, len(new)), strict=True))

    def left(self) -> list[str]:
        """Return the names of the arrays that have not been removed."""
        return sorted(self._arrays)

    def require_none_left(self, ignored: str = "") -> None:
        """Raise ConversionError if arrays are left, except arrays whose names match the pattern ``ignored``."""
        left = [name for name in self.left() if not re.fullmatch(ignored, name)]
        if left:
            raise ConversionError(
                f"{self.path}: it has {len(left)} arrays that this Transformer does not have: {', '.join(left[:3])}"
            )

    def unfit(self, name: str, expected: str) -> ConversionError:
        """Return the error for an array that is missing, or of another shape than ``expected``."""
        got = f"shape {self._arrays[name].shape}" if name in self._arrays else "no such array"
        return ConversionError(
            f"{self.path}: {name}: expected {expected}, got {got}; is it complete, and of this kind?"
        )


def weights_file(directory: Path, *others: str) -> Path:
    """Return the path of the weights in a directory.

    Take the first name in ``WEIGHTS`` that exists, or else the file that matches the first pattern in ``others`` with a
    match.  If no file exists, return the path of ``WEIGHTS[0]``, which does not exist.
    Raises: ConversionError if several files match this pattern.
    """
    for pattern in (*WEIGHTS, *others):
        found = sorted(directory.glob(pattern))
        if len(found) > 1:
            names = ", ".join(path.name for path in found[:3])
            raise ConversionError(f"{directory}: has {len(found)} checkpoints ({names}, …); keep one of them there")
        if found:
            return found[0]
    return directory / WEIGHTS[0]


def read_state_dict(path: Path, state: str | None = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the content and the arrays of a PyTorch file; see ``read_pytorch``.

    Raises: ConversionError for every kind of error in the file.
    """
    with foreign_content(path, "a file of PyTorch"):
        return read_pytorch(path, state)


def _read_weights(path: Path, state: str | None = None) -> dict[str, Array]:
    if path.name.endswith(INDEX):
        return _read_shards(path)
    if path.suffix != ".safetensors":
        return read_state_dict(path, state)[1]
    with foreign_content(path, "safetensors"):
        return read_arrays(path)


def shard_names(index: Path) -> list[str]:
    """Return the names of the files in an index; the files are in the directory of the index.

    Raises: ConversionError if a name is no file name of weights; CorruptFileError if the index is missing or not JSON.
    """
    names = set[str]()
    for name in SettingsFile.load(index).of("weight_map", dict).values():
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.(safetensors|bin)", name):
            raise ConversionError(
                f"{index}: weight_map: expected names of .safetensors or .bin files; got {name!r:.80}"
            )
        names.add(name)
    return sorted(names)


def _read_shards(index: Path) -> dict[str, Array]:
    shards = {name: _read_weights(index.with_name(name)) for name in shard_names(index)}
    files = SettingsFile.load(index).of("weight_map", dict)
    if missing := [array for array, name in files.items() if array not in shards[name]]:
        raise ConversionError(f"{index}: {files[missing[0]]} has no {missing[0]}; is it of the same model?")
    for name, arrays in shards.items():
        if beyond := [array for array in arrays if files.get(array) != name]:
            raise ConversionError(f"{index}: {name} has {beyond[0]}, too, unlike the index; is it of the same model?")
    return {array: shards[name][array] for array, name in files.items()}


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz file; refuse arrays of Python objects, and arrays that need too much memory.

    Raises: ConversionError if the arrays need too much memory; any error for corrupt content, so call this function in
    ``foreign_content``.
    """
    require_regular(path)
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in archive.infolist()):
            raise ValueError("a member is compressed in a way that NumPy does not write")
        require_inflatable(path, sum(member.file_size for member in archive.infolist()))
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file.  Raises: ConversionError if the file cannot be read."""
    with foreign_content(path, "a file of the model"):
        return read_regular(path)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a vocabulary file, a word each.

    Only line feeds end a line.  If every line feed follows a carriage return, the carriage returns are removed.  The
    last line needs no line feed.
    Raises: ConversionError if the file cannot be read as UTF-8.
    """
    with foreign_content(path, "a vocabulary"):
        *lines, last = read_bytes(path).decode().split("\n")
    if lines and all(line.endswith("\r") for line in lines):
        lines = [line[:-1] for line in lines]
    return [*lines, last] if last or not lines else lines


def read_subwords(path: Path) -> bytes:
    """Return the content of a sentencepiece model's file.

    Raises: ConversionError if the file cannot be read, or is no sentencepiece model.
    """
    model = read_bytes(path)
    with foreign_content(path, "a model of sentencepiece"):
        parsed(model)
    return model


def sentencepiece_models(directory: Path, source_spm: Path | None, target_spm: Path | None) -> SubwordModels:
    """Return the sentencepiece models of source and target; (None, None) if there are none.

    The source's model is the first that exists of ``source_spm``, ``source.spm`` and ``tokenizer.model``.  The target's
    model is the first that exists of ``target_spm``, ``target.spm``, ``source_spm`` and ``tokenizer.model``.  The three
    files are in ``directory``.
    Raises: ConversionError if only one language has a model, or if a file cannot be read.
    """
    joint = source_spm or _if_there(directory / JOINT_FILE)
    source = source_spm or _if_there(directory / SOURCE_FILE) or joint
    target = target_spm or _if_there(directory / TARGET_FILE) or joint
    if source and target:
        return read_subwords(source), read_subwords(target)
    for path, lacking in ((source, TARGET_FILE), (target, SOURCE_FILE)):
        if path:
            raise ConversionError(
                f"{path}: is the sentencepiece model of one language, and there is no {lacking} for the other; set"
                f" {lacking.replace('.', '_')} (set source_spm alone if one model is for both languages)"
            )
    return None, None


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None
