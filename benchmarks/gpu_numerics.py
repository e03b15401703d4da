"""Is every kernel right?  Forward and backward, on odd sizes, in memory full of NaN, against float64 on the CPU."""

from __future__ import annotations

from typing import Any

from gpu_card import Card

from autograd.array import namespace_of_device
from autograd.kernel_choice import kernels_for
from autograd.kernels.cuda.check import GuardedMemory, largest_errors


def run(card: Card) -> bool:
    """Record the largest error of each kernel in each dtype."""
    memory = GuardedMemory()
    namespace_of_device("cuda").cuda.set_allocator(memory.allocate)

    def errors(name: str) -> dict[str, Any]:
        return {"errors": largest_errors(name, card.sizes.numerics, memory)}

    return all([card.attempt(name, lambda name=name: errors(name)) for name in sorted(kernels_for("cuda"))])
