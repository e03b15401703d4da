"""Files of PyTorch: the arrays have the bits that were stored, and nothing else is read, called or allocated."""

import argparse
import builtins
import io
import json
import os
import struct
import subprocess
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzzed_readers import READERS
from pytorch_files import Pickle, Raw, View, older_file, pickled, scalar, zip_file

from minitransformer.extras.convert.foreign_files import WeightsFile, read_state_dict, weights_file
from minitransformer.extras.convert.formats import read_parts, recognise
from minitransformer.extras.convert.parts import ConversionError
from minitransformer.system.errors import UserError
from minitransformer.system.files import read_arrays, write_arrays

FLOATS = np.arange(6, dtype=np.float32)
SYSTEM = b"cposix\nsystem\n(" + scalar("touch called") + b"tR"
CALL = b"c__builtin__\neval\n(" + scalar("open('called', 'w')") + b"tR"
NESTED = b"(" * 3 + b"]" + b"\x85" * 10_000
HALVES = b"N" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))
STORAGE = b"ctorch\nFloatStorage\n"
OBJECTS: dict[str, tuple[Any, str]] = {  # malicious pickles, and what their refusal names; a view is of the array "w"
    "system": (SYSTEM, "has 'posix.system'; only arrays and plain data are read, and no code is run"),
    "eval": (CALL, "'__builtin__.eval'"),
    "from the stack": (scalar("os") + scalar("system") + b"\x93" + scalar("touch called") + b"\x85R", "'os.system'"),
    "in an array": ({"w": (Raw(SYSTEM),)}, "it is no state dict"),
    "in a nested pickle": ({"w": Raw(b"cpickle\nloads\n(" + scalar("x") + b"tR")}, "'pickle.loads'"),
    "getattr": (b"c__builtin__\ngetattr\n(ccollections\nOrderedDict\nX\x08\0\0\0__init__tR", "'__builtin__.getattr'"),
    "attribute of a name": (b"ccollections\nOrderedDict.__init__\n", "'collections.OrderedDict.__init__'"),
    "module in a name": (b"ctorch._utils\n_rebuild_tensor_v3\n)R", "'torch._utils._rebuild_tensor_v3'"),
    "dotted": (scalar("torch") + scalar("_utils._rebuild_tensor_v2.__globals__") + b"\x93", "__globals__'"),
    "instance": (b"(iposix\nsystem\n", "the opcode INST"),
    "object": (b"(cargparse\nNamespace\no", "the opcode OBJ"),
    "extension": (b"\x82\x01", "the opcode EXT1"),
    "text": (b"Pstorage\n", "the opcode PERSID"),
    "call of a string": (scalar("posix.system") + b")R", "a call of no function"),
    "call of a type": (STORAGE + b")R", "has 'torch.FloatStorage'; only arrays"),
    "call of items": (b"ccollections\nOrderedDict\n(](tt" + b"R", "has 'collections.OrderedDict'; only arrays"),
    "state of a list": (b"]}b", "the state of an object of type list"),
    "items of a name": (b"cargparse\nNamespace\nNa", "items of an object of type _Name"),
    "persistent id": (b"(" + scalar("module") + STORAGE + b"tQ", "a persistent id that names no storage"),
    "nested key": (b"}" + NESTED + b"Ns", "keys that are no strings or numbers"),
    "views of a storage": (
        b"(" + scalar("storage") + STORAGE + scalar("0") + scalar("cpu") + b"K\x04" + scalar("0") + b"K\0K\x04\x87tQ",
        "a storage that is a part of another one",
    ),
    "one storage of two types": (
        {"a": View(np.ones(4, np.float32), 0, (4,), (1,)), "b": Raw(
            b"(" + scalar("storage") + b"ctorch\nLongStorage\n" + scalar("0") + scalar("cpu") + b"K\x02tQ")},
        "a storage that is a part of another one",
    ),
    "a huge key of the memo": (b"Nr\xff\xff\xff\x7f", "it is no state dict"),
    "an empty memo": (b"h\x05", "KeyError: 5"),
    "a huge string": (b"\x8d" + struct.pack("<Q", 2**62), "ValueError: expected [0-9]+ bytes in a unicodestring8"),
    "a huge array of bytes": (b"\x96" + struct.pack("<Q", 2**40), "ValueError: expected [0-9]+ bytes in a bytearray8"),
    "a huge frame": (b"\x95" + struct.pack("<Q", 2**62), "ValueError"),
    "a huge number": (b"\x8b" + struct.pack("<i", 2**31 - 1), "ValueError: not enough data in stream to read long4"),
    "no end of a stack": (b"0", "the opcode POP"),
    "an empty stack": (b"\x85\x85a", "IndexError"),
    "beyond its storage": (View(FLOATS, 0, (7,), (1,)), "cannot be read as a file of PyTorch"),
    "offset beyond its storage": (View(FLOATS, 1, (6,), (1,)), "cannot be read as a file of PyTorch"),
    "stride beyond its storage": (View(FLOATS, 0, (2, 2), (5, 1)), "cannot be read as a file of PyTorch"),
    "negative stride": (View(FLOATS, 5, (2,), (-1,)), "a tensor has sizes that are no whole numbers"),
    "huge": (View(FLOATS, 0, (2**62, 2**62), (0, 0)), "bytes inflate to"),
    "repeated": (View(FLOATS, 0, (10**5, 10**5), (0, 0)), "bytes inflate to 40,000,000,000; expected at most"),
    "repeated bfloat16": (View(np.ones(1, np.uint16), 0, (10**10,), (0,)), "bytes inflate to 40,000,000,000"),
    "65 axes": (View(FLOATS, 0, (1,) * 65, (1,) * 65), "maximum supported dim"),
    "fewer strides than axes": (View(FLOATS, 0, (2, 3), (1,)), "strides"),
}  # fmt: skip
OBJECTS_BESIDE = {  # pickles of objects that training programs write beside the weights
    "set": b"c__builtin__\nset\n](K\x01K\x02e\x85R",
    "set of protocol 4": b"\x8f(K\x01K\x02\x90",
    "frozen set": b"(K\x01\x91",
    "size": b"ctorch\nSize\n(K\x02K\x03t\x85R",
    "type": b"ctorch\nfloat16\n",
    "device": b"ctorch\ndevice\n" + scalar("cpu") + b"\x85R",
    "counter": b"ccollections\nCounter\n}" + scalar("a") + b"K\x02s\x85R",
    "tuple as a key": b"}K\x01K\x02\x86K\x03s",
    "nested key": b"}]" + b"\x85" * 10_000 + b"Ns",
    "bytes": b"c_codecs\nencode\n" + scalar("abc") + scalar("latin1") + b"\x86R",
    "object with attributes": b"cpkg.module\nClass\n)\x81}" + scalar("a") + b"K\x01sb",
    "object with keywords": b"cpkg.module\nClass\n)}\x92",
    "list with a class": b"cpkg.module\nList\n)\x81(K\x01e",
}
FORMATS: dict[str, Callable[[object], bytes]] = {
    "zip": zip_file,
    "zip without an order": lambda value: zip_file(value, order=None),
    "big-endian": lambda value: zip_file(value, order="big"),
    "older": older_file,
}
NUMBERS = np.arange(-12, 12)
TYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def with_member(file: bytes, name: str, content: bytes | None) -> bytes:
    """A file in today's format, in which one member is another one or missing."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        members = {member: archive.read(member) for member in archive.namelist()} | {name: content}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for member, data in members.items():
            if data is not None:
                archive.writestr(member, data)
    return stream.getvalue()


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_arrays_of_every_type_have_the_bits_that_were_stored(tmp_path: Path, write: Any) -> None:
    expected = {dtype: NUMBERS.astype(dtype).reshape(2, 3, 4) for dtype in TYPES}
    expected["float32"].flat[:3] = np.nan, -0.0, 1e-45
    _, arrays = read_state_dict(written(tmp_path / "x.bin", write(expected)))
    assert {name: array.dtype for name, array in arrays.items()} == {name: np.dtype(name) for name in TYPES}
    for name, array in expected.items():
        assert arrays[name].astype(name).tobytes() == array.tobytes()


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_views_of_a_storage_are_read(tmp_path: Path, write: Any) -> None:
    """Transposed, strided, with an offset, without axes, without values; bfloat16 in the upper halves of float32."""
    storage, upper = np.arange(24, dtype=np.float32), np.array([0x3F80, 0xC000, 0x7F80, 1], np.uint16)
    state = {
        "transposed": View(storage, 0, (4, 6), (1, 4), is_parameter=True),
        "strided": View(storage, 5, (2, 3), (8, 2)),
        "number": View(storage, 7, (), ()),
        "empty": View(storage, 0, (0, 3), (3, 1)),
        "repeated": View(storage, 2, (3,), (0,)),
        "bfloat16": View(upper, 0, (2, 2), (1, 2)),
    }
    _, arrays = read_state_dict(written(tmp_path / "x.bin", write(state)))
    expected = {
        "transposed": storage.reshape(6, 4).T,
        "strided": [[5, 7, 9], [13, 15, 17]],
        "number": 7,
        "empty": np.zeros((0, 3)),
        "repeated": [2, 2, 2],
        "bfloat16": [[1, np.inf], [-2, 2.0**-133]],
    }
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, np.array(expected[name], np.float32))


def test_plain_data_is_read_and_arrays_outside_of_the_state_dict_are_not(tmp_path: Path) -> None:
    """An optimizer's storage may be missing."""
    plain = {"args": argparse.Namespace(a=1, b=[0.5, "é", (None, True)]), "n": -(2**70)}
    weights, moments = {"w": np.ones(3, np.float32)}, {"m": np.zeros(5, np.float32)}
    file = zip_file({**plain, "model": weights, "optimizer": moments})
    path = written(tmp_path / "x.pt", with_member(file, "archive/data/1", None))
    content, arrays = read_state_dict(path, "model")
    assert (content["args"], content["n"]) == ({"a": 1, "b": [0.5, "é", (None, True)]}, -(2**70))
    assert list(arrays) == ["w"]
    for state, problem in (("optimizer", "no item named 'archive/data/1'|KeyError"), (None, "it is no state dict")):
        with pytest.raises(ConversionError, match=problem):
            read_state_dict(path, state)


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("name", [*OBJECTS_BESIDE, "system", "eval", "getattr", "dotted"])
def test_an_object_beside_the_state_dict_is_neither_made_nor_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Any
) -> None:
    for module, function in ((os, "system"), (builtins, "eval"), (subprocess, "Popen")):
        monkeypatch.setattr(module, function, lambda *_: pytest.fail("called"))
    other = Raw(OBJECTS_BESIDE.get(name) or OBJECTS[name][0])
    weights = {"w": np.arange(3, dtype=np.float32)}
    _, arrays = read_state_dict(written(tmp_path / "x.pt", write({"before": other, "model": weights})), "model")
    assert (list(arrays), arrays["w"].tolist()) == (["w"], [0, 1, 2])
    with pytest.raises(ConversionError, match="only arrays and plain data are read, and no code is run|no state dict"):
        read_state_dict(written(tmp_path / "x.pt", write({"model": weights | {"v": other}})), "model")


