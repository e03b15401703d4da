"""Files as torch.save writes them, in both formats, written without PyTorch."""

import argparse
import io
import struct
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

KINDS = {
    "float64": "Double", "float32": "Float", "float16": "Half", "int64": "Long", "int32": "Int", "int16": "Short",
    "int8": "Char", "uint8": "Byte", "bool": "Bool", "uint16": "BFloat16",
}  # fmt: skip


class Raw(bytes):
    """A piece of a pickle."""


@dataclass
class View:
    """A tensor in a storage; offset and strides are numbers of values."""

    storage: np.ndarray[Any, Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_parameter: bool = False


class Pickle:
    """A pickle of protocol 2, and the storages to which it refers, by key."""

    def __init__(self, value: object, *, is_older: bool = False) -> None:
        self.storages, self.is_older = dict[str, np.ndarray[Any, Any]](), is_older
        self.content = b"\x80\x02" + self._of(value) + b"."

    def _of(self, value: object) -> bytes:
        match value:
            case tuple():
                return b"(" + self._all(value) + b"t"
            case list():
                return b"](" + self._all(value) + b"e"
            case dict():  # as OrderedDict with the attribute that a module's state dict has
                return b"ccollections\nOrderedDict\n)R" + self._items(value) + b"}" + scalar("_metadata") + b"}sb"
            case argparse.Namespace():
                return b"cargparse\nNamespace\n)\x81}" + self._items(vars(value)) + b"b"
            case np.ndarray():
                strides = tuple(n // value.itemsize for n in np.ascontiguousarray(value).strides)
                return self._view(View(value.reshape(-1), 0, value.shape, strides))
            case View():
                return self._view(value)
        return scalar(value)

    def _items(self, items: dict[str, Any]) -> bytes:
        return b"(" + self._all(x for pair in items.items() for x in pair) + b"u"

    def _all(self, values: Any) -> bytes:
        return b"".join(map(self._of, values))

    def _view(self, view: View) -> bytes:
        keys = [key for key, storage in self.storages.items() if storage is view.storage]
        key = keys[0] if keys else str(len(self.storages))
        self.storages[key] = view.storage
        name = Raw(f"ctorch\n{KINDS[view.storage.dtype.name]}Storage\n".encode())
        identity = self._of(("storage", name, key, "cpu", len(view.storage), *[None] * self.is_older)) + b"Q"
        arguments = (Raw(identity), view.offset, view.shape, view.strides, False, Raw(b"ccollections\nOrderedDict\n)R"))
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + self._of(arguments) + b"R"
        if view.is_parameter:
            return b"ctorch._utils\n_rebuild_parameter\n" + self._of((Raw(tensor), True, {})) + b"R"
        return tensor


def scalar(value: object) -> bytes:
    match value:
        case Raw():
            return bytes(value)
        case None | bool():
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        case int():
            size = value.bit_length() // 8 + 1
            return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    raise TypeError(value)


def pickled(value: object) -> bytes:
    return Pickle(value).content


def zip_file(value: object, *, order: str | None = "little", kind: int = zipfile.ZIP_STORED) -> bytes:
    """The content of a file in today's format; without an order it has no member that says it."""
    pickle, stream = Pickle(value), io.BytesIO()
    letter = ">" if order == "big" else "<"
    with zipfile.ZipFile(stream, "w", kind) as archive:
        archive.writestr("archive/data.pkl", pickle.content)
        if order is not None:
            archive.writestr("archive/byteorder", order)
        for key, storage in pickle.storages.items():
            archive.writestr(f"archive/data/{key}", storage.astype(storage.dtype.newbyteorder(letter)).tobytes())
        archive.writestr("archive/version", "3\n")
    return stream.getvalue()


def older_file(value: object) -> bytes:
    """The content of a file in the format before PyTorch 1.6."""
    pickle = Pickle(value, is_older=True)
    head = pickled(0x1950A86A20F9469CFC6C) + pickled(1001) + pickled({"little_endian": True})
    values = b"".join(len(storage).to_bytes(8, "little") + storage.tobytes() for storage in pickle.storages.values())
    return head + pickle.content + pickled(list(pickle.storages)) + values
