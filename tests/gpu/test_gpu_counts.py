"""Counted instructions and predicted times of the CUDA kernels; needs neither a GPU nor nvdisasm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from gpu_counts import predicted, table_of_counts
from gpu_launches import Launches
from gpu_sass import Counts, Kernel, blocks_of, innermost, reachable, texts_of

NESTED = """
\t.section\t.text.nested
.text.nested:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.U16 R2, desc[UR4][R2.64] ;
.L_x_2:
        /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0040*/                   BRA.DIV UR4, `(.L_x_4) ;
.L_x_3:
        /*0050*/               @P0 BRA `(.L_x_2) ;
        /*0060*/              @!P1 BRA `(.L_x_1) ;
        /*0070*/                   STG.E desc[UR4][R2.64], R8 ;
        /*0080*/                   EXIT ;
.L_x_4:
        /*0090*/                   WARPSYNC.COLLECTIVE R9, `(.L_x_5) ;
.L_x_5:
        /*00a0*/                   BRA `(.L_x_3) ;
.L_x_6:
        /*00b0*/                   BRA `(.L_x_6);
"""


def test_the_body_of_the_innermost_loop_is_counted_without_slow_paths() -> None:
    ((name, text),) = texts_of(NESTED)
    blocks = reachable(blocks_of(text.splitlines()))
    (loop,) = innermost(blocks)
    inside = Counts.of([one for i in sorted(loop) for one in blocks[i].instructions])
    whole = Counts.of([one for block in blocks.values() for one in block.instructions])
    assert name == "nested"
    assert inside == Counts(instructions=4, products=1, memory=1, loaded=16)
    assert whole == Counts(instructions=9, products=1, memory=3, loaded=18)


def kernel(name: str, n_instructions: int, *loops: Counts) -> Kernel:
    return Kernel(name, "source.cu", 32, 0, Counts(n_instructions, 0, 0, 0), list(loops))


def test_a_kernel_without_loops_takes_as_long_as_its_instructions_or_its_bytes() -> None:
    """Of Adam, three arrays are written, too: 4 GB of arrays of 1 GB are 7 GB."""
    few, many = (predicted(kernel("adam_update_bf16", n), Launches(1, 1e6, 4e9, 1e9)) for n in (100, 100_000))
    assert few.milliseconds == pytest.approx(7 / 4.3)
    assert many.milliseconds == pytest.approx(1e6 * 100_000 / (132 * 4 * 1.755e9) * 1e3)


def test_loops_run_as_often_as_their_loads_pass_over_the_largest_array() -> None:
    """Two passes over 3,200 bytes, 64 of which a warp loads at once; 30 instructions outside of loops for 10 warps.

    The first loop that loads as many bytes is another version of the second, and counts once.
    """
    loops = Counts(20, 0, 1, 2), Counts(30, 0, 1, 2), Counts(40, 0, 1, 2), Counts(10, 0, 1, 0)
    found = predicted(kernel("cross_entropy_bf16", 100, *loops), Launches(1, 10, 4_000, 3_200))
    assert found.instructions == 50 * 30 + 50 * 40 + 10 * 30


def test_a_loop_over_elements_passes_over_all_tokens_of_a_launch() -> None:
    """25,088 tokens of width 512, of which a warp has 4 rows of 256 columns in an iteration, for each of two tables."""
    loops = Counts(20, 0, 1, 22), Counts(165, 0, 1, 88)
    found = predicted(kernel("add_rows_bf16", 400, *loops), Launches(2, 10, 0, 0))
    assert found.instructions == 2 * 25_088 * 512 / (4 * 256) * 165 + 10 * (400 - 165)


def test_counts_are_printed_for_every_loop() -> None:
    *_, line = table_of_counts([kernel("dropout_forward_bf16", 90, Counts(50, 4, 1, 2), Counts(7, 0, 1, 0))])
    assert line == "| `dropout_forward_bf16` | 32 (0) | 90, 0, 0 | 50, 4, 2; 7, 0, 0 |"
