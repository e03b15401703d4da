"""The gradient of a rank's micro-batches of a batch: computed on threads, added along a fixed tree."""

from __future__ import annotations

from collections.abc import Sequence

from autograd import RandomStream, backward, namespace
from autograd.array import Array, lasting, staying_here
from autograd.blas import product_threads
from minitransformer.model.batch import ModelInput
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import ThreadPool, even_slices


class GradientAccumulator:
    """Sums of losses and gradients over the micro-batches of a rank.

    The micro-batches are the leaves of a binary tree: their sequence is halved until one micro-batch is left.  The two
    halves may be computed on different threads, but they are always added in the same order.  So the sum does not
    depend on the number of threads.  A rank holds whole subtrees, whose sums the ``GradientReducer`` adds.  So the sum
    does not depend on the number of ranks, either.
    """

    def __init__(self, model: Transformer, *, n_threads: int) -> None:
        self.model, self.n_threads = model, n_threads
        self._executor = ThreadPool(
            max(1, n_threads - 1), thread_name_prefix="micro-batch", initializer=staying_here(model.device)
        )
        self._free: list[Array] = []

    def compute(self, micro_batches: Sequence[ModelInput | None], streams: Sequence[RandomStream]) -> Array:
        """Write Σ dloss/dθ over this rank's micro-batches to the model's gradients; return Σ loss, in nats.

        A micro-batch that is None has no sentences.  Without micro-batches the gradients do not change.  The loss is a
        float64 array without axes on the model's device, so that the call need not wait for the device.  Each matrix
        product has one thread.
        """
        gradients = self.model.parameters.gradients
        loss: Array = namespace(gradients).zeros(())
        if micro_batches:
            with product_threads(1):
                loss = loss + self._sum(list(zip(micro_batches, streams, strict=True)), gradients, self.n_threads)
        return loss

    def _sum(self, leaves: list[tuple[ModelInput | None, RandomStream]], out: Array, n_threads: int) -> Array:
        """Write the sum of the gradients of ``leaves`` to ``out``, with at most ``n_threads`` threads."""
        if len(leaves) == 1:
            micro_batch, stream = leaves[0]
            if micro_batch is None:
                out[...] = 0
                return 0.0
            loss_of_shard = self.model.loss(micro_batch, stream)
            backward(loss_of_shard, into=out)
            return loss_of_shard.value.astype("float64")
        left, right = leaves[: len(leaves) // 2], leaves[len(leaves) // 2 :]
        of_right = self._borrow(out)
        if n_threads > 1:
            future = self._executor.submit(self._sum, right, of_right, n_threads // 2)
            loss = self._sum(left, out, n_threads - n_threads // 2)
            loss += future.result()
        else:
            loss = self._sum(left, out, 1)
            loss += self._sum(right, of_right, 1)
        self._add(out, of_right, n_threads)
        self._free.append(of_right)
        return loss

    def _add(self, out: Array, other: Array, n_threads: int) -> None:
        """Add ``other`` to ``out`` in place, on the threads that have computed the two."""

        def add(part: slice) -> None:
            out[part] += other[part]

        first, *others = even_slices(len(out), n_threads)
        futures = [self._executor.submit(add, part) for part in others]
        add(first)
        for future in futures:
            future.result()

    def _borrow(self, like: Array) -> Array:
        """Return a free buffer, or a new one; the padding between parameters is zero."""
        try:
            return self._free.pop()
        except IndexError:
            with lasting(self.model.device):
                return namespace(like).zeros_like(like)
