"""One update of the parameters: gradients of micro-batches on threads, their sum over ranks, clipping, optimizer."""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import cached_property, partial, reduce
from operator import add
from typing import SupportsFloat, TypeAlias

import numpy as np

from autograd import RandomStream, Tensor, namespace, to_device, to_host
from autograd.array import Array, IntArray, persistent_pool, pin_to_device
from autograd.bfloat16_products import bfloat16_products
from autograd.blas import product_threads
from autograd.optim import Adam, Optimizer, clip, sum_squares
from autograd.parameters import ONE_BUCKET, Buckets, backward_in_buckets
from minitransformer.config import ConfigError, TrainingConfig
from minitransformer.config.checks import imported_class, imported_function, require
from minitransformer.config.training import ADAM, SCHEDULES
from minitransformer.model.batch import Batch
from minitransformer.model.fixed_batch import ModelInput
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import ThreadPool, even_slices
from minitransformer.training.flops import flops_of_pairs
from parallel.communicator import Communicator, micro_batches_of_rank
from parallel.reducer import GradientReducer


def learning_rate(step: int, d_model: int, config: TrainingConfig) -> float:
    """Return the learning rate of update ``step``, counted from 1.

    "paper": factor · d_model^−½ · min(step^−½, step · warmup_steps^−3/2), Vaswani et al. 2017, section 5.3, equation 3.
    "linear", "cosine", "constant": the same up to ``warmup_steps``; then the rate falls to 0 after ``max_updates``, in
    a line or in half a cosine wave, or stays.
    Raises: ConfigError if a function of the user cannot be imported, or returns no rate; ValueError if ``step`` < 1.
    """
    if step < 1:
        raise ValueError(f"learning_rate: steps count from 1, got {step}")
    if config.schedule not in SCHEDULES:
        rate = imported_function("training.schedule", config.schedule)(step, config)
        is_rate = isinstance(rate, SupportsFloat) and not getattr(rate, "shape", ()) and 0 <= float(rate) < math.inf
        require(is_rate, "training.schedule", f"a function that returns a rate for update {step:,}", rate)
        return float(rate)
    warmup_steps, scale = config.warmup_steps, config.learning_rate_factor * d_model**-0.5
    rising = step * warmup_steps**-1.5
    if config.schedule == "paper" or step <= warmup_steps:
        return float(scale * min(step**-0.5, rising))
    left = max(0.0, (config.max_updates + 1 - step) / (config.max_updates + 1 - warmup_steps))
    share = {"linear": left, "cosine": math.sin(left * math.pi / 2) ** 2, "constant": 1.0}[config.schedule]
    return float(scale * warmup_steps**-0.5 * share)


Leaf: TypeAlias = tuple[ModelInput | None, RandomStream, Array | None]  # see ``GradientAccumulator.compute``


def optimizer_class(config: TrainingConfig) -> type[Optimizer]:
    """Return the class of the optimizer that ``training.optimizer`` names.

    Raises: ConfigError if a class of the user cannot be imported, or is no optimizer.
    """
    if config.optimizer == ADAM:
        return Adam
    return imported_class("training.optimizer", config.optimizer, Optimizer)