def test_newer_protocols_are_read(tmp_path: Path) -> None:
    """``torch.save`` has the argument ``pickle_protocol``: names come from the stack, and the memo has no keys."""
    args = b"\x8c\x04args\x94\x8c\x08argparse\x94\x8c\x09Namespace\x94\x93\x94)\x81\x94}\x8c\x01ah\x00sb"
    pickle = Raw(b"}\x94(" + args + scalar("model") + Pickle({"w": np.ones(3, np.float32)}).content[2:-1] + b"u")
    file = zip_file({"model": {"w": np.ones(3, np.float32)}})
    path = written(tmp_path / "x.pt", with_member(file, "archive/data.pkl", Pickle(pickle).content))
    found, arrays = read_state_dict(path, "model")
    assert (found["args"], arrays["w"].tolist()) == ({"a": found}, [1, 1, 1])


@pytest.mark.parametrize("write", [zip_file, older_file])
@pytest.mark.parametrize("name", OBJECTS)
def test_pickles_with_code_or_arrays_beyond_their_storage_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Any
) -> None:
    """Nothing is called, and little memory is taken."""
    monkeypatch.chdir(tmp_path)
    for module, function in ((os, "system"), (builtins, "eval"), (subprocess, "Popen")):
        monkeypatch.setattr(module, function, lambda *_: pytest.fail("called"))
    pickle, problem = OBJECTS[name]
    value = Raw(pickle) if isinstance(pickle, bytes) else {"w": pickle} if isinstance(pickle, View) else pickle
    path = written(tmp_path / "x.bin", write(value))
    tracemalloc.start()
    try:
        with pytest.raises(ConversionError, match=problem) as caught:
            read_state_dict(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: ")
    assert peak < 100_000_000
    assert list(tmp_path.iterdir()) == [path]


def test_arguments_that_would_be_endless_as_text_are_refused_shortly(tmp_path: Path) -> None:
    """A tuple that has another one twice, which has another one twice, sixty times."""
    READERS["fairseq"].write(tmp_path)
    arguments = {"encoder_attention_heads": Raw(HALVES)}
    content, arrays = read_state_dict(tmp_path / "checkpoint_best.pt", "model")
    written(tmp_path / "checkpoint_best.pt", older_file({"args": content["args"] | arguments, "model": arrays}))
    with pytest.raises(ConversionError, match="checkpoint_best.pt: expected the setting encoder_attention_heads") as e:
        read_parts(tmp_path)
    assert len(str(e.value)) < 500


ZIP, OLDER = zip_file({"w": FLOATS}), older_file({"w": FLOATS})
FILES = {  # files that are corrupt or of another kind
    "compressed": (zip_file({"w": FLOATS}, kind=zipfile.ZIP_DEFLATED), "has no compressed members"),
    "short storage": (with_member(ZIP, "archive/data/0", bytes(4)), "archive/data/0 has 4 bytes, expected 24"),
    "byte order": (with_member(ZIP, "archive/byteorder", b"middle"), "KeyError: b'middle'"),
    "long pickle": (with_member(ZIP, "archive/data.pkl", b"]" * 5_000_000), "data.pkl has more than 4,194,304 bytes"),
    "two pickles": (with_member(ZIP, "other/data.pkl", pickled({})), "too many values to unpack"),
    "truncated": (ZIP[:-40], "BadZipFile"),
    "older, truncated": (OLDER[:-4], "it is truncated"),
    "older, values": (OLDER[:-32] + bytes(32), "storage '0' has 0 values, expected 6"),
    "older, long pickle": (OLDER[:40] + b"](" * 5_000_000, "ValueError"),
    "version": (pickled(0x1950A86A20F9469CFC6C) + pickled(1), "ValueError: it begins like no file of PyTorch"),
    "text": (b"hello", "ValueError: at position 0, opcode b'h' unknown|has the opcode|not enough|KeyError"),
    "empty": (b"", "ValueError: pickle exhausted before seeing STOP"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_corrupt_or_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    content, problem = FILES[name]
    with pytest.raises(ConversionError, match=problem):
        read_state_dict(written(tmp_path / "x.bin", content))


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    """The list of an archive names a member a hundred times."""
    content = with_member(ZIP, "archive/data/0", bytes(10_000))
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    first = content.index(b"archive/data/0", start) - 46
    entry = content[first : first + 46 + 14]
    more = b"".join(entry.replace(b"data/0", b"data/" + chr(33 + i).encode()) for i in range(90))
    tail = struct.pack("<HHLL", 94, 94, end - start + len(more), start)
    path = written(tmp_path / "x.bin", content[:end] + more + content[end : end + 8] + tail + b"\0\0")
    with pytest.raises(ConversionError, match="the members have more bytes than the file"):
        read_state_dict(path)


@pytest.mark.parametrize(("name", "write", "is_sharded"), [
    ("pytorch_model.bin", zip_file, False), ("pytorch_model.bin", older_file, False),
    ("pytorch_model.bin", zip_file, True), ("model.safetensors", None, True),
])  # fmt: skip
def test_a_marian_model_is_the_same_from_every_file_of_weights(
    tmp_path: Path, name: str, write: Callable[[object], bytes] | None, is_sharded: bool
) -> None:
    READERS["marian"].write(tmp_path)
    arrays, expected = read_arrays(tmp_path / "model.safetensors"), read_parts(tmp_path).weights
    (tmp_path / "model.safetensors").unlink()
    index = {array: f"{i % 2}-{name}" if is_sharded else name for i, array in enumerate(sorted(arrays))}
    for file in set(index.values()):
        some = {array: arrays[array] for array in index if index[array] == file}
        if write is None:
            write_arrays(tmp_path / file, some)
        else:
            written(tmp_path / file, write(some))
    if is_sharded:
        content = {"metadata": {"total_size": 1}, "weight_map": index}
        (tmp_path / f"{name}.index.json").write_text(json.dumps(content))
    assert recognise(tmp_path) == "marian"
    found = read_parts(tmp_path).weights
    assert found.keys() == expected.keys()
    assert all(found[weight].tobytes() == expected[weight].tobytes() for weight in expected)


@pytest.mark.parametrize(("index", "problem"), [
    ({"w": "../x.safetensors"}, "weight_map: expected names of .safetensors or .bin files; got '../x.safetensors'"),
    ({"w": "x.safetensors.index.json"}, "weight_map: expected names"),
    ({"w": 7}, "weight_map: expected names .* got 7"),
    ({"w": "z.safetensors"}, "z.safetensors: not found"),
    ({"w": "x.safetensors"}, "x.safetensors has no w; is it of the same model"),
    ({"v": "x.safetensors", "w": "y.safetensors"}, "y.safetensors has v, too, unlike the index; is it of the same mod"),
])  # fmt: skip
def test_an_index_that_lies_is_refused(tmp_path: Path, index: dict[str, object], problem: str) -> None:
    """Also if it leaves out an array of a shard that it names: a program that reads whole shards would take it."""
    write_arrays(tmp_path / "x.safetensors", {"v": FLOATS})
    write_arrays(tmp_path / "y.safetensors", {"w": 2 * FLOATS, "v": 2 * FLOATS})
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": index}))
    with pytest.raises(UserError, match=problem):
        WeightsFile.load(path)
    path.write_text(json.dumps({"weight_map": {"v": "x.safetensors"}}))
    assert list(WeightsFile.load(path)) == ["v"]


def test_one_checkpoint_is_chosen(tmp_path: Path) -> None:
    patterns = ("best.ckpt", "*.ckpt")
    assert weights_file(tmp_path, *patterns) == tmp_path / "model.safetensors"
    for name in ("1000.ckpt", "2000.ckpt"):
        (tmp_path / name).touch()
    with pytest.raises(ConversionError, match=r"has 2 checkpoints \(1000.ckpt, 2000.ckpt, …\); keep one of them there"):
        weights_file(tmp_path, *patterns)
    (tmp_path / "best.ckpt").touch()
    assert weights_file(tmp_path, *patterns) == tmp_path / "best.ckpt"
    (tmp_path / "model.safetensors").touch()
    assert weights_file(tmp_path, *patterns) == tmp_path / "model.safetensors"
