"""The training loop."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from autograd import RandomStream, namespace, to_host
from autograd.array import Array, staying_here
from autograd.optim import Adam, clip_gradients
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import IntArray, cut_into_shards, plan_epoch, read_batch
from minitransformer.data.store import TokenStore
from minitransformer.errors import UserError
from minitransformer.evaluation.cost import update_flops
from minitransformer.files import CheckpointError
from minitransformer.model.transformer import Transformer
from minitransformer.threads import even_slices
from minitransformer.training.capsule import UpdateFacts
from minitransformer.training.checkpoint import Snapshot, load_newest_checkpoint
from minitransformer.training.divergence import Guard, give_up, require_finite
from minitransformer.training.exchange import exchange_of
from minitransformer.training.gradient import ShardedGradient
from minitransformer.training.interrupt import Interrupt
from minitransformer.training.interval import Interval
from minitransformer.training.monitor import Monitor
from minitransformer.training.schedule import learning_rate
from minitransformer.training.state import TrainingState
from minitransformer.training.validation import Validation, keep_best
from minitransformer.training.writer import CheckpointWriter
from parallel.agreement import check_agreement, checksum
from parallel.communicator import Communicator, shards_of_rank


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
        self.exchange = exchange_of(model.parameters, world, config.n_shards, config.sum)
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
        self._guard = Guard()
        self._norm = 0.0  # of the last gradient that changed parameters, before clipping

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

        An update whose loss or gradient is not finite changes nothing.  After a few in a row training goes back to the
        last checkpoint, and avoids their batches from then on.
        Raises: TrainingDivergedError if that happens a second time; CheckpointError if the last checkpoint cannot be
        written (of earlier ones the monitor is told, and training goes on).
        """
        self._guard = Guard(monitor.say)
        with threadpool_limits(1, user_api="blas"), Interrupt(self.world) as interrupt, self._to_the_end():
            interval = Interval(self.state, self.world)
            for batch in self._batches():
                step = self.state.step
                loss = self._update(batch)
                if loss is not None:
                    interval.add(loss, int((self.store.lengths[batch, 1] + 1).sum()))
                elif self._guard.gives_up:
                    interval = self._go_back(batch, monitor)
                    continue
                monitor.advance(step)
                self._writer.tell_of_failure(monitor.say)
                last, stop = step == self.config.max_updates, interrupt.requested()
                if (step % self.config.log_every == 0 or last) and interval.n_tokens:
                    interval = self._log(interval, monitor)
                if (step % self.config.validate_every == 0 and loss is not None) or last:
                    interval.leave_out(self._validate(monitor))
                if (step % self.config.checkpoint_every == 0 and loss is not None) or last or stop:
                    self._save(interval, monitor)
                if last or stop:
                    self._say_balance(monitor)
                if stop:
                    self._finish_saving()
                    monitor.say(f"interrupted after update {step:,} and saved; the same command goes on from there")
                    return False
            self._finish_saving()
        return True

    def _go_back(self, batch: IntArray, monitor: Monitor) -> Interval:
        """To the last checkpoint, from where the batches in question are avoided.

        Raises: TrainingDivergedError the second time, or if there is no checkpoint.
        """
        avoided, what = (*self.state.avoided, *self._guard.in_a_row), self._guard.what
        self._finish_saving()
        if self.state.avoided or not self.resume(monitor.say):
            facts = UpdateFacts.of(self.state, batch, self.config, self.learning_rate, what)
            give_up(self.run_directory, self.model, self.store, facts, self.world)
        self.state = dataclasses.replace(self.state, avoided=avoided)
        self._guard = Guard(monitor.say)
        monitor.go_back(self.state.step)
        monitor.say(f"going on from update {self.state.step:,}, without {len(avoided)} batches")
        return Interval(self.state, self.world)

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
        """The batches from where the state stands to the last update; the state is moved ahead of each.

        It is looked at anew before each, because it may be set back meanwhile.
        """
        plan, planned = [], -1
        while self.state.step < self.config.max_updates:
            epoch, place = self.state.epoch, self.state.next_batch
            if epoch != planned:
                plan = plan_epoch(self.store.lengths, self.config.batch_tokens, seed=self.config.seed, epoch=epoch)
                planned = epoch
            if place == len(plan):
                self._advance(epoch=epoch + 1, next_batch=0)
                continue
            self._advance(next_batch=place + 1)
            if (epoch, place) not in self.state.avoided:
                self._advance(step=self.state.step + 1)
                yield plan[place]

    def _advance(self, **changes: Any) -> None:
        self.state = dataclasses.replace(self.state, **changes)

    def _update(self, batch: IntArray) -> Array | None:
        """One update of the parameters, of which this rank changes its part.

        Returns this rank's summed loss; None if loss or gradient are not finite, and nothing has changed.
        """
        start = time.perf_counter()
        indices = cut_into_shards(batch, self.store.lengths, self.config.n_shards)
        shards = [read_batch(self.store, indices[i]) if len(indices[i]) else None for i in self.shards]
        streams = [RandomStream(self.config.seed, self.state.step, shard) for shard in self.shards]
        loss = self.gradient.compute(shards, streams)
        self.state = self.state.spending(
            flops=update_flops(self.model.config, (self.store.lengths[shard] + 1 for shard in indices))
        )
        self.exchange.sum_gradients(self._on_all_threads)
        gradients, per_token = self._gradients, 1 / float((self.store.lengths[batch, 1] + 1).sum())

        def take_mean(within: slice) -> None:
            gradients[within] *= per_token

        self._on_all_threads(take_mean)
        norm = clip_gradients(gradients, self.config.clip_norm or math.inf, self.exchange.of_all_parts)
        loss_is_finite = not self.world.any(not math.isfinite(float(loss)))
        if is_sound := self._guard.lets_through(self.state, norm, loss_is_finite=loss_is_finite):
            self._norm = norm
            self._on_all_threads(lambda within: self.adam.update(self.learning_rate, self.state.step, within))
        self.exchange.share_values()
        if len(gradients) < len(self.model.parameters.values):  # others have changed the rest
            self.model.parameters.refresh_copies()
        self._seconds += time.perf_counter() - start
        return loss if is_sound else None

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

    def _log(self, interval: Interval, monitor: Monitor) -> Interval:
        loss = interval.loss()
        self.state = dataclasses.replace(
            interval.to_account(self.state),
            seconds=self.state.seconds + interval.seconds,
            unlogged_loss=0.0,
            unlogged_tokens=0,
            unlogged_seconds=0.0,
        )
        monitor.report(interval.report(self.state, loss, self.learning_rate, self._norm))
        return Interval(self.state, self.world)

    def _say_balance(self, monitor: Monitor) -> None:
        """What it cost that shards are not equal: all are as slow as the slowest."""
        if self.world.any(self.exchange.seconds_waited > 0):
            share = self.world.sum_of_numbers(self.exchange.seconds_waited / self._seconds) / self.world.size
            monitor.say(f"processes waited {100 * share:.1f} % of the time for the slowest one of each update")

    def _validate(self, monitor: Monitor) -> float:
        """Judge the model, keep it if it is the best so far; return the seconds that this took."""
        start = time.perf_counter()
        with self.world.waiting_for_rank_0():
            if self.validation is not None and self.world.rank == 0:
                report = self.validation.report(self.model, self.state.step, self.state.best_loss)
                monitor.report(report)
                if report.best and keep_best(self.run_directory, self.model, monitor.say):
                    self.state = dataclasses.replace(self.state, best_loss=report.loss)
        return time.perf_counter() - start

    def _save(self, interval: Interval, monitor: Monitor) -> None:
        """Begin to write a checkpoint: rank 0 copies what it holds, and goes on while a thread writes the copy."""
        require_finite(self.model, self.state.step)
        self.check_agreement(
            f"after update {self.state.step:,}",
            "They agreed before: their processors, libraries or memory differ. The last checkpoint is unharmed",
        )
        self.state = dataclasses.replace(
            interval.to_account(self.state),
            unlogged_loss=interval.loss(),
            unlogged_tokens=interval.n_tokens,
            unlogged_seconds=interval.seconds,
        )
        m, v = self.exchange.gather(self.adam.m), self.exchange.gather(self.adam.v)
        with self.world.waiting_for_rank_0():
            if self.world.rank == 0:
                self._writer.wait()
                self._writer.tell_of_failure(monitor.say)
                self._writer.save(Snapshot.of(self.model, self.adam.of_all(m, v), self.state))

    def _finish_saving(self) -> None:
        """Wait until the last checkpoint is on the disk.  Raises: CheckpointError if it cannot be written."""
        with self.world.waiting_for_rank_0():
            self._writer.finish()