def frozen_parameters(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that match a pattern of ``training.freeze``.

    Raises: ConfigError if a pattern matches no name, or the patterns match all names.
    """
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            parts = [name.split(".") for name in names]
            beginnings = [".".join([*part[:n], "*"]) for part in parts for n in range(1, len(part))]
            known = list(dict.fromkeys([*beginnings, *(f"*.{part[-1]}" for part in parts), *names]))
            close = difflib.get_close_matches(pattern, known, n=3) or list(dict.fromkeys(part[0] for part in parts))
            raise ConfigError(f"training.freeze: no parameter matches {pattern!r}; there are {', '.join(close)}")
    frozen = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if len(frozen) == len(names):
        raise ConfigError(f"training.freeze: {', '.join(patterns)} leaves no parameter to train; take a pattern out")
    return frozen


class GradientAccumulator:
    """Sums of losses and gradients over the micro-batches of a rank.

    The micro-batches are the leaves of a binary tree: their sequence is halved until one micro-batch is left.  The two
    halves may be computed on different threads, but they are always added in the same order.  So the sum does not
    depend on the number of threads.  A rank holds whole subtrees, whose sums the ``GradientReducer`` adds.  So the sum
    does not depend on the number of ranks, either.
    """

    def __init__(self, model: Transformer, *, n_threads: int, rounds_factors: bool = False) -> None:
        self.model, self.n_threads, self._rounds_factors = model, n_threads, rounds_factors
        self._executor = ThreadPool(
            max(1, n_threads - 1), thread_name_prefix="micro-batch", initializer=pin_to_device(model.device)
        )
        self._free: list[Array] = []

    def compute(
        self,
        micro_batches: Sequence[ModelInput | None],
        streams: Sequence[RandomStream],
        buckets: Buckets = ONE_BUCKET,
        per_token: Array | None = None,
    ) -> Array:
        """Write Σ dloss/dθ over this rank's micro-batches to the model's gradients; return Σ loss, in nats.

        A micro-batch that is None has no sentences.  Without micro-batches the gradients do not change.  The loss is a
        float64 array without axes on the model's device, so that the call need not wait for the device.  Each matrix
        product has one thread.  Final sums are reported to ``buckets``.
        ``per_token`` is 1 / (target tokens of the whole batch) if the first micro-batch is the first of the batch.
        Then the first micro-batch also computes the model's ``penalty``, times the number of tokens.
        """
        gradients = self.model.parameters.gradients
        loss: Array = namespace(gradients).zeros(())
        if micro_batches:
            shares = [per_token, *[None] * (len(micro_batches) - 1)]
            leaves = list(zip(micro_batches, streams, shares, strict=True))
            with product_threads(1), bfloat16_products(self.n_threads, when=self._rounds_factors):
                loss += self._sum(leaves, gradients, self.n_threads, buckets)
        return loss

    def leaves_of_threads(self, n_leaves: int) -> list[range]:
        """Return the indices of the micro-batches that each thread computes one after the other."""

        def leaves(first: int, n_leaves: int, n_threads: int) -> list[range]:
            if n_leaves <= 1 or n_threads == 1:
                return [range(first, first + n_leaves)] if n_leaves else []
            half = n_leaves // 2
            left = leaves(first, half, n_threads - n_threads // 2)
            return left + leaves(first + half, n_leaves - half, n_threads // 2)

        return leaves(0, n_leaves, self.n_threads)

    def _sum(self, leaves: list[Leaf], out: Array, n_threads: int, buckets: Buckets) -> Array:
        """Write the sum of the gradients of ``leaves`` to ``out``, with at most ``n_threads`` threads."""
        if len(leaves) == 1:
            micro_batch, stream, per_token = leaves[0]
            terms = [] if micro_batch is None else [self.model.loss(micro_batch, stream)]
            terms += self._penalty(per_token)
            if not terms:
                out[...] = 0
                buckets.complete()
                return 0.0
            backward_in_buckets(reduce(add, terms), self.model.parameters, out, buckets)
            return reduce(add, [term.value.astype("float64") for term in terms])
        left, right = leaves[: len(leaves) // 2], leaves[len(leaves) // 2 :]
        right_sum = self._borrow(out)
        if n_threads > 1:
            future = self._executor.submit(self._sum, right, right_sum, n_threads // 2, ONE_BUCKET)
            try:
                loss = self._sum(left, out, n_threads - n_threads // 2, ONE_BUCKET)
            finally:
                wait([future])  # after an error no thread may go on, because its arrays fill the memory
            loss += future.result()
            self._add(out, right_sum, n_threads)
            buckets.complete()
        else:
            loss = self._sum(left, out, 1, ONE_BUCKET)
            loss += self._sum(right, right_sum, 1, buckets.adding(right_sum, out))
        self._free.append(right_sum)
        return loss

    def _penalty(self, per_token: Array | None) -> list[Tensor]:
        """Return the penalty times the number of tokens, if it is computed here; see ``compute``."""
        penalty = None if per_token is None else self.model.penalty()
        if penalty is None or per_token is None:
            return []
        values = self.model.parameters.values
        return [penalty * namespace(values).asarray(1 / per_token, values.dtype)]

    def _add(self, out: Array, other: Array, n_threads: int) -> None:
        """Add ``other`` to ``out`` in place, on the threads that have computed both arrays."""

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
            with persistent_pool(self.model.device):
                return namespace(like).zeros_like(like)


class StepResult:
    """The result of an update; its numbers are read from the device on first use.

    ``read`` returns (loss, norm, scale), as ``autograd.optim.clip`` does.  ``flops`` counts the matrix products of all
    ranks.
    """

    def __init__(self, n_tokens: int, read: Callable[[], Array], *, flops: int = 0) -> None:
        self.n_tokens, self._read, self.flops = n_tokens, read, flops

    @cached_property
    def _numbers(self) -> list[float]:
        numbers: list[float] = self._read().tolist()
        return numbers

    @property
    def loss(self) -> float:
        """The loss in nats, summed over the target tokens of the batch on all ranks, with the model's penalty."""
        return self._numbers[0]

    @property
    def norm(self) -> float:
        """The norm of the mean loss's gradient, before clipping."""
        return self._numbers[1]

    @property
    def is_finite(self) -> bool:
        """True if loss and norm are finite; otherwise the update has changed nothing."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class TrainingStep:
    """One update: gradients of this rank's micro-batches, their sum over ranks, clipping, and the optimizer.

    Args:
        micro_batches: the indices of this rank's micro-batches among all micro-batches of a batch.
    """

    lag = 0  # number of last updates whose results are not computed yet when a call returns

    def __init__(
        self,
        gradient: GradientAccumulator,
        reducer: GradientReducer,
        optimizer: Optimizer,
        config: TrainingConfig,
        micro_batches: Sequence[int],
    ) -> None:
        self.gradient, self.reducer, self.optimizer, self.config = gradient, reducer, optimizer, config
        self.micro_batches, self.parameters = micro_batches, gradient.model.parameters
        self.executor = ThreadPool(
            gradient.n_threads, thread_name_prefix="optimizer", initializer=pin_to_device(gradient.model.device)
        )

    @classmethod
    def of(
        cls,
        model: Transformer,
        reducer: GradientReducer,
        config: TrainingConfig,
        world: Communicator,
        *,
        n_threads: int,
    ) -> TrainingStep:
        """Return the training step of this rank, with a new optimizer for the rank's shard of the parameters.

        Raises: ConfigError if ``training.freeze`` or ``training.optimizer`` does not fit.
        """
        model.parameters.freeze(frozen_parameters(config.freeze, list(model.parameters.named)))
        optimizer = optimizer_class(config)(
            model.parameters, beta1=config.beta1, beta2=config.beta2, eps=config.eps, pieces=reducer.pieces
        )
        if config.ema:
            optimizer.begin_average(config.ema)
        micro_batches = micro_batches_of_rank(world.rank, world.size, config.n_micro_batches, config.sum)
        rounds_factors = config.precision == "bfloat16" and model.parameters.low_precision is None
        gradient = GradientAccumulator(model, n_threads=n_threads, rounds_factors=rounds_factors)
        return cls(gradient, reducer, optimizer, config, micro_batches)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of update ``step``, counted from 1."""
        return learning_rate(step, self.gradient.model.config.d_model, self.config)

    def scalars(self, step: int, n_tokens: int) -> Array:
        """Return the scalars of the optimizer for update ``step``; see ``Optimizer.scalars``."""
        return self.optimizer.scalars(self.learning_rate(step), step, n_tokens)

    def prepare(self, micro_batches: Sequence[Batch | None], lengths: Sequence[IntArray]) -> Sequence[Batch | None]:
        """Return this rank's micro-batches as ``__call__`` needs them; this may run on another thread.

        Args:
            micro_batches: a micro-batch that is None has no sentences.
            lengths: as in ``__call__``.
        """
        del lengths
        return micro_batches

    def __call__(
        self, micro_batches: Sequence[ModelInput | None], step: int, lengths: Sequence[IntArray]
    ) -> StepResult:
        """Make update ``step``, counted from 1.

        Args:
            micro_batches: the result of ``prepare``.
            lengths: source and target tokens of every pair, end symbols included, one array (B, 2) for each micro-batch
                of all ranks.
        """
        n_tokens = count_targets(lengths)
        scalars = to_device(self.scalars(step, n_tokens), self.gradient.model.device)
        outcome = self.run(micro_batches, step, scalars)
        return StepResult(n_tokens, lambda: to_host(outcome), flops=self.flops(lengths))

    def flops(self, lengths: Sequence[IntArray]) -> int:
        """Return the FLOPs of the matrix products of a batch on all ranks; ``lengths`` as in ``__call__``."""
        return int(flops_of_pairs(self.gradient.model.config, np.concatenate(lengths)).sum())

    def run(self, micro_batches: Sequence[ModelInput | None], step: int | Array, scalars: Array) -> Array:
        """Compute an update without reading from the device; return (loss, norm, scale), see ``clip``."""
        streams = [RandomStream(self.config.seed, step, index) for index in self.micro_batches]
        buckets = Buckets(self.reducer.buckets, self.reducer.begin_sum)
        per_token = scalars[0] if 0 in self.micro_batches else None
        loss = self.gradient.compute(micro_batches, streams, buckets, per_token)
        self.reducer.reduce_scatter()
        squares = self.reducer.map_shards(sum_squares, self.parameters.gradients)
        loss = namespace(squares).asarray(self.reducer.allreduce(loss), np.float64)
        outcome = clip(squares, loss, scalars, max_norm=self.config.clip_norm or math.inf)
        self._on_all_threads(partial(self._update, step, scalars, outcome[2]))
        self.reducer.all_gather(self.parameters.low_precision, self.parameters.vectors)
        return outcome

    def _update(self, step: int | Array, scalars: Array, scale: Array, within: slice) -> None:
        self.optimizer.update(scalars, scale, within, self._gather)
        self.optimizer.update_average(step, scale, within)

    def free(self) -> None:
        """Do nothing: only ``CapturedStep`` has graphs to free."""

    def _on_all_threads(self, function: Callable[[slice], None]) -> None:
        """Apply ``function`` to slices of this rank's pieces; with several threads the rank has one piece."""
        if self.gradient.n_threads == 1 or self.optimizer.needs_whole_parameters:
            function(slice(None))  # on this thread, whose stream may be under capture
            return
        list(self.executor.map(function, even_slices(self.optimizer.size, self.gradient.n_threads)))

    def _gather(self, flat: Array) -> Array:
        """Return all numbers of a flat array of which each rank has its pieces; all ranks must call this."""
        return self.reducer.map_shards(lambda shard: shard, flat)


def count_targets(lengths: Sequence[IntArray]) -> int:
    """Return the number of target tokens of a batch; ``lengths`` as in ``TrainingStep``."""
    return sum(int(pairs[:, 1].sum()) for pairs in lengths)
