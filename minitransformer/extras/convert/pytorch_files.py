"""A reader of files of ``torch.save`` (.bin, .pt, .ckpt), which needs no PyTorch and runs no code of the file.

Such a file has a pickle: a program for a stack machine, which can call any function of Python.  The interpreter in this
module executes few opcodes, and imports and calls nothing.  An object of another type than arrays and plain data is
``_Opaque``; only a state dict must not have one.  ``pickletools`` decodes opcodes.

Two formats are read.  Since PyTorch 1.6 a file is a .zip archive with ``data.pkl``, ``byteorder`` and a member
``data/KEY`` for the numbers of each storage.  The older format is five pickles (magic number, version, system, content,
keys of storages), then for each key the number of values in 8 bytes and the values, always little-endian.

Source: PyTorch 2.13, ``torch/serialization.py`` and ``torch/_utils.py``.
"""

from __future__ import annotations

import io
import itertools
import math
import pickletools
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from autograd.packed_weight import bfloat16_values
from minitransformer.extras.convert.parts import Array, ConversionError, require_inflatable
from minitransformer.system.files import require_regular

_LONGEST_PICKLE = 4 << 20  # bytes; the pickle has about 300 bytes for each array
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # the first two pickles of the older format
_BFLOAT16 = "torch.BFloat16Storage"
_STORAGES = {
    "torch.DoubleStorage": "f8", "torch.FloatStorage": "f4", "torch.HalfStorage": "f2", _BFLOAT16: "u2",
    "torch.LongStorage": "i8", "torch.IntStorage": "i4", "torch.ShortStorage": "i2", "torch.CharStorage": "i1",
    "torch.ByteStorage": "u1", "torch.BoolStorage": "?",
}  # fmt: skip


class ForbiddenError(Exception):
    """An error: a pickle has an opcode that is not executed, or a state dict has other content than arrays."""


@dataclass(frozen=True)
class _Name:
    """The name of a class or function of Python to which a pickle refers."""

    name: str


@dataclass(frozen=True, eq=False)
class _Opaque:
    """An object that is not made, because it is no array and no plain data; ``description`` is for messages."""

    description: str


class _Arguments(dict[str, Any]):
    """The attributes of an argparse.Namespace."""


@dataclass(frozen=True)
class _Storage:
    key: str
    kind: str
    n_values: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(_STORAGES[self.kind])

    @property
    def n_bytes(self) -> int:
        return self.n_values * self.dtype.itemsize


