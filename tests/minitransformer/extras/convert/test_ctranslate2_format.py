"""CTranslate2's binary files, made by hand, byte by byte: all versions, all types, and corrupt ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from minitransformer.extras.convert.ctranslate2 import ModelFile, dequantised, read_model_file
from minitransformer.extras.convert.ctranslate2_writer import stored_as, write_model_file
from minitransformer.extras.convert.parts import ConversionError

HALF = b"\x00\x38\x00\xc0"  # 0.5 and −2 in float16


def string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def variable(name: str, shape: tuple[int, ...], kind: int, size: int, values: bytes) -> bytes:
    """``kind``, ``size``: number of the type, number of bytes; before version 4, bytes of a value, number of values."""
    return (
        string(name)
        + bytes([len(shape)])
        + struct.pack(f"<{len(shape)}I", *shape)
        + struct.pack("<BI", kind, size)
        + values
    )


def model(version: int, *variables: bytes, aliases: bytes = b"\0\0\0\0") -> bytes:
    head = struct.pack("<I", version) + string("TransformerSpec") + struct.pack("<II", 7, len(variables))
    return head + b"".join(variables) + (aliases if version >= 3 else b"")


def written(directory: Path, content: bytes) -> Path:
    path = directory / "model.bin"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_old_versions_know_the_size_of_values_only(version: int, tmp_path: Path) -> None:
    content = model(
        version,
        variable("a", (2,), 4, 2, struct.pack("<2f", 1.5, -2.0)),
        variable("b", (1, 2), 2, 2, struct.pack("<2h", 300, -4)),
        variable("c", (), 1, 1, b"\x07"),
    )
    file = read_model_file(written(tmp_path, content))
    assert (file.model, file.revision) == ("TransformerSpec", 7)
    assert {name: (array.dtype.name, array.tolist()) for name, array in file.variables.items()} == {
        "a": ("float32", [1.5, -2.0]),
        "b": ("int16", [[300, -4]]),
        "c": ("int8", 7),
    }


@pytest.mark.parametrize("version", [4, 5, 6])
def test_new_versions_know_types_and_aliases(version: int, tmp_path: Path) -> None:
    content = model(
        version,
        variable("w", (2, 1), 1, 2, b"\x7f\x81"),
        variable("w_scale", (2,), 0, 8, struct.pack("<2f", 127.0, 254.0)),
        variable("h", (2,), 4, 4, HALF),
        variable("i", (), 3, 4, struct.pack("<i", -70_000)),
        aliases=struct.pack("<I", 1) + string("also") + string("w"),
    )
    path = written(tmp_path, content)
    file = read_model_file(path)
    assert {name: (array.dtype.name, array.tolist()) for name, array in file.variables.items()} == {
        "w": ("int8", [[127], [-127]]),
        "also": ("int8", [[127], [-127]]),
        "w_scale": ("float32", [127.0, 254.0]),
        "also_scale": ("float32", [127.0, 254.0]),
        "h": ("float16", [0.5, -2.0]),
        "i": ("int32", -70_000),
    }
    real = dequantised(path, file.variables)
    assert {name: (array.dtype.name, array.tolist()) for name, array in real.items()} == {
        "w": ("float32", [[1.0], [-0.5]]),
        "also": ("float32", [[1.0], [-0.5]]),
        "h": ("float32", [0.5, -2.0]),
        "i": ("int32", -70_000),
    }


def test_int16_has_one_scale_and_without_it_1000(tmp_path: Path) -> None:
    weights = np.array([[500, -250], [1, 0]], np.int16)
    assert dequantised(tmp_path, {"w": weights})["w"].tolist() == [[0.5, -0.25], [np.float32(0.001), 0]]
    scaled = dequantised(tmp_path, {"w": weights, "w_scale": np.array(250, np.float32)})
    assert {name: array.tolist() for name, array in scaled.items()} == {"w": [[2, -1], [np.float32(0.004), 0]]}


@pytest.mark.parametrize("scale", [
    None, np.array([1, 0], np.float32), np.array([1, np.nan], np.float32), np.ones(3, np.float32), np.ones(2, np.int8),
])  # fmt: skip
def test_int8_needs_a_positive_scale_for_each_row(scale: np.ndarray | None, tmp_path: Path) -> None:
    variables = {"w": np.ones((2, 2), np.int8)} | ({} if scale is None else {"w_scale": scale})
    with pytest.raises(ConversionError, match=r"w is quantised \(int8\): expected positive scales, .* its 2 rows"):
        dequantised(tmp_path, variables)


@pytest.mark.parametrize(("version", "kind", "size", "message"), [
    (6, 5, 2, "w is of type bfloat16; expected one of float32, int8"), (6, 9, 2, "w is of type number 9"),
    (2, 3, 1, "w is of type of 3 bytes"),
])  # fmt: skip
def test_bfloat16_four_bits_and_unknown_types_are_refused_by_name(
    version: int, kind: int, size: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=message):
        read_model_file(
            written(tmp_path, model(version, variable("w", (1,), kind, size, bytes(3 if version == 2 else 2))))
        )
    packed = {"w": np.ones((1, 1), np.int32), "w_scale": np.ones(1, np.float32), "w_zero": np.ones(1, np.int32)}
    with pytest.raises(ConversionError, match="w has 4-bit values"):
        dequantised(tmp_path, packed)


def test_other_versions_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"model.bin: cannot be read as .* \(No such file"):
        read_model_file(tmp_path / "model.bin")
    for version in (0, 1, 7, 2**32 - 1):
        with pytest.raises(ConversionError, match=f"expected version 2 to 6 of CTranslate2's format, got {version};"):
            read_model_file(written(tmp_path, model(version)))


GOOD = model(
    6,
    variable("b", (), 1, 1, b"\1"),
    variable("weight", (2, 2), 0, 16, bytes(16)),
    aliases=b"\1\0\0\0" + string("x") + string("b"),
)


def test_a_file_that_ends_anywhere_is_truncated(tmp_path: Path) -> None:
    for length in range(len(GOOD)):
        with pytest.raises(
            ConversionError, match=r"needs \d+ bytes, but \d+ are left of the file: .* truncated or cor"
        ):
            read_model_file(written(tmp_path, GOOD[:length]))


@pytest.mark.parametrize(("content", "problem"), [
    (GOOD + b"\0", "1 bytes are left over"),
    (model(6, variable("w", (2, 2), 0, 12, bytes(12))), r"w has shape \(2, 2\) of float32, but 12 bytes"),
    (model(6, variable("w", (2**31, 2**31), 0, 16, bytes(16))), "w has shape .* but 16 bytes"),
    (model(6, variable("w", (0, 7), 0, 0, b"")), "w has shape .* but 0 bytes"),
    (model(6, variable("w", (2**30,), 1, 2**30, b"")), "w needs 1,073,741,824 bytes, but 4 are left"),
    (model(2, variable("w", (2**32 - 1,), 4, 2**32 - 1, b"")), "w needs 17,179,869,180 bytes, but 0 are left"),
    (GOOD.replace(b"weight", b"we\xffght"), "a variable's name is not UTF-8"),
])  # fmt: skip
def test_counts_are_not_trusted(content: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=f"at byte .*{problem}"):
        read_model_file(written(tmp_path, content))


def test_version_6_is_written(tmp_path: Path) -> None:
    variables = {"weight": np.zeros((2, 2), np.float32), "b": np.array(1, np.int8)}
    write_model_file(tmp_path / "model.bin", ModelFile("TransformerSpec", 7, variables), {"x": "b"})
    assert (tmp_path / "model.bin").read_bytes() == GOOD


def test_weights_are_stored_in_the_types_that_ctranslate2_gives_them() -> None:
    weights = {
        "a/weight": np.array([[0.5, -1], [0, 0], [3e-39, 0]], np.float32),
        "a/bias": np.array([0.25], np.float32),
    }
    assert stored_as(weights, "float32") == weights
    half = stored_as(weights | {"n": np.array(8, np.int16)}, "float16")
    assert {name: array.dtype.name for name, array in half.items()} == {
        "a/weight": "float16",
        "a/bias": "float16",
        "n": "int16",
    }
    eighth = stored_as(weights, "int8")
    assert {name: array.dtype.name for name, array in eighth.items()} == {
        "a/weight": "int8",
        "a/weight_scale": "float32",
        "a/bias": "float32",
    }
    assert eighth["a/weight"].tolist() == [[64, -127], [0, 0], [1, 0]]
    assert eighth["a/weight_scale"].tolist()[:2] == [127, 1]
    assert np.isfinite(eighth["a/weight_scale"]).all()


@pytest.mark.parametrize(("value", "storage"), [(7e4, "float16"), (np.nan, "float32"), (np.inf, "int8")])
def test_values_that_cannot_be_stored_are_refused(value: float, storage: str) -> None:
    with pytest.raises(ConversionError, match=rf"a/weight: expected finite values of at most .*\({storage}\)"):
        stored_as({"a/weight": np.array([[1, value]], np.float32)}, storage)  # type: ignore[arg-type]
