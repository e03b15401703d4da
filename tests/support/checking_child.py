"""The child process that checks CUDA kernels, on the stand-ins.

    python checking_child.py FAULTS GPU [CHECK …]

FAULTS is "{}", which checks every kernel by emulation, or a JSON object of kernels and the faults to plant in them
("" for none): these kernels alone are checked, and each is its reference with this fault, which may end with " in
float16" and the like.  A "GPU" there is its compute capability.
"""

import ctypes
import functools
import json
import signal
import sys
import time
from typing import Any

import fake_cuda
import fake_streams
import gpu_stand_in

gpu_stand_in.install()

from autograd.kernel_registry import kernels_for  # noqa: E402
from autograd.kernels.cuda import check_child, register_all  # noqa: E402
from autograd.precision import in_float32, is_16_bit, rounds_to_tf32  # noqa: E402

check_child.LENGTHS, check_child.WAVE, check_child.WORDS[:] = (1, 17), 256, [(61,)]


def unusable(*arguments: Any) -> None:
    raise RuntimeError("illegal address")


def run(reference: Any, fault: str, *arguments: Any, **static: Any) -> Any:
    if fault == "raises":
        raise RuntimeError("out of\nluck")
    if fault == "has no memory":
        raise MemoryError("out of memory")
    if fault == "makes CUDA unusable":
        fake_streams.Stream.synchronize = unusable  # type: ignore[method-assign]
        unusable()
    if fault == "is slow":
        time.sleep(1)
    if fault == "hangs":
        seconds_left = signal.alarm(0)
        assert seconds_left > 100, "the child has no time limit"
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(1_000)
    compute = functools.partial(in_float32, lambda *_: reference) if any(map(is_16_bit, arguments)) else reference
    y, backward = compute(*arguments, **static)
    if fault == "is wrong":
        y *= 1.001
    elif fault == "leaves NaN":
        y[-1] = float("nan")
    elif fault.startswith("writes"):
        ctypes.memset(y.data.ptr + (y.nbytes if fault == "writes behind" else -1), 0, 1)
    elif fault == "has a wrong gradient":
        return y, lambda dy: [None if x is None else -x for x in backward(dy)]
    return y, backward


def run_in_dtype(reference: Any, fault: str, *arguments: Any, **static: Any) -> Any:
    what, _, dtype = fault.partition(" in ")
    here = "tf32" if rounds_to_tf32() else str(arguments[0].dtype)
    return run(reference, what if dtype in ("", here) else "", *arguments, **static)


def plant(faults: dict[str, str]) -> None:
    register_all()
    for name, operation in kernels_for("cuda").items():
        operation.remove_kernels("cuda")
        if name in faults:
            operation.kernel("cuda", takes_16_bits=True)(
                functools.partial(run_in_dtype, operation.reference, faults[name])
            )


if __name__ == "__main__":
    faults = json.loads(sys.argv[1])
    fake_cuda.Device.compute_capability = faults.pop("GPU", "90")
    if faults:
        plant(faults)
    check_child.main(sys.argv[2:])