@dataclass(frozen=True)
class _Tensor:
    """An array within a storage; ``offset`` and ``strides`` count values, not bytes."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * max(self.storage.dtype.itemsize, 4)  # at least float32's

    def array(self, values: Array) -> Array:
        """Return the array, given all values of its storage.  Raises: ValueError, TypeError if they are too few."""
        strides = [values.itemsize * stride for stride in self.strides]
        array: Array = np.ndarray(self.shape, values.dtype, values, values.itemsize * self.offset, strides)
        return np.asarray(bfloat16_values(array)) if self.storage.kind == _BFLOAT16 else array


class _Interpreter:
    """A stack machine that executes a pickle; ``storages`` are the storages to which the pickle refers, by key."""

    def __init__(self) -> None:
        self.storages = dict[str, _Storage]()
        self.stack, self.marks, self.memo = list[Any](), list[int](), dict[int, Any]()

    def run(self, stream: BinaryIO) -> Any:
        """Execute a pickle, and return the object that it describes.

        Raises: ForbiddenError for an opcode that is not executed; any other error if it is corrupt.
        """
        self.stack, self.marks, self.memo = [], [], {}
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name in _VALUES:
                self.stack.append(_VALUES[opcode.name](argument))
            elif opcode.name in _ACTIONS:
                _ACTIONS[opcode.name](self, argument)
            elif opcode.name not in ("PROTO", "FRAME", "STOP"):
                raise ForbiddenError(f"the opcode {opcode.name}")
        (content,) = self.stack
        return content

    def since_mark(self) -> list[Any]:
        """Remove the items since the last mark from the stack, and return them."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def last_as_tuple(self, n_items: int) -> None:
        self.stack[-n_items:] = [tuple(self.stack[-n_items:])]

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list | _Opaque):
            raise ForbiddenError(f"items of an object of type {type(target).__name__}")
        if isinstance(target, list):
            target.extend(items)

    def update(self, items: list[Any]) -> None:
        """Add ``items``, which are alternately keys and values, to a dictionary.

        Other keys than strings and numbers are opaque: computing a nested key's hash could overflow the process's
        stack.
        """
        target, keys = self.stack[-1], items[::2]
        if not isinstance(target, dict | _Opaque):
            raise ForbiddenError(f"items of an object of type {type(target).__name__}")
        other = "keys that are no strings or numbers"
        keys = [key if isinstance(key, str | int | float | None) else _Opaque(other) for key in keys]
        if isinstance(target, dict):
            target.update(zip(keys, items[1::2], strict=True))

    def refer_from_stack(self, _: None) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        are_names = isinstance(module, str) and isinstance(name, str)
        self.stack.append(_Name(f"{module!s:.80}.{name!s:.80}" if are_names else "no string"))

    def call(self, _: None) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        self.stack.append(self._make(name, arguments))

    def call_with_keywords(self, _: None) -> None:
        self.stack.pop()
        self.call(None)

    def _make(self, name: Any, arguments: Any) -> Any:
        """Return our object for the object that a function, named ``name``, makes of its arguments in PyTorch.

        The object is opaque for another function or other arguments.
        Raises: ForbiddenError for what is no function; ValueError for impossible sizes.
        """
        if isinstance(name, _Opaque):
            return name
        if not isinstance(name, _Name):
            raise ForbiddenError("a call of no function")
        match name.name, arguments:
            case "collections.OrderedDict", ():
                return {}
            case "argparse.Namespace", ():
                return _Arguments()
            case "torch._utils._rebuild_parameter", (_Tensor() as tensor, *_):
                return tensor
            case "torch._utils._rebuild_tensor_v2", (_Storage() as storage, offset, tuple(shape), tuple(strides), *_):
                if not all(type(n) is int and n >= 0 for n in (offset, *shape, *strides)):
                    raise ValueError("a tensor has sizes that are no whole numbers")
                return _Tensor(storage, offset, shape, strides)
        return _Opaque(f"{name.name!r:.100}")

    def build(self, _: None) -> None:
        """Set the attributes of an ``argparse.Namespace``; ignore attributes of a dictionary or an opaque object."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, dict | _Opaque):
            raise ForbiddenError(f"the state of an object of type {type(target).__name__}")
        if isinstance(target, _Arguments) and isinstance(state, dict):
            target.update(state)

    def refer_to_storage(self, _: None) -> None:
        """Replace a persistent id on the stack by the storage that it names."""
        match self.stack.pop():
            case ("storage", _Name(name=kind), str(key), str(), int(n), *view) if kind in _STORAGES and n >= 0:
                storage = _Storage(key, kind, n)
            case _:
                raise ForbiddenError("a persistent id that names no storage")
        if self.storages.setdefault(key, storage) != storage or any(item is not None for item in view):
            raise ForbiddenError("a storage that is a part of another one")
        self.stack.append(storage)


_VALUES: dict[str, Callable[[Any], Any]] = {  # opcodes that push a value
    **dict.fromkeys(["BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
                     "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BYTEARRAY8"], lambda argument: argument),
    "NONE": lambda _: None, "NEWTRUE": lambda _: True, "NEWFALSE": lambda _: False,
    "EMPTY_SET": lambda _: _Opaque("a set"), "GLOBAL": lambda name: _Name(name.replace(" ", ".", 1)),
    "EMPTY_LIST": lambda _: [], "EMPTY_TUPLE": lambda _: (), "EMPTY_DICT": lambda _: {},
}  # fmt: skip
_ACTIONS: dict[str, Callable[[_Interpreter, Any], Any]] = {
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.last_as_tuple(1), "TUPLE2": lambda machine, _: machine.last_as_tuple(2),
    "TUPLE3": lambda machine, _: machine.last_as_tuple(3),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "ADDITEMS": lambda machine, _: machine.since_mark(),  # the items of a set, which is opaque
    "FROZENSET": lambda machine, _: machine.stack.append(_Opaque(f"a set of {len(machine.since_mark())}")),
    "SETITEM": lambda machine, _: machine.update([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _: machine.update(machine.since_mark()),
    "STACK_GLOBAL": _Interpreter.refer_from_stack,
    "REDUCE": _Interpreter.call, "NEWOBJ": _Interpreter.call, "NEWOBJ_EX": _Interpreter.call_with_keywords,
    "BUILD": _Interpreter.build,
    "BINPERSID": _Interpreter.refer_to_storage,
    **dict.fromkeys(["BINPUT", "LONG_BINPUT"], lambda machine, key: machine.memo.update({key: machine.stack[-1]})),
    "MEMOIZE": lambda machine, _: machine.memo.update({len(machine.memo): machine.stack[-1]}),
    **dict.fromkeys(["BINGET", "LONG_BINGET"], lambda machine, key: machine.stack.append(machine.memo[key])),
}  # fmt: skip


def read_pytorch(path: Path, state: str | None = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the content of a file, and the arrays of its state dict; other arrays are not read.

    Args:
        state: the key of the state dict in the content; None if the content is the state dict.

    bfloat16, which NumPy lacks, becomes float32 with the same values.
    An object beside the state dict that is no array and no plain data is opaque.
    Raises: ConversionError if the state dict has content other than arrays, if the file has no such state dict, or if
    the arrays need too much memory; any error for corrupt content, so call this function in ``foreign_content``.
    """
    require_regular(path)
    try:
        with path.open("rb") as file:
            if file.read(2) == b"PK":
                with zipfile.ZipFile(file) as archive:
                    return _read_zip(path, archive, state)
            file.seek(0)
            return _read_older(path, file, state)
    except ForbiddenError as error:
        raise ConversionError(
            f"{path}: has {error}; only arrays and plain data are read, and no code is run; if you trust its"
            " maker, save the state dict alone with PyTorch"
        ) from error


