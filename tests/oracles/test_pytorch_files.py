"""Files of torch.save are read as PyTorch reads them, and PyTorch reads those of the tests' own writer."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from against_torch import torch
from pytorch_files import View, older_file, zip_file

from minitransformer.extras.convert.foreign_files import read_state_dict

TYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


def state_dict() -> dict[str, Any]:
    """Tensors of every type, views that share a storage, parameters, and a module's own state dict."""
    numbers = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)) * 9
    state = {name: numbers.to(getattr(torch, name)) for name in TYPES}
    state |= {"transposed": numbers.T, "column": numbers[:, 2], "strided": numbers[1::2, ::3], "number": numbers[3, 3]}
    state |= {"expanded": numbers[:1].expand(4, 5), "empty": numbers[:0], "row": numbers.bfloat16()[2]}
    state["parameter"] = torch.nn.Parameter(numbers[2:4])
    return state | torch.nn.Linear(3, 4).state_dict()


@pytest.mark.parametrize("settings", [
    {}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 3}, {"pickle_protocol": 4},
    {"pickle_protocol": 5, "_use_new_zipfile_serialization": False},
], ids=str)  # fmt: skip
def test_arrays_are_those_of_pytorch(tmp_path: Path, settings: dict[str, Any]) -> None:
    state, path = state_dict(), tmp_path / "x.pt"
    torch.save({"args": argparse.Namespace(a=[1, 0.5, None]), "model": state}, path, **settings)
    content, arrays = read_state_dict(path, "model")
    assert content["args"] == {"a": [1, 0.5, None]}
    assert_are(arrays, state)


@pytest.mark.parametrize("write", [zip_file, partial(zip_file, order="big"), older_file])
def test_files_of_the_tests_are_read_as_by_pytorch(tmp_path: Path, write: Any) -> None:
    storage, upper = np.arange(12, dtype=np.float32), np.array([0x3F80, 0xC000], np.uint16)
    state = {"a": View(storage, 1, (2, 3), (1, 4), is_parameter=True), "b": View(upper, 0, (2,), (1,))}
    state |= {"c": np.arange(4), "d": np.float16([[1], [2]])}
    (tmp_path / "x.pt").write_bytes(write({"args": argparse.Namespace(a=1), "model": state}))
    torch.serialization.add_safe_globals([argparse.Namespace])
    expected = torch.load(tmp_path / "x.pt", weights_only=True)
    _, arrays = read_state_dict(tmp_path / "x.pt", "model")
    assert expected["args"] == argparse.Namespace(a=1)
    assert expected["model"]["a"].tolist() == [[1, 5, 9], [2, 6, 10]]
    assert_are(arrays, expected["model"])


def assert_are(arrays: dict[str, Any], tensors: dict[str, Any]) -> None:
    assert arrays.keys() == tensors.keys()
    for name, tensor in tensors.items():
        expected = tensor.detach().float() if tensor.dtype == torch.bfloat16 else tensor.detach()
        np.testing.assert_array_equal(arrays[name], expected.numpy(), strict=True)
