"""Gradients in arrays that only the backward pass holds."""

from __future__ import annotations

from autograd.array import Array
from autograd.tensor import PendingGradient


class NewArray(PendingGradient):
    """A gradient that is computed already, in an array that nothing else refers to.

    So ``backward`` adds other gradients to this array in place.  It copies an array that is returned as it is, because
    others may hold it.
    """

    def __init__(self, array: Array) -> None:
        self.shape, self.like = array.shape, array

    def write_to(self, out: Array) -> None:
        """Implement ``PendingGradient``."""
        out[...] = self.like

    def add_to(self, out: Array) -> None:
        """Implement ``PendingGradient``."""
        out += self.like

    def to_array(self) -> Array:
        """Return the array itself."""
        return self.like
