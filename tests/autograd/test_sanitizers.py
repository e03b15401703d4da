"""The C kernels with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which(os.environ.get("CC") or "cc")
FILES = [
    "test_kernels.py", "test_adam.py", "test_attention.py", "test_cross_entropy.py", "test_dropout.py",
    "test_fused_ops.py", "test_packed_weight.py", "test_random.py", "test_softmax.py", "test_top_k.py",
]  # fmt: skip
SANITIZED = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"


def runtime() -> str:
    """Return the path of AddressSanitizer's library, "" if the compiler has none; Python must load it first."""
    if COMPILER is None:
        return ""
    named = subprocess.run([COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = named.stdout.strip()
    return path if Path(path).is_absolute() else ""


def run_sanitized(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "LD_PRELOAD": runtime(),
            "ASAN_OPTIONS": "detect_leaks=0",
            "MINITRANSFORMER_CFLAGS": SANITIZED,
        },
        capture_output=True,
        text=True,
        check=False,
    )


needs_sanitizer = pytest.mark.skipif(not runtime(), reason="no C compiler with AddressSanitizer is here")


@needs_sanitizer
def test_the_sanitizer_sees_a_kernel_that_writes_behind_an_array() -> None:
    done = run_sanitized(
        "-c",
        """if True:
        import numpy as np
        from autograd.kernels.cpu.library import Function
        x = np.zeros(1_000, np.float32)
        Function("apply_mask")(x, np.zeros(1_000, np.uint8), np.zeros(999, np.float32), 1_000, 1.0)
        """,
    )
    assert done.returncode
    assert "heap-buffer-overflow" in done.stderr


@needs_sanitizer
@pytest.mark.slow
def test_no_kernel_does() -> None:
    done = run_sanitized("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(str(HERE / file) for file in FILES))
    assert not done.returncode, done.stdout[-5_000:] + done.stderr[-5_000:]
