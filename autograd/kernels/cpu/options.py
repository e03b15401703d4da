"""The compiler's options for the C functions.  The build of a wheel runs this file, so it imports nothing."""

# No -ffast-math: it may reorder sums by the alignment of an array.  Loops that add have explicit lanes instead.
FLAGS = (
    "-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC",
    "-shared", "-pthread",
)  # fmt: skip
WIDE = "-mprefer-vector-width=512"  # else GCC and Clang use only 256 of AVX-512's 512 bits
_AVX2 = ("-mavx2", "-mfma", "-mbmi2")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512cd", "-mavx512bw", "-mavx512dq", "-mavx512vl", WIDE)
_AMX = ("-mamx-tile", "-mamx-bf16", "-mamx-int8")  # used only where the processor and its system have it
BUILDS = {True: ((), _AVX2, _AVX512, (*_AVX512, "-mavx512vnni", "-mavx512bf16", *_AMX)), False: ((),)}
"""The builds in a wheel for x86, and for others: options for ever newer processors (``runs_build`` in C)."""
