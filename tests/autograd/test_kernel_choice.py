"""Kernels of a device can be found, and removed so that the references run."""

from __future__ import annotations

import numpy as np

from autograd import ops
from autograd.kernel_choice import choose_kernels, kernels_for
from autograd.op import with_kernels
from autograd.optim import adam_update
from autograd.random import random_words


def test_operations_with_a_kernel_are_found_by_name() -> None:
    on_cpu = kernels_for("cpu")
    assert on_cpu["layer_norm"] is ops.layer_norm
    assert on_cpu["adam_update"] is adam_update
    assert on_cpu["random_words"] is random_words
    assert "add" not in on_cpu


def test_kernels_of_one_device_can_be_removed(kernels_kept: None) -> None:
    operation = kernels_for("cpu")["layer_norm"]
    operation.kernel("cuda")(operation.kernels[0].run)
    assert kernels_for("cuda") == {"layer_norm": operation}
    operation.remove_kernels("cuda")
    assert kernels_for("cuda") == {}
    assert kernels_for("cpu")["layer_norm"] is operation


def test_references_run_if_they_are_chosen(kernels_kept: None) -> None:
    choose_kernels("compiled")
    assert kernels_for("cpu")
    choose_kernels("reference")
    assert [operation.name for operation in with_kernels if operation.kernels] == []
    x = np.ones((2, 3), np.float32)
    assert ops.layer_norm.choose((x, x[0], x[0]), {}) is ops.layer_norm.reference
