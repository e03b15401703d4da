"""A small reverse-mode automatic differentiation engine on NumPy and CuPy arrays.

``Tensor`` carries gradients, ``autograd.ops`` holds the operations, ``backward(loss)`` walks the tape.
"""

from importlib.util import find_spec

from autograd import ops
from autograd.array import DeviceError, namespace, to_device, to_host
from autograd.masks import AttentionMask, CachedKeys, KeyIndices, KeyRanges, Segments
from autograd.op import ShapeError, op
from autograd.ops.cross_entropy import SmoothedClasses
from autograd.parameters import Layer, Parameter, ParameterBuffer, named_parameters
from autograd.random import RandomStream
from autograd.tensor import BackwardError, TapeError, Tensor, backward, no_tape

if find_spec(f"{__name__}.kernels"):  # without this package the reference operations run, more slowly
    from autograd import kernels  # noqa: F401

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
