"""The training loop."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autograd import namespace
from autograd.array import Array, Device, IntArray, gpu_module
from autograd.optim import Adam
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import cut_into_micro_batches, read_batch
from minitransformer.data.store import Pairs, TrainingPairs
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError
from minitransformer.training.callbacks.callback import Callback
from minitransformer.training.callbacks.checkpoint_stage import CheckpointStage
from minitransformer.training.callbacks.divergence import DivergenceGuard, Rollback, Update, give_up
from minitransformer.training.callbacks.interrupt import Interrupt
from minitransformer.training.callbacks.log_stage import LogStage
from minitransformer.training.callbacks.stage import Moment
from minitransformer.training.callbacks.validation_stage import ValidationStage
from minitransformer.training.checkpoint import load_newest_checkpoint, set_moments
from minitransformer.training.cursor import BatchCursor
from minitransformer.training.flops import training_flops
from minitransformer.training.gradient import GradientAccumulator
from minitransformer.training.graph import CapturedStep, why_no_rank_captures, why_not_captured
from minitransformer.training.repro_bundle import UpdateFacts
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult, TrainingStep
from minitransformer.training.stopwatch import Stopwatch
from minitransformer.training.validation import Validation
from minitransformer.training.writer import CheckpointWriter
from parallel.communicator import Communicator, micro_batches_of_rank
from parallel.reducer import GradientReducer, LocalReducer, choose_reducer

_log = logging.getLogger(__name__)


def reducer_for(config: TrainingConfig, world: Communicator, device: Device, n_threads: int) -> GradientReducer:
    """Return the reducer of gradients for a training; all ranks must call this, each after it has chosen its GPU."""
    return choose_reducer(
        world, gpu_module(device), config.n_micro_batches, config.sum, config.gradients_sent_in, n_threads=n_threads
    )


class Trainer:
    """The training loop; its updates are the same for any number of ranks and threads.

    Every rank runs the same loop; only rank 0 validates and writes.  With several processes, ``reducer`` must be the
    one that has allocated the model's parameters.
    """

    def __init__(
        self,
        model: Transformer,
        store: TrainingPairs,
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
        if not config.n_micro_batches:
            raise ValueError("Trainer: n_micro_batches is automatic (0); give a power of two, or use open_run")
        self.model, self.store, self.validation = model, store, validation
        self.config, self.run_directory, self.world = config, run, world
        if reducer is None and world.size > 1:
            raise ValueError("Trainer: several processes need a reducer; make the model with allocate=reducer.allocate")
        self.reducer = reducer = reducer or LocalReducer()
        self.adam = Adam(model.parameters, beta1=config.beta1, beta2=config.beta2, eps=config.eps, shard=reducer.shard)
        self.gradient = GradientAccumulator(model, n_threads=n_threads)
        self.micro_batches = micro_batches_of_rank(world.rank, world.size, config.n_micro_batches, config.sum)
        step = TrainingStep(self.gradient, reducer, self.adam, config, self.micro_batches)
        self.learning_rate = step.learning_rate
        self.why_not_captured = why_no_rank_captures(world, why_not_captured(model) or reducer.why_not_captured)
        self.training_step = step if self.why_not_captured else CapturedStep(step)
        self.state = TrainingState()
        self.writer = CheckpointWriter(run, keep=config.keep_checkpoints)
        self._cursor = BatchCursor(store, config)
        self._guard = DivergenceGuard()
        self._stopwatch = Stopwatch()
        self._seconds = 0.0  # time that this process has spent on updates

    def resume(self) -> bool:
        """Continue from the newest complete checkpoint of the run, if there is one; warn of newer, corrupt ones.

        Raises: CheckpointError if all are corrupt, or one is of another model.
        """
        adam, keep = self._adam_of_all(), self.config.keep_checkpoints
        found = load_newest_checkpoint(self.run_directory, self.model, adam, keep=keep)
        if found:
            self.state = found
            self._take(adam)
        if self.world.any(self.world.bcast(self.state.step) != self.state.step):
            raise CheckpointError(
                f"{self.run_directory}: not all processes see the same checkpoints: share the directory"
            )
        return found is not None

    def begin_from(
        self, weights: Mapping[str, Array], moments: Mapping[str, Array] | None = None, n_updates: int = 0
    ) -> None:
        """Begin from the weights of another training; with ``moments``, also from those of Adam (see ``Snapshot``).

        ``n_updates`` are the updates that the moments contain.  Update 1 comes next, with the first batch.
        """
        self.model.set_weights(weights)
        if moments is not None:
            self.state = dataclasses.replace(self.state, earlier_updates=n_updates)
            adam = self._adam_of_all()
            set_moments(self.model, adam, moments)
            self._take(adam)

    def _take(self, adam: Adam) -> None:
        """Take this rank's shard of the moments of all parameters, and what the state says of them."""
        self.adam.m[...], self.adam.v[...] = adam.m[self.reducer.shard], adam.v[self.reducer.shard]
        self.adam.earlier_updates = self.state.earlier_updates

    def _adam_of_all(self) -> Adam:
        """Return an optimizer with the moments of all parameters; with one process, this is ``adam`` itself."""
        if self.world.size == 1:
            return self.adam
        values = self.model.parameters.values
        return self.adam.of_all(namespace(values).zeros_like(values), namespace(values).zeros_like(values))

    def train(self, callback: Callback) -> bool:
        """Update until ``is_complete``; return False if interrupted and saved.

        An update whose loss or gradient is not finite changes nothing.  After several such updates in a row, training
        returns to the last checkpoint and avoids their batches.
        Raises: TrainingDivergedError if that happens a second time; CheckpointError if the last checkpoint cannot be
        written (for earlier checkpoints it logs a warning and continues); LostDirectoryError.
        """
        self.writer.watch()
        self._stopwatch.lap()
        with Interrupt(self.world) as interrupt, self._to_the_end():
            stages = self._stages(callback, interrupt)
            if self.state.validation_is_due:
                _, validation, checkpoint = stages
                self.state = validation.validate(self.state)
                if self.is_complete:  # no update follows, after which the state would be saved
                    moment = Moment(is_sound=True, is_last=True, is_interrupted=False)
                    self.state = checkpoint.after_step(self.state, moment)
            is_interrupted = self.state.validation_is_due
            while not (self.is_complete or is_interrupted):
                batch, self.state = self._cursor.next(self.state)
                result = self.step(batch)
                is_due = self.is_complete or any(self.state.step % stage.every == 0 for stage in stages)
                self._count(Update(self.state, batch, self._flops(batch), result), is_due=is_due)
                if rollback := self._guard.rollback():
                    self._go_back(rollback)
                    callback.go_back(self.state)
                    continue
                callback.after_step(result, self.state)
                is_interrupted = interrupt.requested()
                if is_interrupted:
                    self.state = self._guard.read(self.state)
                for stage in stages:
                    moment = Moment(self._guard.is_sound, self.is_complete, is_interrupted)
                    self.state = stage.after_step(self.state, moment)
                    is_interrupted = is_interrupted or self.state.validation_is_due
            self._log_waiting()
            self._finish_saving()
            self.training_step.free()
        if not self.is_complete or self.state.validation_is_due:
            _log.info(f"interrupted after update {self.state.step:,} and saved; the same run goes on from there")
            return False
        if self.has_lost_patience:
            _log.info(
                f"ended after update {self.state.step:,}: {self.state.n_without_progress} validations without a better"
                f" {self.config.patience_for} (training.patience; raise it to go on)"
            )
        return True

    @property
    def is_complete(self) -> bool:
        """True if no update is left: ``max_updates`` are made, or ``patience`` has ended the training."""
        return self.state.step >= self.config.max_updates or self.has_lost_patience

    @property
    def has_lost_patience(self) -> bool:
        """True if too many validations in a row were without progress (``training.patience``)."""
        return self.config.patience is not None and self.state.n_without_progress >= self.config.patience

    @property
    def pairs(self) -> Pairs:
        """The training pairs of the current epoch."""
        return self.store.of_epoch(self.state.epoch)

    def _stages(self, callback: Callback, interrupt: Interrupt) -> tuple[LogStage, ValidationStage, CheckpointStage]:
        """Return the stages, in the order in which they are called."""
        config, model, world, writer = self.config, self.model, self.world, self.writer
        return (
            LogStage(config.log_every, self.learning_rate, self._guard, callback),
            ValidationStage(config, self.validation, model, world, writer, self._stopwatch, callback, interrupt),
            CheckpointStage(config.checkpoint_every, model, self.adam, self.reducer, world, writer),
        )

    def _count(self, update: Update, *, is_due: bool) -> None:
        """Count the results of updates: if a stage is due, count all of them.

        Else leave out the last ``lag`` updates, which the device may not have computed yet.
        """
        self._guard.add(update)
        self.state = self._guard.read(self.state, but=0 if is_due else self.training_step.lag)
        self.state = self.state.spending(seconds=self._stopwatch.lap(), n_devices=self.world.size)

    def _go_back(self, rollback: Rollback) -> None:
        """Resume from the last checkpoint, and avoid the skipped batches from then on; keep the costs counted so far.

        Raises: TrainingDivergedError the second time, or if there is no checkpoint.
        """
        undone, avoided = self.state, (*self.state.avoided, *rollback.avoided)
        self._finish_saving()
        if undone.avoided or not self.resume():
            last = rollback.skipped[-1]
            learning_rate = self.learning_rate(last.state.step)
            facts = UpdateFacts.of(last.state, last.batch, self.config, learning_rate, rollback.reason)
            shard = self.model.parameters.gradients[self.reducer.shard]
            gradients = self.reducer.gather(shard * (1 / last.result.n_tokens))
            pairs = self.store.of_epoch(last.state.epoch)
            give_up(self.run_directory, self.model, pairs, facts, gradients, self.world)
        self.state = self.state.instead_of(undone, avoided)
        _log.info(f"going on from update {self.state.step:,}, without {len(avoided)} batches")

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
            self.writer.wait()

    def step(self, batch: IntArray) -> StepResult:
        """Make the next update with a batch, given as indices of pairs of the state's epoch.

        On a GPU the update may still be running when this returns; reading the result waits for it.  Of the state, only
        ``step`` changes: ``train`` also counts losses and costs, validates and saves.
        """
        start = time.perf_counter()
        self.state = dataclasses.replace(self.state, step=self.state.step + 1)
        cut = self._micro_batches(batch)
        micro_batches = [read_batch(self.pairs, cut[i]) if len(cut[i]) else None for i in self.micro_batches]
        lengths = [self.pairs.lengths[pairs] + 1 for pairs in cut]  # end symbols included
        result = self.training_step(micro_batches, self.state.step, lengths)
        self._seconds += time.perf_counter() - start
        return result

    def _micro_batches(self, batch: IntArray) -> list[IntArray]:
        """Return the pairs of each micro-batch of a batch; some may have none."""
        return cut_into_micro_batches(batch, self.pairs.lengths, self.config.n_micro_batches)

    def _flops(self, batch: IntArray) -> int:
        """Return the FLOPs of the matrix products of an update, of all ranks."""
        return training_flops(self.model.config, *(self.pairs.lengths[batch] + 1).T)

    def _log_waiting(self) -> None:
        """Log the share of time for which ranks waited for the slowest rank."""
        if self.world.any(self.reducer.seconds_waited > 0):
            share = self.world.allreduce(self.reducer.seconds_waited / self._seconds) / self.world.size
            _log.info(f"processes waited {100 * share:.1f} % of the time for the slowest one of each update")

    def _finish_saving(self) -> None:
        """Wait until the last checkpoint is on the disk.  Raises: CheckpointError if it cannot be written."""
        with self.world.waiting_for_rank_0():
            self.writer.finish()
