"""A stand-in for CuPy that runs on the CPU and is as strict as CuPy where code for a GPU goes wrong without one.

Its arrays are no NumPy arrays, refuse to become one unless asked by ``get()``, and take
no NumPy array as an operand, an index or an argument: only ``asarray`` and ``array`` copy from host to device.  It is
stricter than CuPy in one thing: NumPy's own functions do not accept its arrays (CuPy would run its twin of them).
With bfloat16 it does nothing but move, convert, and add arrays of it alone: NumPy and CuPy promote it differently, CuPy
multiplies only matrices of it, not batches, and has no scatter-add for it.
It offers what this project uses, and every name of it exists in CuPy.  It has no einsum, which CuPy makes a batch of
matrix products, however small they are.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import fake_cuda
import fake_streams
import numpy as np

__name__, __version__ = "cupy", "stand-in"

inf, nan, newaxis = np.inf, np.nan, None
float32, float64, int32, int64, uint16, uint32, uint64, bool_ = (
    np.float32, np.float64, np.int32, np.int64, np.uint16, np.uint32, np.uint64, np.bool_,
)  # fmt: skip


class ndarray:  # noqa: N801  (CuPy's name)
    """An array of the device: a NumPy array that only this module may access."""

    __array_ufunc__ = None  # NumPy: leave ``numpy_array + array`` to __radd__, which refuses it
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Any) -> None:
        self._values, self._block = _placed(np.asarray(values))

    def get(self, stream: Any = None, *, out: Any = None, blocking: bool = True) -> Any:
        """Return a copy on the host, which is filled only after a synchronisation, unless the copy itself waits."""
        fake_streams.refuse("get")
        if out is None:
            _read("get")
            return self._values.copy()
        assert (out.shape, out.dtype) == (self._values.shape, self._values.dtype)
        if blocking:
            _read("get")
            out[...] = self._values
        else:
            fake_streams.poison(out)
            values = self._values.copy()
            (stream or fake_streams.get_current_stream()).late.append(lambda: out.__setitem__(..., values))
        return out

    def set(self, values: Any, stream: Any = None) -> None:
        """Copy from the host; in a stream other than the current one the copy is delayed."""
        fake_streams.refuse("set")
        assert isinstance(values, np.ndarray)
        assert (values.shape, values.dtype) == (self._values.shape, self._values.dtype)
        fake_cuda.CALLS.append(("upload", values.nbytes))
        there = self._values
        if stream is None or stream is fake_streams.get_current_stream():
            there[...] = values
        else:
            fake_streams.poison(there)
            stream.late.append(lambda: there.__setitem__(..., values))

    def __array__(self, *arguments: Any, **keywords: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    data = property(lambda self: SimpleNamespace(ptr=self._values.ctypes.data))
    T = property(lambda self: ndarray(self._values.T))

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> ndarray:
        key, values = _index(index), self._values
        return fake_streams.made(lambda: values[key], [values], ndarray)

    def __setitem__(self, index: Any, value: Any) -> None:
        key, operand, values = _index(index), _operand(value), self._values
        fake_streams.do(lambda: values.__setitem__(key, operand))

    def __repr__(self) -> str:
        return f"cupy.{self._values!r}"


def _read(how: str) -> None:
    """Read a value, which waits for the device."""
    fake_streams.refuse(how)
    fake_streams.run_late(fake_streams.get_current_stream())
    fake_cuda.CALLS.append(("read", how))


def _reading(name: str, convert: Callable[[Any], Any]) -> Callable[[ndarray], Any]:
    """Return a method that reads the only element."""

    def read(self: ndarray) -> Any:
        _read(name)
        return convert(self._values)

    return read


def _placed(values: Any) -> tuple[Any, Any]:
    """Copy new arrays to memory that is aligned as CuPy's; return views and arrays not stored by rows unchanged.

    The second result is the block of a pool in which they lie, if it is of one.
    """
    if not (values.flags.owndata and values.flags.c_contiguous):
        return values, fake_streams.block_of(values)
    buffer, block = fake_streams.memory(values.nbytes)
    aligned = buffer.view(values.dtype).reshape(values.shape)
    aligned[...] = values
    return aligned, block


def _waiting(name: str) -> Callable[..., ndarray]:
    """Return a function that waits for the device: it sorts, or its result's shape depends on values."""
    function = _on_arguments(getattr(np, name))

    def wait(*arguments: Any, **keywords: Any) -> Any:
        _read(name)
        return function(*arguments, **keywords)

    return wait


