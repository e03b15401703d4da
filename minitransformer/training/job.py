"""A training run from raw text to the model that translates."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitransformer.config import TrainingConfig
from minitransformer.config.run import RUN_FILE, RunConfig
from minitransformer.data.prepare import PreparedData
from minitransformer.model.files import load_model_files
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError, DamagedError, read_json, write_text
from minitransformer.system.placement import choose_placements
from minitransformer.system.provenance import code_version, short_hash
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import average_weights, checkpoints_of_updates, stale_checkpoints
from minitransformer.training.flops import Cost, sustained_flops_per_second
from minitransformer.training.largest_batch import advising, try_largest_batch
from minitransformer.training.run_data import RESULTS_FILE, check_lengths, shared_data, sized
from minitransformer.training.trainer import Trainer, reducer_for
from minitransformer.training.validation import BEST, Validation
from minitransformer.training.writer import LostDirectoryError
from parallel.agreement import check_agreement
from parallel.communicator import Communicator, working_ranks
from parallel.placement import cores_of, describe

SAME_START = "Start all ranks with the same code, options and data"


@dataclass(frozen=True)
class TrainingJob:
    """Data, model and trainer of a run, ready to train."""

    config: RunConfig
    world: Communicator
    data: PreparedData
    trainer: Trainer

    @classmethod
    def of(cls, config: RunConfig, world: Communicator, say: Callable[[str], None]) -> TrainingJob:
        """Prepare the data if need be, build the model, and go back to the last checkpoint if there is one.

        Raises: ConfigError if the run's directory holds another run; CorpusError; CheckpointError; OutOfMemoryError;
        DeviceError; DisagreementError before ranks share memory for a model.
        """
        _compare_ranks(world, {"code": code_version(), **config.settings()})
        placements = choose_placements(config.device, world)
        data = shared_data(config, world, say)
        _compare_ranks(world, {"prepared data": data.digest})
        training = config.training
        n_threads = 1 if config.device == "cuda" else cores_of(world.rank, placements)
        reducer = reducer_for(training, world, config.device, n_threads)
        model = Transformer(
            sized(config.model, data), seed=training.seed, dtype=training.precision, device=config.device,
            allocate=reducer.allocate,
        )  # fmt: skip
        check_lengths(model.config, data)
        validation = Validation(data, n_threads=n_threads) if world.rank == 0 else None
        trainer = Trainer(
            model, data.store("train"), validation, config.training, config.run, world, reducer, n_threads=n_threads
        )
        say(
            f"{model.n_parameters:,} parameters, {len(trainer.store):,} training pairs;"
            f" processes {world.size}, threads each {n_threads}"
        )
        if world.size > 1:
            for line in (*describe(placements), reducer.description):
                say(line)
        for line in _about_idleness(config.training, world, n_threads):
            say(line)
        if trainer.resume(say) and trainer.state.step < config.training.max_updates:
            say(f"going on from update {trainer.state.step:,} of {config.training.max_updates:,}")
        trainer.check_agreement("at the start", SAME_START, update=str(trainer.state.step))
        if trainer.state.step < config.training.max_updates:
            try_largest_batch(trainer, say)
        if world.rank == 0:
            config.claim_directory()
        return cls(config, world, data, trainer)

    def train(self, callback: Callback) -> bool:
        """Train to the end; False if interrupted, and saved.  Raises: as ``Trainer.train``; OutOfMemoryError."""
        try:
            with advising(self.trainer):
                return self.trainer.train(callback)
        except LostDirectoryError as error:
            self.data.tokenizer.save(error.kept_in)  # without which no run goes on
            raise

    @property
    def is_finished(self) -> bool:
        """Whether an earlier command has brought this run to its end."""
        results, step = self.config.run / RESULTS_FILE, self.trainer.state.step
        if step < self.config.training.max_updates or not results.exists():
            return self.world.bcast(False)
        told = read_json(results)
        return self.world.bcast(isinstance(told, dict) and told.get("updates") == step)

    def load_final_model(self) -> None:
        """Load the weights that ``finish`` has saved into the model."""
        self.trainer.model.set_weights(load_model_files(self.config.run)[1])

    def finish(self, callback: Callback, *, always_average: bool = False) -> None:
        """Make the final model, save it in the run's directory, and say what it has cost, and how good it is.

        ``always_average``: it is the average of the last checkpoints also where a single one is better.
        """
        cost = self._cost()
        with self.world.waiting_for_rank_0():
            if self.trainer.validation is not None:
                self._finish(self.trainer.validation, cost, callback, always_average)

    def _cost(self) -> Cost | None:
        """Return the cost of the training, or None if the run began before costs were counted; all ranks must call."""
        state, n_threads = self.trainer.state, self.trainer.gradient.n_threads
        rate = sustained_flops_per_second(self.config.device, n_threads)
        rate = self.world.allreduce(rate) / self.world.size
        if state.flops is None or state.device_seconds is None:
            return None
        return Cost(state.flops, state.device_seconds, rate)

    def _finish(self, validation: Validation, cost: Cost | None, callback: Callback, always_average: bool) -> None:
        start = time.perf_counter()
        weights, perplexity = self._choose_final_weights(validation, callback, always_average)
        model, results = self.trainer.model, self._provenance() | {"weights": weights} | _told(cost)
        callback.say(f"training cost: {cost or 'not known, because the run was begun before this was counted'}")
        for split in ("validation", "test"):
            text = self.data.text(split)
            if text:
                score = validation.score(model, text, beam=4)
                results[split] = {score.name.lower(): score.value, "detail": score.detail, "signature": score.signature}
                if split == "validation":
                    results[split]["perplexity"] = perplexity
                callback.say(f"{split}: {score}, beam 4, {len(text):,} sentences")
        callback.say(f"code {results['code']}, configuration {results['configuration']}")
        results["evaluation_seconds"] = time.perf_counter() - start
        self._require_directory()
        write_text(self.config.run / RESULTS_FILE, json.dumps(results, indent=2) + "\n")

    def _choose_final_weights(
        self, validation: Validation, callback: Callback, always_average: bool
    ) -> tuple[str, float]:
        """Load the average of the last checkpoints, or the best single model if it has a lower loss.

        Returns: which weights they are, as ``results.json`` has it, and their perplexity on the validation set.
        """
        model, state = self.trainer.model, self.trainer.state
        self._require_directory()
        last = checkpoints_of_updates(self.config.run)[-self.config.training.average_checkpoints :]
        last = [path for path in last if self._is_whole(path, callback)]
        if stale := stale_checkpoints(last, state.step, self.config.training):
            callback.say(f"warning: {stale}")
        best = not always_average and self._is_whole(self.config.run / BEST, callback)
        model.set_weights(average_weights(last))
        average = validation.loss(model)
        loss, perplexity = average.loss, average.perplexity
        self._require_directory()
        if best and state.best_loss is not None and state.best_loss < loss:
            model.set_weights(load_model_files(self.config.run / BEST)[1])
            weights = f"best single model, validation loss {state.best_loss:.4f}"
            perplexity = math.exp(state.best_loss)
            callback.say(f"kept the {weights} (average: {loss:.4f})")
        else:
            weights = f"average of the last {len(last)} checkpoints"
            callback.say(f"made the {weights}, validation loss {loss:.4f}")
        model.save(self.config.run)
        return weights, perplexity

    def _require_directory(self) -> None:
        """Raise CheckpointError if the run's directory is gone: half of one must not be made anew."""
        if not (self.config.run / RUN_FILE).exists():
            raise CheckpointError(
                f"{self.config.run}: was moved or removed after its last update ({RUN_FILE} is no longer there). If you"
                " have moved it, give the same command with its new place as the run's directory, which finishes it"
            )

    def _is_whole(self, directory: Path, callback: Callback) -> bool:
        """Whether every byte of a model is as it was written; if not, the run ends without it, and says so."""
        try:
            load_model_files(directory)
        except DamagedError as error:
            callback.say(f"warning: {error}; the final model is made without {directory.name}")
            return False
        return True

    def _provenance(self) -> dict[str, Any]:
        return {
            "code": code_version(),
            "configuration": short_hash(self.config.to_json()),
            "updates": self.trainer.state.step,
            "training_seconds": self.trainer.state.seconds,
            "parameters": self.trainer.model.n_parameters,
        }


def _compare_ranks(world: Communicator, facts: Mapping[str, str]) -> None:
    check_agreement(world, facts, "at the start", SAME_START)


def _told(cost: Cost | None) -> dict[str, Any]:
    """Return a cost as ``results.json`` holds it."""
    if cost is None:
        return {"flops": None}
    return {
        "flops": cost.flops,
        "flops_by_time": cost.flops_by_time,
        "device_seconds": cost.device_seconds,
        "device_flops_per_second": cost.flops_per_second,
    }


def _about_idleness(training: TrainingConfig, world: Communicator, n_threads: int) -> Iterator[str]:
    """Whether there is less work than there are threads or processes for it."""
    surplus = n_threads - training.n_shards
    if world.size == 1 and surplus > 0:
        yield f"{surplus} of {n_threads} threads will stand idle: raise --training.n-shards to use them"
    idle = world.size - working_ranks(world.size, training.n_shards, training.sum)
    if idle:
        power = "" if training.sum == "fast" else ", and a power of two of processes share them"
        yield (
            f"{idle} of {world.size} processes will stand idle: a batch has {training.n_shards} shards{power}"
            " (--training.n-shards)"
        )
