"""The training loop: next batch, update, log, validate, save."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from autograd.array import Array, IntArray
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import BatchOrder, ReadAhead, read_micro_batches
from minitransformer.data.store import Pairs, TrainingPairs
from minitransformer.model.transformer import Transformer
from minitransformer.training.callbacks import Callback, Callbacks, TrainingReport
from minitransformer.training.checkpoint import RunCheckpoints
from minitransformer.training.divergence import DivergenceGuard, Rollback, Update, UpdateFacts, give_up
from minitransformer.training.graph import captured_step
from minitransformer.training.interrupt import Interrupt
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult, TrainingStep
from minitransformer.training.validation import Validation, exceeds, figure, keep_best, progress
from parallel import Communicator, GradientReducer, LocalReducer

_log = logging.getLogger(__name__)


class Trainer:
    """The training loop; its updates are the same for any number of ranks and threads.

    Every rank runs the same loop; only rank 0 validates and writes.  With several processes, ``reducer`` must be the
    reducer that has allocated the model's parameters.
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
        if not config.n_micro_batches or config.precision == "automatic":
            raise ValueError("Trainer: n_micro_batches or precision is automatic; give them values, or use open_run")
        self.model, self.store, self.validation = model, store, validation
        self.config, self.run_directory, self.world = config, run, world
        if reducer is None and world.size > 1:
            raise ValueError("Trainer: several processes need a reducer; make the model with allocate=reducer.allocate")
        self.reducer = reducer or LocalReducer()
        step = TrainingStep.of(model, self.reducer, config, world, n_threads=n_threads)
        self.optimizer, self.gradient, self.micro_batches = step.optimizer, step.gradient, step.micro_batches
        self.learning_rate = step.learning_rate
        self.training_step, self.why_not_captured = captured_step(step, world)
        self.checkpoints = RunCheckpoints(run, model, self.optimizer, self.reducer, world, keep=config.keep_checkpoints)
        self.batches = BatchOrder(store, config.batch_tokens, config.seed)
        self._ahead = ReadAhead[tuple[Any, Sequence[IntArray]]]()
        self.state = TrainingState()
        self._guard = DivergenceGuard()
        self._stopwatch = Stopwatch()
        self._seconds = 0.0  # time that this process has spent on updates

    def resume(self) -> bool:
        """Continue from the newest complete checkpoint of the run; return False if there are no checkpoints.

        Raises: as ``RunCheckpoints.load_newest``.
        """
        found = self.checkpoints.load_newest()
        self.state = found or self.state
        return found is not None

    def begin_from(
        self, weights: Mapping[str, Array], moments: Mapping[str, Array] | None = None, n_updates: int = 0
    ) -> None:
        """Begin from the weights of another training, and from its optimizer's ``moments`` (see ``Snapshot``) if given.

        ``n_updates`` is the number of updates in the moments.  Update 1 comes next, with the first batch.
        """
        self.checkpoints.begin_from(weights, moments, n_updates)
        if moments is not None:
            self._change(earlier_updates=n_updates)

    def train(self, callback: Callback) -> bool:
        """Update until ``is_complete``; return False if the training was interrupted and saved.

        An update whose loss or gradient is not finite changes nothing.  After several such updates in a row, training
        returns to the last checkpoint and avoids the batches of these updates.
        Raises: TrainingDivergedError at the second such return, or without a checkpoint; CheckpointError if the last
        checkpoint cannot be written (earlier failures are only logged); LostDirectoryError; CallbackError.
        """
        callback = callback if isinstance(callback, Callbacks) else Callbacks([callback])
        self.checkpoints.writer.watch()
        self._stopwatch.lap()
        with Interrupt(self.world) as interrupt, self._wait_at_end():
            if self.state.validation_is_due:
                self._validate(callback, interrupt)
                if self.is_complete:  # no update follows, so save here
                    self._save(is_interrupted=False)
            is_interrupted = self.state.validation_is_due
            while not (self.is_complete or is_interrupted):
                batch = self._next_batch()
                result = self.step(batch, self._following_batch())
                self._count(batch, result)
                if rollback := self._guard.rollback():
                    self._go_back(rollback)
                    callback.go_back(self.state)
                    continue
                with interrupt.at_error():
                    callback.after_step(result, self.state, self.model)
                with interrupt.at_error():
                    self._report(callback)
                if self.is_complete or (self._guard.is_sound and self._is_at(self.config.validate_every)):
                    self._validate(callback, interrupt)
                is_interrupted = interrupt.is_requested()
                if is_interrupted:
                    self._read_results()
                self._save(is_interrupted=is_interrupted)
            self._log_waiting()
            self.checkpoints.finish()
            self.training_step.free()
            self._log_end()
            if interrupt.error:
                raise interrupt.error
        return self.is_complete and not self.state.validation_is_due

    def step(self, batch: IntArray, following: IntArray | None = None) -> StepResult:
        """Make the next update with a batch, given as indices of ``pairs``.

        Meanwhile a thread reads the ``following`` batch, also of ``pairs``, for the next call.
        On a GPU the update may still be running when this returns; reading the result waits for it.  Of the state, only
        ``step`` changes: ``train`` also counts losses and costs, validates and saves.
        """
        start = time.perf_counter()
        self._change(step=self.state.step + 1)
        read = partial(self._read, self.pairs)
        micro_batches, lengths = self._ahead.take(batch, read)
        if following is not None:
            self._ahead.begin(following, read)
        result = self.training_step(micro_batches, self.state.step, lengths)
        self._seconds += time.perf_counter() - start
        return result

    def validated_model(self) -> Transformer:
        """Return the model that a validation scores; all ranks must call this.

        With ``training.ema`` this is, on rank 0, a copy with the moving average of the weights; else the model itself.
        """
        if self.optimizer.ema is None:
            return self.model
        average = self.reducer.gather(self.optimizer.ema)
        return self.model if self.world.rank else self.model.with_values(average)

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
        """The training pairs of the current group of shards."""
        return self.batches.group(self.state.epoch, self.state.group)[0]

    def _change(self, **fields: object) -> None:
        self.state = dataclasses.replace(self.state, **fields)  # type: ignore[arg-type]

    def _is_at(self, interval: int) -> bool:
        """Return whether the number of updates is a multiple of ``interval``, or the training is complete."""
        return self.state.step % interval == 0 or self.is_complete

    def _may_lose_patience(self) -> bool:
        """Return whether the next validation without progress ends the training, and is due after this update."""
        patience = self.config.patience
        is_last = patience is not None and self.state.n_without_progress + 1 >= patience
        return is_last and self._is_at(self.config.validate_every)

    def _next_batch(self) -> IntArray:
        state = self.state
        position = state.epoch, state.group, state.next_batch
        batch, (epoch, group, index) = self.batches.next(position, state.avoided)
        self._change(epoch=epoch, group=group, next_batch=index)
        return batch

    def _following_batch(self) -> IntArray | None:
        """Return the batch of the update after the next one; None if it is in another group, or no update is left."""
        state = self.state
        if state.step + 1 >= self.config.max_updates:
            return None
        return self.batches.following((state.epoch, state.group, state.next_batch), state.avoided)

    def _read(self, pairs: Pairs, batch: IntArray) -> tuple[Any, Sequence[IntArray]]:
        """Return this rank's micro-batches, prepared for ``training_step``, and the lengths of all micro-batches."""
        read, lengths = read_micro_batches(pairs, batch, self.config.n_micro_batches, self.micro_batches)
        return self.training_step.prepare(read, lengths), lengths

    def _count(self, batch: IntArray, result: StepResult) -> None:
        """Queue an update, and count the results of all queued updates if a log line, validation or checkpoint is due.

        If none is due, leave out the last ``lag`` updates, which the device may not have computed yet.
        """
        self._guard.add(Update(self.state, batch, result))
        config = self.config
        is_due = any(map(self._is_at, (config.log_every, config.validate_every, config.checkpoint_every)))
        self._read_results(but=0 if is_due else self.training_step.lag)
        self.state = self.state.with_time(self._stopwatch.lap(), n_devices=self.world.size)

    def _read_results(self, *, but: int = 0) -> None:
        self.state = self.state.with_results(**self._guard.read(but=but)._asdict())

    def _report(self, callback: Callback) -> None:
        """Report an interval of updates at its end, unless none of its updates has changed the parameters."""
        is_due = self._is_at(self.config.log_every) or self._may_lose_patience()  # there may be no later update
        if is_due and self.state.unlogged_tokens:
            report = TrainingReport.of(self.state, self.learning_rate(self.state.step), self._guard.norm)
            self.state = self.state.with_new_interval()
            callback.report(report)

    def _validate(self, callback: Callback, interrupt: Interrupt) -> None:
        """Validate on rank 0, while the other ranks wait; save the model in the run's directory if it is the best.

        Save the run before callbacks measure the model.  At a signal or an error of a callback return at once, with
        ``validation_is_due`` set.  The time of a validation does not count as training time.
        """
        self.reducer.complete()
        with self._stopwatch.pause():
            self._change(validation_is_due=self.validation is not None)
            if self.world.any(callback.measures):
                self._save(is_interrupted=True)
            model = self.validated_model()
            with self.world.waiting_for_rank_0():
                if self.validation is not None and self.world.rank == 0:
                    self.checkpoints.writer.wait()
                    with suppress(KeyboardInterrupt), interrupt.at_error():
                        self._validate_alone(self.validation, model, callback, interrupt)
        self.state = self.world.bcast(self.state)

    def _validate_alone(
        self, validation: Validation, model: Transformer, callback: Callback, interrupt: Interrupt
    ) -> None:
        with interrupt.raise_on_signal():
            report = validation.report(model, self.state.step, callback)
        report = dataclasses.replace(report, best=exceeds(figure(report, "best_by", self.config), self.state.best))
        lost = self.checkpoints.writer.is_lost()  # the next checkpoint reports a lost directory
        kept = report.best and not lost and keep_best(self.run_directory, model)
        self._change(**progress(report, self.state, self.config, kept=kept))
        callback.report(report)

    def _save(self, *, is_interrupted: bool) -> None:
        """Save every ``checkpoint_every`` updates, at the end and at an interruption; warn if an earlier save failed.

        Raises: as ``RunCheckpoints.save``.
        """
        self.checkpoints.writer.warn_of_failure()
        is_due = self.state.step % self.config.checkpoint_every == 0
        if (is_due and self._guard.is_sound) or self.is_complete or is_interrupted:
            self._change(between_intervals=not is_due)
            self.checkpoints.save(self.state)

    def _go_back(self, rollback: Rollback) -> None:
        """Resume from the last checkpoint, and avoid the skipped batches; keep the costs that were counted so far.

        Raises: TrainingDivergedError at the second call, or if there is no checkpoint.
        """
        undone, avoided = self.state, (*self.state.avoided, *rollback.avoided)
        self.checkpoints.finish()
        if undone.avoided or not self.resume():
            last = rollback.skipped[-1]
            rate = self.learning_rate(last.state.step)
            facts = UpdateFacts.of(last.state, last.batch, self.config, rate, rollback.reason)
            self.reducer.complete()
            shard = self.optimizer.shard(self.model.parameters.gradients)
            gradients = self.reducer.gather(shard * (1 / last.result.n_tokens))
            pairs, _ = self.batches.group(last.state.epoch, last.state.group)
            give_up(self.run_directory, self.model, pairs, facts, gradients, self.world)
        self.state = self.state.after_rollback(undone, avoided)
        _log.info(f"going on from update {self.state.step:,}, without {len(avoided)} batches")

    @contextmanager
    def _wait_at_end(self) -> Iterator[None]:
        """Name the update in which an error occurs, and wait for a checkpoint that is being written."""
        try:
            yield
        except Exception as error:
            error.add_note(f"(in update {self.state.step:,})")
            raise
        finally:
            self.checkpoints.writer.wait()

    def _log_waiting(self) -> None:
        """Log the share of time that ranks have spent waiting for the slowest rank."""
        if self.world.any(self.reducer.seconds_waited > 0):
            share = self.world.allreduce(self.reducer.seconds_waited / self._seconds) / self.world.size
            _log.info(f"processes waited {100 * share:.1f} % of the time for the slowest one of each update")

    def _log_end(self) -> None:
        state = self.state
        if not self.is_complete or state.validation_is_due:
            _log.info(f"interrupted after update {state.step:,} and saved; the same run goes on from there")
        elif self.has_lost_patience:
            _log.info(
                f"ended after update {state.step:,}: {state.n_without_progress} validations without a better"
                f" {(state.best_watched or ('figure',))[0]} (training.patience; raise it to go on)"
            )


class Stopwatch:
    """A stopwatch that returns the seconds since the last lap, without pauses."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def lap(self) -> float:
        """Return the time since the last call, or since the start."""
        start, self._start = self._start, time.perf_counter()
        return self._start - start

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Do not count the time within this context."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - start
