"""Is every kernel right?  Forward and backward, on odd sizes, in memory full of NaN, against float64 on the CPU."""

from __future__ import annotations

from typing import Any

from gpu_card import Card

from autograd.array import namespace_of_device
from autograd.kernel_registry import kernels_for
from autograd.kernels.cuda.check import TOLERANCE, GuardedMemory, worst_case


def run(card: Card) -> bool:
    """All of them; the worst case of each kernel is recorded."""
    memory = GuardedMemory()
    namespace_of_device("cuda").cuda.set_allocator(memory.allocate)

    def most_off(name: str, dtype: str) -> dict[str, Any]:
        error, case = worst_case(name, dtype, card.sizes.numerics, memory)
        return {"most_off": error, "of": case or "no case of this dtype"}

    works = [
        card.attempt(name, lambda name=name, dtype=dtype: most_off(name, dtype), dtype=dtype)
        for name in sorted(kernels_for("cuda"))
        for dtype in TOLERANCE
    ]
    return all(works)
