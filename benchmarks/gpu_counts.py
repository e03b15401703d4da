"""The time of an update of the base model, predicted without a GPU from counted instructions and bytes.

    pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm
    PYTHONPATH=.:tests/support python benchmarks/gpu_counts.py          (half a minute; prints a Markdown table)
    PYTHONPATH=.:tests/support python benchmarks/gpu_counts.py norm     (counts of kernels with "norm" in their name)

Kernels are compiled for sm_90 and disassembled; launches, warps and bytes are recorded from an update whose kernels
compute nothing.  A kernel takes as long as its bytes need at the speed of memory, or its instructions at the rate at
which a card issues them, whichever is longer.  This is a prediction: latency, caches and imbalance are not in it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from gpu_launches import OTHERS, Launches, recorded
from gpu_sass import Counts, Kernel, kernels

from minitransformer import ModelConfig, presets
from minitransformer.training.flops import training_flops

TOKENS, WORDS, WIDTH = 25_088, 37_000, 512  # of a side; of the vocabulary; d_model
BYTES_A_SECOND = 4.3e12  # of an H200's memory, as copies reach
ISSUED_A_SECOND = 132 * 4 * 1.755e9  # multiprocessors, schedulers of each, cycles a second
FLOPS_A_SECOND, EFFICIENCY = 790e12, 0.75  # of matrix products in bfloat16; the part that they reach on average


class Work(NamedTuple):
    """The facts of a kernel that its counts do not show.  All numbers of this table are typed in.

    ``unit`` is what one iteration of a main loop does.  The main loops are chosen from the innermost ones, in the order
    of the bytes that they load, the most first: ``loops`` are their positions in it.  Of the unit "load" a loop passes
    once over an array as large as the kernel's largest, and the bytes that an iteration loads are counted.  Of
    "elements" a launch passes over (tokens, d_model), of which a lane has ``n_elements`` in an iteration.
    ``n_rewritten`` arrays as large as the largest are read and written.
    """

    kernels: str
    unit: str = ""
    loops: tuple[int, ...] = ()
    n_elements: int = 0
    n_rewritten: int = 0


WORK = (
    Work("cross_entropy_", "load", (1, 2), n_rewritten=1),  # the loop at 0 is for models with an impossible word
    Work("(add|layer)_norm_backward_", "row", (0,)),
    Work("sum_of_rows_|sum_squares", "load", (0,)),
    Work("embed_bf16", "elements", (0,), n_elements=8),
    Work("add_rows_bf16", "elements", (0,), n_elements=4 * 8),  # of four rows
    Work("adam_update_", n_rewritten=3),
)
NO_WORK = Work("")


class Prediction(NamedTuple):
    """A row of the table; instructions are those that warps issue."""

    kernel: Kernel
    launches: Launches
    work: Work
    loops: list[Counts]
    instructions: float
    n_bytes: float

    @property
    def milliseconds(self) -> float:
        return 1e3 * max(self.n_bytes / BYTES_A_SECOND, self.instructions / ISSUED_A_SECOND)


def work_of(name: str) -> Work:
    """Return the row of ``WORK`` for a kernel, or one that says nothing: then loops count once."""
    return next((work for work in WORK if re.match(work.kernels, name)), NO_WORK)


def predicted(kernel: Kernel, launches: Launches) -> Prediction:
    """Return instructions: of main loops by their iterations, of all other code once a warp; and bytes."""
    work = work_of(kernel.name)
    by_bytes = sorted(kernel.loops, key=lambda loop: -loop.loaded)
    loops = [by_bytes[position] for position in work.loops]
    instructions = launches.warps * (kernel.whole.instructions - sum(loop.instructions for loop in loops))
    instructions += sum(iterations(work, loop, launches) * loop.instructions for loop in loops)
    return Prediction(
        kernel, launches, work, loops, instructions, launches.n_bytes + work.n_rewritten * launches.largest
    )


def iterations(work: Work, loop: Counts, launches: Launches) -> float:
    """Return how often warps run the body of a loop in an update."""
    if work.unit == "row":
        return launches.launches * TOKENS
    if work.unit == "elements":
        return launches.launches * TOKENS * WIDTH / (32 * work.n_elements)
    return launches.largest / (32 * loop.loaded)


def milliseconds_of_products(config: ModelConfig) -> float:
    """Return the time of all matrix products; sentences have one token, so that attention costs next to nothing."""
    lengths = np.ones(TOKENS, np.int64)
    return 1e3 * training_flops(config, lengths, lengths) / (FLOPS_A_SECOND * EFFICIENCY)


def table(predictions: list[Prediction]) -> Iterator[str]:
    """Yield the lines of a Markdown table, the longest first."""
    yield (
        "| kernel | launches | registers (spilled bytes) | instructions: all, matrix, memory"
        " | main loops: instructions, matrix (unit) | issued, 10⁶ | GB | ms |"
    )
    yield "|-|-|-|-|-|-|-|-|"
    for row in sorted(predictions, key=lambda row: -row.milliseconds):
        kernel, whole = row.kernel, row.kernel.whole
        loops = ", ".join(f"{loop.instructions}, {loop.products}" for loop in row.loops)
        loops = f"{loops} ({row.work.unit})" if loops else "loops count once" if kernel.loops else "no loop"
        yield (
            f"| `{kernel.name}` | {row.launches.launches:.0f} | {kernel.registers} ({kernel.spilled})"
            f" | {whole.instructions}, {whole.products}, {whole.memory} | {loops} | {row.instructions / 1e6:,.0f}"
            f" | {row.n_bytes / 1e9:.2f} | {row.milliseconds:.2f} |"
        )


def table_of_counts(counted: list[Kernel]) -> Iterator[str]:
    """Yield the lines of a Markdown table of kernels, whatever an update launches."""
    yield (
        "| kernel | registers (spilled bytes) | instructions: all, matrix, memory"
        " | innermost loops: instructions, matrix, bytes that a thread loads |"
    )
    yield "|-|-|-|-|"
    for name, _, registers, spilled, whole, loops in counted:
        of_loops = "; ".join(f"{loop.instructions}, {loop.products}, {loop.loaded}" for loop in loops) or "none"
        counts = f"{whole.instructions}, {whole.products}, {whole.memory}"
        yield f"| `{name}` | {registers} ({spilled}) | {counts} | {of_loops} |"


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", help="count the kernels with this in their name, and predict nothing")
    text, compiled = parser.parse_args().text, {kernel.name: kernel for kernel in kernels()}
    if text is None:
        predict(compiled)
    else:
        print("\n".join(table_of_counts([kernel for name, kernel in compiled.items() if text in name])))


def predict(compiled: dict[str, Kernel]) -> None:
    """Print the prediction."""
    config = presets.base(WORDS)
    launched = recorded(config, TOKENS)
    arrays = launched.pop(OTHERS)
    rows = [predicted(compiled[name], launches) for name, launches in launched.items()]
    of_products, of_arrays = milliseconds_of_products(config), 1e3 * 2 * arrays.n_bytes / BYTES_A_SECOND
    print("\n".join(table(rows)))
    print(f"| matrix products | | | | | | | {of_products:.2f} |")
    print(f"| {OTHERS} | {arrays.launches:.0f} | | | | | {2 * arrays.n_bytes / 1e9:.2f} | {of_arrays:.2f} |")
    total = of_products + of_arrays + sum(row.milliseconds for row in rows)
    print(f"| **sum, predicted** | | | | | | | **{total:.1f}** |\n")
    others = [kernel for name, kernel in compiled.items() if name not in launched]
    print(
        f"{len(others)} other kernels were compiled: at most {max(kernel.registers for kernel in others)} registers,"
        f" {sum(kernel.spilled for kernel in others)} bytes spilled.\n"
    )
    print(ASSUMPTIONS)


ASSUMPTIONS = f"""\
A prediction for {TOKENS:,} tokens a side and {WORDS:,} words, not a measurement: a kernel that waits for memory, or has
few warps, takes longer. Counted from the code: instructions, registers, bytes that an iteration
loads. Recorded from an update without a graph: launches, warps, and bytes, of which every array of a launch counts
once. Typed in: {BYTES_A_SECOND / 1e12} TB/s, {ISSUED_A_SECOND / 1e9:.0f} · 10⁹ warp instructions a second,
{FLOPS_A_SECOND / 1e12:.0f} TFLOP/s at {EFFICIENCY:.0%} for products, the units of main loops, which arrays are
both read and written, and that an operation of CuPy reads as many bytes as it writes. The embedding's tables count
whole, though only the rows of a batch are accessed. Attention's loop over keys runs once for sentences of up to 64
tokens; slots that a warp skips are counted, too. Left out: operations of CuPy in place, and the gaps between
kernels."""


if __name__ == "__main__":
    main()
