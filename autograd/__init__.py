"""A small reverse-mode automatic differentiation engine on NumPy and CuPy arrays.

``Tensor`` carries gradients, ``autograd.ops`` holds the operations, ``backward(loss)`` walks the tape.
"""

import logging
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

if sys.version_info < (3, 11):  # noqa: UP036  (a clone can be imported without being installed)
    raise ImportError(
        f"minitransformer needs Python 3.11 or newer; this is {sys.version.split()[0]}, {sys.executable}: install it in"
        " a virtual environment of a newer one (in a clone: make demo PYTHON=python3.12)",
        name="minitransformer",
    )

from autograd import ops
from autograd.array import DeviceError, namespace, to_device, to_host
from autograd.masks import AttentionMask, CachedKeys, KeyIndices, KeyRanges, Segments
from autograd.op import ShapeError, op
from autograd.ops.cross_entropy import SmoothedClasses
from autograd.parameters import Layer, Parameter, ParameterBuffer, named_parameters
from autograd.random import RandomStream
from autograd.tensor import BackwardError, TapeError, Tensor, backward, no_tape

if find_spec("autograd.kernels"):  # without this package the reference operations run, more slowly
    import autograd.kernels  # noqa: F401

if Path(__file__).with_name("tracer.py").exists():  # a file of PyPI's autograd
    logging.getLogger(__name__).warning(
        f"{Path(__file__).parent} has files of two packages: minitransformer's autograd has replaced PyPI's, whose"
        " functions (grad) are gone; install each in a virtual environment of its own"
    )

__all__ = [
    "AttentionMask",
    "BackwardError",
    "CachedKeys",
    "DeviceError",
    "KeyIndices",
    "KeyRanges",
    "Layer",
    "Parameter",
    "ParameterBuffer",
    "RandomStream",
    "Segments",
    "ShapeError",
    "SmoothedClasses",
    "TapeError",
    "Tensor",
    "backward",
    "named_parameters",
    "namespace",
    "no_tape",
    "op",
    "ops",
    "to_device",
    "to_host",
]

_FUNCTIONS_OF_PYPI = frozenset(
    {"elementwise_grad", "grad", "hessian", "jacobian", "make_jvp", "make_vjp", "numpy", "value_and_grad"}
)


def __getattr__(name: str) -> NoReturn:
    """Raise ImportError for a name of PyPI's ``autograd``, which this package replaces if both are installed."""
    if name in _FUNCTIONS_OF_PYPI:
        raise ImportError(
            f"the package autograd in {Path(__file__).parent} is minitransformer's, which has no {name!r}: install"
            " PyPI's autograd in another virtual environment, or use autograd.Tensor and autograd.backward"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