def _read_zip(path: Path, archive: zipfile.ZipFile, state: str | None) -> tuple[dict[str, Any], dict[str, Array]]:
    members = {member.filename: member for member in archive.infolist()}
    if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
        raise ValueError("an archive of PyTorch has no compressed members")
    if sum(member.file_size for member in members.values()) > path.stat().st_size:
        raise ValueError("the members have more bytes than the file")
    (pickled,) = (name for name in members if name.count("/") == 1 and name.endswith("/data.pkl"))
    if members[pickled].file_size > _LONGEST_PICKLE:
        raise ValueError(f"{pickled} has more than {_LONGEST_PICKLE:,} bytes")
    folder = pickled.removesuffix("data.pkl")
    letters: Mapping[bytes, Literal["<", ">"]] = {b"little": "<", b"big": ">"}
    order = archive.read(f"{folder}byteorder") if f"{folder}byteorder" in members else b"little"
    content = _Interpreter().run(io.BytesIO(archive.read(pickled)))

    def values(storage: _Storage) -> Array:
        name = f"{folder}data/{storage.key}"
        if members[name].file_size != storage.n_bytes:
            raise ValueError(f"{name} has {members[name].file_size:,} bytes, expected {storage.n_bytes:,}")
        stored = np.frombuffer(archive.read(name), storage.dtype.newbyteorder(letters[order]))
        return stored.astype(storage.dtype, copy=False)

    return content, _arrays(path, content, state, values)


def _read_older(path: Path, file: BinaryIO, state: str | None) -> tuple[dict[str, Any], dict[str, Array]]:
    beginning, machine = io.BytesIO(file.read(_LONGEST_PICKLE)), _Interpreter()
    if (machine.run(beginning), machine.run(beginning)) != (_MAGIC, _VERSION):
        raise ValueError("it begins like no file of PyTorch")
    machine.run(beginning)
    content, keys, offset = machine.run(beginning), machine.run(beginning), beginning.tell()
    offsets = dict[str, int]()
    for key in keys:
        if not isinstance(key, str):
            raise ValueError("the keys of storages are no strings")
        file.seek(offset)
        n_values, storage = int.from_bytes(file.read(8), "little"), machine.storages[key]
        if n_values != storage.n_values:
            raise ValueError(f"storage {key!r:.80} has {n_values:,} values, expected {storage.n_values:,}")
        offsets[key] = offset + 8
        offset += 8 + storage.n_bytes
    if offset > path.stat().st_size:
        raise ValueError("it is truncated")

    def values(storage: _Storage) -> Array:
        file.seek(offsets[storage.key])
        return np.frombuffer(file.read(storage.n_bytes), storage.dtype.newbyteorder("<"))

    return content, _arrays(path, content, state, values)


def _arrays(path: Path, content: Any, state: str | None, read: Callable[[_Storage], Array]) -> dict[str, Array]:
    """Return the arrays of a state dict; read each storage once, even if several arrays share it.

    Raises: ConversionError if there is no state dict, or if the arrays need too much memory; ForbiddenError if it has
    objects that are no arrays.
    """
    found = content.get(state) if isinstance(content, dict) and state is not None else content
    for item in [found, *itertools.chain(*found.items())] if isinstance(found, dict) else [found]:
        if isinstance(item, _Opaque | _Name):
            raise ForbiddenError(item.description if isinstance(item, _Opaque) else f"{item.name!r:.100}")
    if not isinstance(found, dict) or not all(isinstance(tensor, _Tensor) for tensor in found.values()):
        where = "it" if state is None else f"{state} in it"
        raise ConversionError(
            f"{path}: {where} is no state dict, which has an array for each name; it is of another kind"
        )
    tensors: Mapping[str, _Tensor] = {str(name): tensor for name, tensor in found.items()}
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    require_inflatable(path, sum(tensor.n_bytes for tensor in tensors.values()))
    values = {key: read(storage) for key, storage in storages.items()}
    return {name: tensor.array(values[tensor.storage.key]) for name, tensor in tensors.items()}
