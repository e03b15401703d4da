"""Kernels of a device are registered at its first use; a context may choose the references."""

from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import cuda_kernels
import numpy as np
import pytest

from autograd import ops
from autograd.kernel_registry import at_first_use, kernels_for, references_only, register_kernels
from autograd.op import JointKernels
from autograd.optim import adam_update
from autograd.random import random_words

X = np.ones((2, 3), np.float32)
REFERENCE = ops.layer_norm.reference


def layer_norm() -> Any:
    """Return the implementation of layer_norm that this thread would run."""
    return ops.layer_norm.choose((X, X[0], X[0]), {})


@pytest.fixture
def registered() -> Iterator[list[str]]:
    """A list that grows when kernels for "cuda" are registered."""
    calls: list[str] = []
    at_first_use("cuda", lambda: calls.append("cuda"))
    yield calls
    at_first_use("cuda", lambda: None)


def test_kernels_are_registered_once_at_the_first_use_of_their_device(registered: list[str]) -> None:
    register_kernels("cpu")
    with references_only():  # which need none
        register_kernels("cuda")
    assert registered == []
    register_kernels("cuda")
    register_kernels("cuda")
    assert registered == ["cuda"]


def test_a_registration_that_fails_is_tried_again(registered: list[str]) -> None:
    def fail_once() -> None:
        at_first_use("cuda", lambda: registered.append("another"))  # as register_all does
        registered.append("cuda")
        if len(registered) == 1:
            raise OSError("no space left")

    at_first_use("cuda", fail_once)
    with pytest.raises(OSError, match="no space left"):
        register_kernels("cuda")
    register_kernels("cuda")
    assert registered == ["cuda", "cuda"]


def test_operations_with_a_kernel_are_found_by_name_and_kernels_of_one_device_removed(kernels_kept: None) -> None:
    on_cpu, operation = kernels_for("cpu"), ops.layer_norm
    assert (on_cpu["layer_norm"], on_cpu["adam_update"]) == (operation, adam_update)
    assert on_cpu["random_words"] is random_words
    operation.kernel("cuda")(operation.kernels[0].run)
    assert kernels_for("cuda") == {"layer_norm": operation}
    operation.remove_kernels("cuda")
    assert kernels_for("cuda") == {}
    assert kernels_for("cpu") == on_cpu


def test_kernels_may_be_removed_from_calls_of_one_dtype(kernels_kept: None) -> None:
    kernel = layer_norm()
    ops.layer_norm.remove_kernels("cpu", "bfloat16", "float16")
    assert layer_norm() is kernel
    assert ops.layer_norm.may_run("cpu", "float32")
    assert not ops.layer_norm.may_run("cpu", "float32", "float16")
    ops.layer_norm.remove_kernels("cpu", "float32")
    assert layer_norm() is REFERENCE
    assert kernels_for("cpu")["layer_norm"] is ops.layer_norm


def test_references_run_only_where_they_are_chosen() -> None:
    kernel = layer_norm()
    assert kernel is not REFERENCE
    assert ops.layer_norm.may_run("cpu")
    assert not ops.layer_norm.may_run("cuda")
    with references_only():
        assert layer_norm() is REFERENCE
        assert not ops.layer_norm.may_run("cpu")
        with references_only(when=False):
            assert layer_norm() is REFERENCE
        assert layer_norm() is REFERENCE
    assert layer_norm() is kernel
    with references_only(when=False):
        assert layer_norm() is kernel
    with references_only():
        context = copy_context()
    assert context.run(layer_norm) is REFERENCE


def test_kernels_for_gpus_and_joint_kernels_obey(kernels_kept: None) -> None:
    joint = JointKernels("joint")
    joint.kernel("cpu")(lambda x: ([x], lambda dys: dys))
    with cuda_kernels.registered(), references_only():
        assert ops.layer_norm.first_that_supports((X, X[0], X[0]), {}) is None
        assert joint.compute(X) is None
    assert joint.compute(X) is not None