def _operand(x: Any) -> Any:
    """Return the other operand of arithmetic: an array or a number."""
    if isinstance(x, ndarray):
        return x._values
    if isinstance(x, bool | int | float | complex | np.generic):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def _index(index: Any) -> Any:
    """Return an index whose arrays are on the device; a final ellipsis makes even one element an array.

    To select by an array of booleans, CuPy waits for the device, which counts them.
    """
    parts = index if isinstance(index, tuple) else (index,)
    if builtins.any(isinstance(part, ndarray) and part._values.dtype == bool for part in parts):
        raise TypeError("an index of booleans waits for the device; use where or copyto")
    host = tuple(_argument(part) for part in parts)
    return host if builtins.any(part is Ellipsis for part in parts) else (*host, Ellipsis)


def _argument(x: Any) -> Any:
    """Return an argument of a function: arrays, also in sequences, must be on the device; others pass unchanged."""
    if isinstance(x, ndarray):
        return x._values
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    return type(x)(map(_argument, x)) if isinstance(x, list | tuple) else x


def _arrays(x: Any) -> Iterator[Any]:
    if isinstance(x, np.ndarray):
        yield x
    elif isinstance(x, list | tuple):
        for part in x:
            yield from _arrays(part)


def _is_bfloat16(x: Any) -> bool:
    return isinstance(x, ndarray) and x._values.dtype.name == "bfloat16"


def _refuse_bfloat16(what: str, *operands: Any) -> None:
    for operand in operands:
        if _is_bfloat16(operand):
            raise TypeError(f"{what} of bfloat16: NumPy and CuPy differ; convert to float32 first")


def _on_arguments(function: Callable[..., Any], *, moves: bool = True) -> Callable[..., ndarray]:
    def on_device(*arguments: Any, **keywords: Any) -> ndarray:
        if function in (np.dot, np.matmul, np.tensordot):
            fake_streams.refuse("cuBLAS")
        if not moves:
            _refuse_bfloat16(function.__name__, *arguments)
        if keywords.keys() & {"initial", "where"}:
            raise TypeError(f"CuPy has no keyword 'initial' or 'where'; got {sorted(keywords)}")
        out, host = keywords.get("out"), {name: _argument(x) for name, x in keywords.items()}
        on_host = [_argument(x) for x in arguments]
        if out is not None:
            fake_streams.do(lambda: function(*on_host, **host))
            return out
        return fake_streams.made(lambda: function(*on_host, **host), list(_arrays(on_host)), ndarray)

    return on_device


def _operator(name: str, *, reflected: bool = False, in_place: bool = False) -> Callable[[ndarray, Any], Any]:
    in_python = getattr(operator, name)

    def operate(self: ndarray, other: Any) -> Any:
        if name == "matmul":
            fake_streams.refuse("cuBLAS")
        is_foreign = getattr(other, "__array_ufunc__", False) is None and not isinstance(other, ndarray)
        if is_foreign and not (reflected or in_place):
            return NotImplemented  # such as a Tensor; CuPy, too, reads the attribute from the object
        if reflected or name not in ("add", "iadd") or not (_is_bfloat16(self) and _is_bfloat16(other)):
            _refuse_bfloat16(name, self, other)
        values, operand = self._values, _operand(other)
        if in_place:
            fake_streams.do(lambda: in_python(values, operand))
            return self
        left, right = (operand, values) if reflected else (values, operand)
        return fake_streams.made(lambda: in_python(left, right), [], ndarray)

    return operate


def _method(name: str) -> Callable[..., ndarray]:
    def method(values: Any, *arguments: Any, **keywords: Any) -> Any:
        return getattr(values, name)(*arguments, **keywords)

    return _on_arguments(method, moves=name in _MOVES)


_MOVES = {
    "ascontiguousarray", "astype", "copy", "empty_like", "ones_like", "reshape", "swapaxes", "take", "transpose",
    "view", "zeros_like",
}  # fmt: skip


_ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor",
)  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_METHODS = (
    "all", "any", "argmax", "argmin", "astype", "copy", "dot", "max", "mean", "min", "ravel", "repeat",
    "reshape", "squeeze", "std", "sum", "swapaxes", "take", "transpose", "var", "view",
)  # fmt: skip
_FUNCTIONS = (
    "abs", "absolute", "all", "any", "arange", "argmax", "ascontiguousarray",
    "broadcast_to", "cos", "cumsum", "divide", "dot", "exp", "expand_dims",
    "flip", "full", "full_like", "isfinite", "isnan", "log", "log1p", "logaddexp", "logical_and", "logical_not",
    "matmul", "max", "maximum", "mean", "min", "minimum", "moveaxis", "multiply", "ones", "ones_like", "outer",
    "prod", "repeat", "reshape", "sign", "sin", "sqrt", "square", "squeeze", "stack", "subtract", "sum", "swapaxes",
    "take", "take_along_axis", "tanh", "tensordot", "tile", "transpose", "tril", "triu", "var", "where", "zeros",
    "zeros_like",
)  # fmt: skip
_WAITING = ("argpartition", "argsort", "argwhere", "flatnonzero", "nonzero", "partition", "sort")

