"""The C kernels compiled for Arm, called in an emulator: a pytest plugin (``-p arm_kernels``).

Each call sends its arrays to a process of ``qemu-aarch64``, and receives them as the function left them.  So tests of
kernels test those for Arm, on any machine.
"""

import ctypes
import functools
import os
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autograd.kernels.cpu import library as cpu

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
PROGRAM = "KERNELS_FOR_ARM"  # the environment variable with the path of the compiled program
FLAGS = [flag for flag in cpu.FLAGS if flag not in ("-fPIC", "-shared")]
KEY = pytest.StashKey["Emulator"]()


def compile_for_arm(extensions: str, directory: Path) -> Path:
    """Compile all kernels, and the program that calls them, for Arm with these extensions (``-march``)."""
    names = "\n".join(f"FUNCTION({name})" for name in cpu.library().functions)
    (directory / "functions.h").write_text(names + "\n")
    sources = [Path(__file__).with_name("arm_server.c"), *sorted(cpu.SOURCES.glob("*.c"))]
    program = directory / "kernels"
    subprocess.run(
        [COMPILER, *FLAGS, f"-march={extensions}", "-static", f"-I{directory}", *sources, "-lm", "-o", program],
        check=True,
    )
    return program


class Emulator:
    """A running emulator that calls functions, one at a time."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [EMULATOR, "-cpu", "max", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.n_calls = 0
        self._lock = threading.Lock()

    def call(self, name: str, types: Any, result: Any, *arguments: Any) -> Any:
        """Call the function ``name``, whose arguments and result have these types of ctypes."""
        message, arrays = _message(name, types, arguments)
        with self._lock:
            self.n_calls += 1
            self.process.stdin.write(message)
            self.process.stdin.flush()
            bits = self._read(8)
            for array in arrays:
                received = np.frombuffer(self._read(array.nbytes), array.dtype).reshape(array.shape)
                if array.flags.writeable:
                    array[...] = received
        if result is None:
            return None
        return struct.unpack("=d" if result is ctypes.c_double else "=fxxxx", bits)[0]

    def _read(self, size: int) -> bytes:
        read = self.process.stdout.read(size)
        assert len(read) == size, "the emulator has ended"
        return read


def _message(name: str, types: Any, arguments: tuple[Any, ...]) -> tuple[bytes, list[Any]]:
    """Return a call as arm_server.c reads it, and its arrays; one that is passed twice is the same array there."""
    parts, arrays, indices = [struct.pack("64sq", name.encode(), len(arguments))], [], {}
    for index, (argument, type_) in enumerate(zip(arguments, types, strict=True)):
        if type_ is ctypes.c_float:
            parts.append(struct.pack("=cff", b"f", argument, 0.0))
        elif type_ is ctypes.c_double:
            parts.append(struct.pack("=cd", b"f", argument))
        elif not isinstance(argument, np.ndarray):
            parts.append(struct.pack("=cQ", b"i", int(argument or 0) & (1 << 64) - 1))
        else:
            type_.from_param(argument)  # refuses another type
            key = argument.ctypes.data, argument.nbytes
            if key in indices:
                parts.append(struct.pack("=cq", b"s", indices[key]))
            else:
                indices[key] = index
                arrays.append(argument)
                parts += [struct.pack("=cq", b"a", argument.nbytes), argument.tobytes()]
    return b"".join(parts), arrays


def pytest_configure(config: pytest.Config) -> None:
    """Replace the functions of the library by those that the emulator runs."""
    config.stash[KEY] = emulator = Emulator(os.environ[PROGRAM])
    library = cpu.library()
    functions = {
        name: functools.partial(emulator.call, name, function.argtypes, function.restype)
        for name, function in library.functions.items()
    }
    cpu._libraries[:] = [library._replace(functions=functions)]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the emulator."""
    emulator = config.stash[KEY]
    emulator.process.communicate()
    print(f"{emulator.n_calls} calls in the emulator")
