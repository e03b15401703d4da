"""The training loop."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import threadpool_limits

from autograd import RandomStream, namespace, to_host
from autograd.array import Array, staying_here
from autograd.optim import Adam, clip_gradients, gradient_norm
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import IntArray, cut_into_shards, plan_epoch, read_batch
from minitransformer.data.store import TokenStore
from minitransformer.errors import UserError
from minitransformer.files import CheckpointError
from minitransformer.model.transformer import Transformer
from minitransformer.threads import even_slices
from minitransformer.training.checkpoint import Snapshot, TrainingState, load_newest_checkpoint
from minitransformer.training.exchange import exchange_of
from minitransformer.training.gradient import ShardedGradient
from minitransformer.training.interrupt import Interrupt
from minitransformer.training.interval import Interval
from minitransformer.training.monitor import Monitor, TrainingReport
from minitransformer.training.schedule import learning_rate
from minitransformer.training.validation import Validation
from minitransformer.training.writer import CheckpointWriter
from parallel.agreement import check_agreement, checksum
from parallel.communicator import Communicator, shards_of_rank

BEST = "best"  # folder of a run that keeps the model with the lowest validation loss


class TrainingDivergedError(UserError, RuntimeError):
    """The loss is no longer a number."""


class Trainer:
    """Trains a model: one update after another, the same whatever the number of ranks and threads.

    Every rank runs the same loop; rank 0 alone validates and writes.
    """

    def __init__(
        self,
        model: Transformer,
        store: TokenStore,
        validation: Validation | None,
        config: TrainingConfig,
        run: Path,
        world: Communicator,
        *,
        n_threads: int,
    ) -> None:
        if not len(store):
            raise ValueError("Trainer: the token store has no pairs; there is nothing to train on")
        self.model, self.store, self.validation = model, store, validation
        self.config, self.run_directory, self.world = config, run, world
        self.exchange = exchange_of(model, world, config.n_shards, config.sum)
        self.adam = Adam(
            model.parameters, beta1=config.beta1, beta2=config.beta2, eps=config.eps, part=self.exchange.part
        )
        self.gradient = ShardedGradient(model, n_threads=n_threads)
        self.shards = shards_of_rank(world.rank, world.size, config.n_shards, config.sum)
        self.state = TrainingState()
        self._writer = CheckpointWriter(run, keep=config.keep_checkpoints, every=config.checkpoint_every)
        self._executor = ThreadPoolExecutor(
            n_threads, thread_name_prefix="adam", initializer=staying_here(model.device)
        )
        self._n_threads = n_threads
        self._seconds = 0.0  # that this process has spent on updates
        self._norm_before_clipping: float | None = None

    def resume(self, say: Callable[[str], None] = lambda line: None) -> bool:
        """Go on from the newest whole checkpoint of the run, if there is one; say which newer ones are damaged.

        Raises: CheckpointError if all are damaged, or one is of another model.
        """
        whole = self._adam_of_all()
        found = load_newest_checkpoint(self.run_directory, self.model, whole, say)
        if found:
            self.state = found
            self.adam.m[...], self.adam.v[...] = whole.m[self.exchange.part], whole.v[self.exchange.part]
        if self.world.any(self.world.broadcast(self.state.step) != self.state.step):
            raise CheckpointError(
                f"{self.run_directory}: not all processes see the same checkpoints: share the directory"
            )
        return found is not None

    def _adam_of_all(self) -> Adam:
        """One with room for the moments of all parameters: with one process the one there is."""
        if self.world.size == 1:
            return self.adam
        values = self.model.parameters.values
        return self.adam.of_all(namespace(values).zeros_like(values), namespace(values).zeros_like(values))

    def check_agreement(self, when: str, remedy: str, **facts: str) -> None:
        """Compare the parameters, and other facts, of all ranks.  Raises: DisagreementError."""
        if self.world.size > 1:
            parameters = checksum(to_host(self.model.parameters.values))
            check_agreement(self.world, {**facts, "parameters": parameters}, when, remedy)

    def train(self, monitor: Monitor) -> bool:
        """Update until ``max_updates``; return whether that was reached (False: interrupted, and saved).

        Raises: TrainingDivergedError if the loss is not finite; CheckpointError if the last checkpoint cannot be
        written (of earlier ones the monitor is told, and training goes on).
        """
        with threadpool_limits(1, user_api="blas"), Interrupt(self.world) as interrupt, self._to_the_end():
            interval = Interval(self.state, self.world)
            for batch in self._batches():
                step = self.state.step
                interval.add(self._update(batch), int((self.store.lengths[batch, 1] + 1).sum()))
                monitor.advance(step)
                self._tell_of_failure(monitor)
                last, stop = step == self.config.max_updates, interrupt.requested()
                if step % self.config.log_every == 0 or last:
                    interval = self._log(interval, monitor)
                if step % self.config.validate_every == 0 or last:
                    interval.leave_out(self._validate(monitor))
                if step % self.config.checkpoint_every == 0 or last or stop:
                    self._save(interval, monitor)
                self._tell_of_failure(monitor)
                if last or stop:
                    self._say_balance(monitor)
                if stop:
                    self._finish_saving()
                    monitor.say(f"interrupted after update {step:,} and saved; the same command goes on from there")
                    return False
            self._finish_saving()
        return True

    @contextmanager
    def _to_the_end(self) -> Iterator[None]:
        """What fails unexpectedly tells when; a checkpoint that is being written is written to its end."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, UserError):
                error.add_note(f"(in update {self.state.step:,})")
            raise
        finally:
            self._writer.wait()

    def _batches(self) -> Iterator[IntArray]:
        """The batches from where the state stands to the last update; the state is moved ahead of each."""
        while self.state.step < self.config.max_updates:
            epoch = self.state.epoch
            plan = plan_epoch(self.store.lengths, self.config.batch_tokens, seed=self.config.seed, epoch=epoch)
            for place in range(self.state.next_batch, len(plan)):
                if self.state.step == self.config.max_updates:
                    return
                self._advance(step=self.state.step + 1, next_batch=place + 1)
                yield plan[place]
            self._advance(epoch=epoch + 1, next_batch=0)

    def _advance(self, **changes: int) -> None:
        self.state = dataclasses.replace(self.state, **changes)

    def _update(self, batch: IntArray) -> Array:
        """One update of the parameters, of which this rank changes its part; return its summed loss."""
        start = time.perf_counter()
        indices = cut_into_shards(batch, self.store.lengths, self.config.n_shards)
        shards = [read_batch(self.store, indices[i]) if len(indices[i]) else None for i in self.shards]
        streams = [RandomStream(self.config.seed, self.state.step, shard) for shard in self.shards]
        loss = self.gradient.compute(shards, streams)
        self.exchange.sum_gradients(self._on_all_threads)
        gradients, per_token = self._gradients, 1 / float((self.store.lengths[batch, 1] + 1).sum())

        def take_mean(within: slice) -> None:
            gradients[within] *= per_token

        self._on_all_threads(take_mean)
        if self.config.clip_norm is not None:
            self._norm_before_clipping = clip_gradients(gradients, self.config.clip_norm, self.world.all_of)
        self._on_all_threads(lambda within: self.adam.update(self.learning_rate, self.state.step, within))
        self.exchange.share_values()
        self._seconds += time.perf_counter() - start
        return loss

    @property
    def _gradients(self) -> Array:
        """Those that are this rank's part."""
        return self.model.parameters.gradients[self.exchange.part]

    def _on_all_threads(self, function: Callable[[slice], None]) -> None:
        """Apply ``function`` to slices that cover this rank's part of the flat parameters."""
        list(self._executor.map(function, even_slices(len(self._gradients), self._n_threads)))

    @property
    def learning_rate(self) -> float:
        """That of the current update."""
        return learning_rate(
            self.state.step,
            d_model=self.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            factor=self.config.learning_rate_factor,
        )

    def _gradient_norm(self) -> float:
        """That of the last update's mean loss, before clipping.  Raises: TrainingDivergedError if it is not finite."""
        norm = self._norm_before_clipping
        return self._finite(
            gradient_norm(self._gradients, self.world.all_of) if norm is None else norm, "gradient's norm"
        )

    def _log(self, interval: Interval, monitor: Monitor) -> Interval:
        loss = self._finite(interval.loss() / max(1, interval.n_tokens), "loss")
        seconds = interval.seconds
        self.state = dataclasses.replace(
            self.state, seconds=self.state.seconds + seconds, unlogged_loss=0.0, unlogged_tokens=0, unlogged_seconds=0.0
        )
        monitor.report(
            TrainingReport(
                step=self.state.step,
                epoch=self.state.epoch,
                loss=loss,
                learning_rate=self.learning_rate,
                gradient_norm=self._gradient_norm(),
                target_tokens_per_second=interval.n_tokens / seconds,
                seconds=self.state.seconds,
            )
        )
        return Interval(self.state, self.world)

    def _say_balance(self, monitor: Monitor) -> None:
        """What it cost that shards are not equal: all are as slow as the slowest."""
        if self.exchange.seconds_waited is not None:
            share = self.world.sum_of_numbers(self.exchange.seconds_waited / self._seconds) / self.world.size
            monitor.say(f"processes waited {100 * share:.1f} % of the time for the slowest one of each update")

    def _finite(self, number: float, name: str) -> float:
        """The number, if it is one: what has become NaN is never saved over what was good."""
        if not math.isfinite(number):
            raise TrainingDivergedError(
                f"update {self.state.step:,}: the {name} is {number}; the last checkpoint is unharmed."
                " Lower --training.learning-rate-factor, or set --training.clip-norm"
            )
        return number

    def _validate(self, monitor: Monitor) -> float:
        """Judge the model, keep it if it is the best so far; return the seconds that this took."""
        start = time.perf_counter()
        self._gradient_norm()
        with self.world.waiting_for_rank_0():
            if self.validation is not None and self.world.rank == 0:
                report = self.validation.report(self.model, self.state.step, self.state.best_loss)
                monitor.report(report)
                if report.best:
                    self._keep_best(report.loss, monitor)
        return time.perf_counter() - start

    def _keep_best(self, loss: float, monitor: Monitor) -> None:
        """Save the model as the best so far; if that fails, the best so far remains the one before."""
        try:
            self.model.save(self.run_directory / BEST)
            self.state = dataclasses.replace(self.state, best_loss=loss)
            self.model.save(self.run_directory)
        except CheckpointError as error:
            monitor.say(f"warning: {error}; training goes on")

    def _save(self, interval: Interval, monitor: Monitor) -> None:
        """Begin to write a checkpoint: rank 0 copies what it holds, and goes on while a thread writes the copy."""
        self._gradient_norm()
        self.check_agreement(
            f"after update {self.state.step:,}",
            "They agreed before: their processors, libraries or memory differ. The last checkpoint is unharmed",
        )
        self.state = dataclasses.replace(
            self.state,
            unlogged_loss=interval.loss(),
            unlogged_tokens=interval.n_tokens,
            unlogged_seconds=interval.seconds,
        )
        m, v = self.exchange.gather(self.adam.m), self.exchange.gather(self.adam.v)
        with self.world.waiting_for_rank_0():
            if self.world.rank == 0:
                self._writer.wait()
                self._tell_of_failure(monitor)
                self._writer.save(Snapshot.of(self.model, self.adam.of_all(m, v), self.state))

    def _tell_of_failure(self, monitor: Monitor) -> None:
        error = self._writer.failure()
        if error:
            monitor.say(f"warning: {error}; training goes on, and saves again at the next interval")

    def _finish_saving(self) -> None:
        """Wait until the last checkpoint is on the disk.  Raises: CheckpointError if it cannot be written."""
        with self.world.waiting_for_rank_0():
            self._writer.wait()
            error = self._writer.failure()
            if error:
                raise error