for _name in ("base", "dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides"):
    setattr(ndarray, _name, property(operator.attrgetter(f"_values.{_name}")))
for _convert in (float, int, builtins.bool, operator.index):
    setattr(ndarray, f"__{_convert.__name__}__", _reading(_convert.__name__, _convert))
for _name in _ARITHMETIC:
    _python_name = f"{_name}_" if _name in ("and", "or") else _name
    setattr(ndarray, f"__{_name}__", _operator(_python_name))
    setattr(ndarray, f"__r{_name}__", _operator(_python_name, reflected=True))
    setattr(ndarray, f"__i{_name}__", _operator(f"i{_name}", in_place=True))
for _name in _COMPARISONS:
    setattr(ndarray, f"__{_name}__", _operator(_name))
for _name in ("neg", "pos", "invert", "abs"):
    setattr(ndarray, f"__{_name}__", _on_arguments(getattr(operator, _name), moves=False))
for _name in _METHODS:
    setattr(ndarray, _name, _method(_name))
for _name in _FUNCTIONS:
    globals()[_name] = _on_arguments(getattr(np, _name), moves=_name in _MOVES)
for _name in _WAITING:
    globals()[_name] = _waiting(_name)


def array(x: Any, dtype: Any = None) -> ndarray:
    """Return a copy on the device, from the host or from the device."""
    if not isinstance(x, ndarray):
        fake_streams.refuse("a copy from the host")
        fake_cuda.CALLS.append(("upload", np.asarray(x).nbytes))
        return ndarray(np.array(x, dtype))
    values = x._values
    return fake_streams.made(lambda: np.array(values, dtype), [], ndarray)


_concatenated = _on_arguments(np.concatenate)


def concatenate(arrays: Any, axis: int = 0) -> ndarray:
    """Concatenate arrays; of more than eight CuPy copies the addresses from the host, so no graph can contain it."""
    if len(arrays) > 8:
        fake_streams.refuse("concatenate")
    return _concatenated(arrays, axis)


def asarray(x: Any, dtype: Any = None) -> ndarray:
    """Return ``x`` itself if it is an array of that dtype on the device, else a copy there."""
    return x if isinstance(x, ndarray) and dtype in (None, x._values.dtype) else array(x, dtype)


def copyto(to: ndarray, values: Any, *, where: ndarray) -> None:
    """Store the values where ``where`` is true."""
    there, operand, mask = to._values, _operand(values), where._values
    fake_streams.do(lambda: np.copyto(there, operand, where=mask))


def _unwritten(function: Callable[..., Any]) -> Callable[..., ndarray]:
    def poisoned(*arguments: Any, **keywords: Any) -> ndarray:
        fake_streams.allocate()
        array = ndarray(function(*map(_argument, arguments), **keywords))
        values = array._values
        fake_streams.poison(values)
        fake_streams.do(lambda: fake_streams.poison(values))
        return array

    return poisoned


empty, empty_like = _unwritten(np.empty), _unwritten(np.empty_like)


lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=_on_arguments(np.lib.stride_tricks.as_strided)))
get_default_memory_pool = fake_streams.get_default_memory_pool
cuda = SimpleNamespace(
    Device=fake_cuda.Device,
    Event=fake_streams.Event,
    Memory=fake_cuda.Memory,
    MemoryPointer=fake_cuda.MemoryPointer,
    MemoryPool=fake_streams.MemoryPool,
    Stream=fake_streams.Stream,
    get_current_stream=fake_streams.get_current_stream,
    using_allocator=fake_streams.using_allocator,
    set_allocator=fake_streams.set_allocator,
    get_elapsed_time=lambda start, end: 1e3 * (end.seconds - start.seconds),
    alloc_pinned_memory=fake_cuda.alloc_pinned_memory,
    runtime=fake_cuda.runtime,
)


class _Add:
    """``add``, with the unbuffered scatter-add of a ufunc."""

    __call__ = staticmethod(_on_arguments(np.add, moves=False))

    @staticmethod
    def at(x: ndarray, index: Any, values: Any) -> None:
        _refuse_bfloat16("add.at", x, values)
        there, key, operand = x._values, _argument(index), _operand(values)
        fake_streams.do(lambda: np.add.at(there, key, operand))


add = _Add()
