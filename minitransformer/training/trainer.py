"""The training loop."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from threadpoolctl import threadpool_limits

from autograd import namespace, to_host
from autograd.array import Device, gpu_module
from autograd.optim import Adam
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import IntArray, cut_into_shards, read_batch
from minitransformer.data.store import TokenStore
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError
from minitransformer.training.callbacks import Callback
from minitransformer.training.capsule import UpdateFacts
from minitransformer.training.checkpoint import Snapshot, load_newest_checkpoint
from minitransformer.training.cursor import BatchCursor
from minitransformer.training.divergence import Guard, Update, give_up, require_finite
from minitransformer.training.flops import update_flops
from minitransformer.training.gradient import ShardedGradient
from minitransformer.training.graph import CapturedStep, is_capturable
from minitransformer.training.interrupt import Interrupt
from minitransformer.training.interval import Interval
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult, TrainingStep
from minitransformer.training.validation import Validation, keep_best
from minitransformer.training.writer import CheckpointWriter
from parallel.agreement import check_agreement, checksum
from parallel.communicator import Communicator, micro_batches_of_rank
from parallel.reducer import GradientReducer, LocalReducer, choose_reducer


def reducer_for(config: TrainingConfig, world: Communicator, device: Device, n_threads: int) -> GradientReducer:
    """Return the reducer of gradients for a training; all ranks must call, each after it has chosen its GPU."""
    return choose_reducer(
        world, gpu_module(device), config.n_shards, config.sum, config.gradients_sent_in, n_threads=n_threads
    )


class Trainer:
    """The training loop; its updates are the same for any number of ranks and threads.

    Every rank runs the same loop; rank 0 alone validates and writes.  Several processes need the ``reducer`` that has
    allocated the model's parameters.
    """

    def __init__(
        self,
        model: Transformer,
        store: TokenStore,
        validation: Validation | None,
        config: TrainingConfig,
        run: Path,
        world: Communicator,
        reducer: GradientReducer | None = None,
        *,
        n_threads: int,
    ) -> None:
        if not len(store):
            raise ValueError("Trainer: the token store has no pairs; there is nothing to train on")
        self.model, self.store, self.validation = model, store, validation
        self.config, self.run_directory, self.world = config, run, world
        if reducer is None and world.size > 1:
            raise ValueError("Trainer: several processes need a reducer; make the model with allocate=reducer.allocate")
        self.reducer = reducer = reducer or LocalReducer()
        self.adam = Adam(model.parameters, beta1=config.beta1, beta2=config.beta2, eps=config.eps, shard=reducer.shard)
        self.gradient = ShardedGradient(model, n_threads=n_threads)
        self.shards = micro_batches_of_rank(world.rank, world.size, config.n_shards, config.sum)
        step = TrainingStep(self.gradient, reducer, self.adam, config, self.shards)
        self.learning_rate = step.learning_rate
        self.training_step = CapturedStep(step) if world.size == 1 and is_capturable(model) else step
        self.state = TrainingState()
        self._writer = CheckpointWriter(run, keep=config.keep_checkpoints)
        self._cursor = BatchCursor(store.lengths, config)
        self._seconds = 0.0  # that this process has spent on updates
        self._under_way: deque[Update] = deque()  # updates whose results have not been read
        self._guard = Guard()
        self._norm = 0.0  # of the last gradient that changed parameters, before clipping

    def resume(self, say: Callable[[str], None] = lambda line: None) -> bool:
        """Go on from the newest whole checkpoint of the run, if there is one; say which newer ones are damaged.

        Raises: CheckpointError if all are damaged, or one is of another model.
        """
        whole, keep = self._adam_of_all(), self.config.keep_checkpoints
        found = load_newest_checkpoint(self.run_directory, self.model, whole, say, keep=keep)
        if found:
            self.state = found
            self.adam.m[...], self.adam.v[...] = whole.m[self.reducer.shard], whole.v[self.reducer.shard]
        if self.world.any(self.world.bcast(self.state.step) != self.state.step):
            raise CheckpointError(
                f"{self.run_directory}: not all processes see the same checkpoints: share the directory"
            )
        return found is not None

    def _adam_of_all(self) -> Adam:
        """Return an optimizer with moments of all parameters; with one process, this one."""
        if self.world.size == 1:
            return self.adam
        values = self.model.parameters.values
        return self.adam.of_all(namespace(values).zeros_like(values), namespace(values).zeros_like(values))

    def check_agreement(self, when: str, remedy: str, **facts: str) -> None:
        """Compare the parameters, and other facts, of all ranks.  Raises: DisagreementError."""
        if self.world.size > 1:  # the sum of one process' parameters would be taken in vain
            parameters = checksum(to_host(self.model.parameters.values))
            check_agreement(self.world, {**facts, "parameters": parameters}, when, remedy)

    def train(self, callback: Callback) -> bool:
        """Update until ``max_updates``; return whether that was reached (False: interrupted, and saved).

        An update whose loss or gradient is not finite changes nothing.  After a few in a row training goes back to the
        last checkpoint, and avoids their batches from then on.
        Raises: TrainingDivergedError if that happens a second time; CheckpointError if the last checkpoint cannot be
        written (for earlier ones it logs a warning and goes on); LostDirectoryError.
        """
        self._guard = Guard(callback.say)
        self._writer.watch()
        with threadpool_limits(1, user_api="blas"), Interrupt(self.world) as interrupt, self._to_the_end():
            interval = Interval(self.state, self.world)
            while self.state.step < self.config.max_updates:
                batch, self.state = self._cursor.next(self.state)
                result, step = self.step(batch), self.state.step
                self._under_way.append(Update(self.state, batch, self._flops(batch), result))
                is_sound = self._note(interval, but=0 if self._must_read(step) else self.training_step.lag)
                if self._guard.gives_up:
                    interval = self._go_back(interval, callback)
                    continue
                callback.after_step(step)
                self._writer.tell_of_failure(callback.say)
                last, stop = step == self.config.max_updates, interrupt.requested()
                if stop:
                    self._note(interval, but=0)
                if (step % self.config.log_every == 0 or last) and interval.n_tokens:
                    interval = self._log(interval, callback)
                if (step % self.config.validate_every == 0 and is_sound) or last:
                    interval.leave_out(self._validate(callback))
                if (step % self.config.checkpoint_every == 0 and is_sound) or last or stop:
                    self._save(interval, callback)
                if last or stop:
                    self._say_balance(callback)
                if stop:
                    self._finish_saving()
                    callback.say(f"interrupted after update {step:,} and saved; the same command goes on from there")
                    return False
            self._finish_saving()
        return True

    def _go_back(self, interval: Interval, callback: Callback) -> Interval:
        """Resume from the last checkpoint, and avoid the skipped batches from then on; keep the costs counted.

        Raises: TrainingDivergedError the second time, or if there is no checkpoint.
        """
        undone, skipped, what = interval.to_account(self.state), self._guard.in_a_row, self._guard.what
        avoided = (*self.state.avoided, *((update.state.epoch, update.state.next_batch - 1) for update in skipped))
        self._finish_saving()
        if self.state.avoided or not self.resume(callback.say):
            state, batch, n_tokens = skipped[-1].state, skipped[-1].batch, skipped[-1].result.n_tokens
            facts = UpdateFacts.of(state, batch, self.config, self.learning_rate(state.step), what)
            gradients = self.reducer.gather(self.model.parameters.gradients[self.reducer.shard] * (1 / n_tokens))
            give_up(self.run_directory, self.model, self.store, facts, gradients, self.world)
        self.state = self.state.instead_of(undone, avoided)
        self._guard = Guard(callback.say)
        callback.go_back(self.state.step)
        callback.say(f"going on from update {self.state.step:,}, without {len(avoided)} batches")
        return Interval(self.state, self.world)

    @contextmanager
    def _to_the_end(self) -> Iterator[None]:
        """Name the update in which an unexpected error occurs, and wait for a checkpoint that is being written."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, UserError):
                error.add_note(f"(in update {self.state.step:,})")
            raise
        finally:
            self._writer.wait()

    def step(self, batch: IntArray) -> StepResult:
        """Make the next update with a batch, given as indices of pairs in the store.

        On a GPU it may still be under way; reading the result waits for it.  Only ``state.step`` changes: ``train``
        also counts losses and costs, saves and validates.
        """
        start = time.perf_counter()
        self.state = dataclasses.replace(self.state, step=self.state.step + 1)
        cut = self._micro_batches(batch)
        micro_batches = [read_batch(self.store, cut[i]) if len(cut[i]) else None for i in self.shards]
        n_tokens = int((self.store.lengths[batch, 1] + 1).sum())  # end symbols included
        result = self.training_step(micro_batches, self.state.step, n_tokens)
        self._seconds += time.perf_counter() - start
        return result

    def _micro_batches(self, batch: IntArray) -> list[IntArray]:
        """Return the pairs of each micro-batch of a batch; some may have none."""
        return cut_into_shards(batch, self.store.lengths, self.config.n_shards)

    def _flops(self, batch: IntArray) -> int:
        """Return the FLOPs of the matrix products of an update, of all ranks."""
        lengths = (self.store.lengths[pairs] + 1 for pairs in self._micro_batches(batch))
        return update_flops(self.model.config, lengths)

    def _note(self, interval: Interval, *, but: int) -> bool:
        """Read the results of all updates but the last few, and of all after one that was not finite; count them.

        Returns: whether the last of them has changed the parameters.
        """
        is_sound = False
        while len(self._under_way) > but:
            update = self._under_way.popleft()
            result, is_sound = update.result, update.result.is_finite
            self._guard.note(update)
            self.state = self.state.spending(flops=update.flops)
            if is_sound:
                self._norm = result.norm
                interval.add(result.loss, result.n_tokens)
            else:
                but = 0
        return is_sound

    def _must_read(self, step: int) -> bool:
        """Return whether pending results must be read now: something is due, or numbers were not finite."""
        config = self.config
        due = (config.log_every, config.validate_every, config.checkpoint_every)
        return bool(self._guard.in_a_row) or step == config.max_updates or any(step % every == 0 for every in due)

    def _log(self, interval: Interval, callback: Callback) -> Interval:
        loss = interval.loss()
        self.state = dataclasses.replace(
            interval.to_account(self.state),
            seconds=self.state.seconds + interval.seconds,
            unlogged_loss=0.0,
            unlogged_tokens=0,
            unlogged_seconds=0.0,
        )
        callback.report(interval.report(self.state, loss, self.learning_rate(self.state.step), self._norm))
        return Interval(self.state, self.world)

    def _say_balance(self, callback: Callback) -> None:
        """Log the share of time that ranks waited for the slowest one of each update."""
        if self.world.any(self.reducer.seconds_waited > 0):
            share = self.world.allreduce(self.reducer.seconds_waited / self._seconds) / self.world.size
            callback.say(f"processes waited {100 * share:.1f} % of the time for the slowest one of each update")

    def _validate(self, callback: Callback) -> float:
        """Validate the model, and keep it if it is the best so far; return the seconds spent."""
        start = time.perf_counter()
        with self.world.waiting_for_rank_0():
            if self.validation is not None and self.world.rank == 0:
                report = self.validation.report(self.model, self.state.step, self.state.best_loss)
                callback.report(report)
                keep = report.best and not self._writer.is_lost()  # which the next checkpoint will tell
                if keep and keep_best(self.run_directory, self.model, callback.say):
                    self.state = dataclasses.replace(self.state, best_loss=report.loss)
        return time.perf_counter() - start

    def _save(self, interval: Interval, callback: Callback) -> None:
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
            between_intervals=self.state.step % self.config.checkpoint_every != 0,
        )
        m, v = self.reducer.gather(self.adam.m), self.reducer.gather(self.adam.v)
        with self.world.waiting_for_rank_0():
            if self.world.rank == 0:
                self._writer.wait()
                self._writer.tell_of_failure(callback.say)
                self._writer.save(Snapshot.of(self.model, self.adam.of_all(m, v), self.state))

    def _finish_saving(self) -> None:
        """Wait until the last checkpoint is on the disk.  Raises: CheckpointError if it cannot be written."""
        with self.world.waiting_for_rank_0():
            self._writer.finish()
