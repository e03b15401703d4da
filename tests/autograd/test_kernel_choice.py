"""Kernels of a device are registered at its first use, unless the references are chosen."""

from __future__ import annotations

import numpy as np
import pytest

from autograd import ops
from autograd.kernel_choice import at_first_use, choose_kernels, kernels_for, register_kernels
from autograd.op import with_kernels
from autograd.optim import adam_update
from autograd.random import random_words


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows when kernels for "cuda" are registered."""
    calls: list[str] = []
    monkeypatch.setitem(at_first_use, "cuda", lambda: calls.append("cuda"))
    return calls


def test_kernels_are_registered_once_at_the_first_use_of_their_device(registered: list[str]) -> None:
    register_kernels("cpu")
    assert registered == []
    register_kernels("cuda")
    register_kernels("cuda")
    assert registered == ["cuda"]


def test_operations_with_a_kernel_are_found_by_name() -> None:
    on_cpu = kernels_for("cpu")
    assert on_cpu["layer_norm"] is ops.layer_norm
    assert on_cpu["adam_update"] is adam_update
    assert on_cpu["random_words"] is random_words
    assert "add" not in on_cpu
    assert "layer_norm" not in kernels_for("cuda")


def test_kernels_of_one_device_can_be_removed(kernels_kept: None) -> None:
    operation = kernels_for("cpu")["layer_norm"]
    operation.kernel("cuda")(operation.kernels[0].run)
    assert kernels_for("cuda") == {"layer_norm": operation}
    operation.remove_kernels("cuda")
    assert kernels_for("cuda") == {}
    assert kernels_for("cpu")["layer_norm"] is operation


def test_references_run_if_they_are_chosen(registered: list[str], kernels_kept: None) -> None:
    choose_kernels("compiled")
    assert kernels_for("cpu")
    choose_kernels("reference")
    assert [operation.name for operation in with_kernels if operation.kernels] == []
    register_kernels("cuda")
    assert registered == []
    x = np.ones((2, 3), np.float32)
    assert ops.layer_norm.choose((x, x[0], x[0]), {}) is ops.layer_norm.reference
