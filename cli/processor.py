"""The core type that makes OpenBLAS use AVX-512 on Zen 5, which OpenBLAS does not recognise.

This module must not import NumPy: OpenBLAS chooses its kernels when NumPy is loaded.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

CORE_TYPE = "OPENBLAS_CORETYPE"
CPU_INFO = Path("/proc/cpuinfo")
BYTES = 4_096  # to read from the beginning of the file; they describe the first core


def name_processor_to_openblas(environment: MutableMapping[str, str]) -> None:
    """Let OpenBLAS use AVX-512 on Zen 5: products in float32 are twice as fast.

    OpenBLAS 0.3.31, a part of NumPy 2.4, does not detect that this processor has AVX-512.  A name that the user has set
    is kept.  Source: https://github.com/OpenMathLib/OpenBLAS/issues/6029.
    """
    if CORE_TYPE not in environment and _is_zen_5_with_avx512():
        environment[CORE_TYPE] = "SkylakeX"


def _is_zen_5_with_avx512() -> bool:
    try:
        with CPU_INFO.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(BYTES).splitlines()
    except OSError:
        return False
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    needed = {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"}
    is_zen_5 = facts.get("vendor_id") == "AuthenticAMD" and facts.get("cpu family") == "26"
    return is_zen_5 and needed <= set(facts.get("flags", "").split())
