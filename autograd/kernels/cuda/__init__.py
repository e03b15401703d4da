"""Kernels for CuPy arrays, in CUDA C++, compiled on first use."""

import importlib

from autograd.kernel_registry import at_first_use

MODULES = (
    "adam", "arithmetic", "attention", "beam", "clip", "cross_entropy", "dropout", "embedding", "feed_forward",
    "layer_norm", "linear", "linear_maps", "top_k",
)  # fmt: skip


def register_all() -> None:
    """Register every kernel without a check, and cancel the check at the first use of a GPU."""
    at_first_use("cuda", lambda: None)
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
