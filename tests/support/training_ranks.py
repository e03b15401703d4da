"""Programs of ranks that train."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import fake_cuda
import numpy as np
import page_optimizers  # noqa: F401  (settings name its optimizers)
import pytest
from summing_ranks import N_MICRO_BATCHES, world_of_kind

from autograd import Tensor, to_host
from autograd.array import Device
from cli.command import log_shown
from minitransformer import ModelConfig, Transformer
from minitransformer.config import DataConfig, RunConfig, TrainingConfig
from minitransformer.data import batching
from minitransformer.data import store as store_module
from minitransformer.data.batching import BatchOrder, WeightedPairs
from minitransformer.data.prepare import prepare
from minitransformer.data.store import Pairs, TokenStore, TrainingPairs, write_store
from minitransformer.system import checksums
from minitransformer.training import divergence
from minitransformer.training.callbacks import Callback, CallbackError
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.loop import Trainer
from minitransformer.training.new_trainer import reducer_for
from minitransformer.training.run_data import shared_data
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from parallel.agreement import checksum
from parallel.communicator import Communicator, SentIn, SerialCommunicator, SumOrder

MODEL = ModelConfig(
    vocabulary_size=23, n_layers=1, d_model=8, d_ff=16, n_heads=2, d_k=4, d_v=4, p_drop=0.1, p_drop_attention=0.1
)
TRAINING = TrainingConfig(
    precision="float32",
    max_updates=6,
    batch_tokens=60,
    n_micro_batches=N_MICRO_BATCHES,
    warmup_steps=4,
    clip_norm=1.0,
    log_every=2,
    checkpoint_every=3,
)

FAULTY_BATCHES = {(0, 1), (1, 0), (1, 1), (2, 2), (2, 3)}  # by epoch and place: one alone, two in a row, and two again
SPOILT_PARAMETER = "decoder.layers.0.source_attention.value.weight"  # another rank adds it up


class Penalised(Transformer):
    """A model with a penalty of a matrix."""

    def penalty(self) -> Tensor:
        weight = self.decoder.layers[0].feed_forward.hidden.weight
        return (weight * weight).sum() * 0.3


def trainer_in(
    directory: Path,
    world: Communicator,
    config: TrainingConfig = TRAINING,
    device: Device = "cpu",
    dtype: str = "float32",
    n_threads: int = 1,
    kind: type[Transformer] = Transformer,
    weights: Sequence[float] = (),
) -> Trainer:
    """The trainer of a new model, on the data in a directory; with weights, on two files, cut within a shard."""
    reducer = reducer_for(config, world, device, n_threads)
    model = kind(MODEL, seed=config.seed, dtype=dtype, device=device, allocate=reducer.allocate)
    store: TrainingPairs = TokenStore(directory / "data", "train")
    if weights:
        store = WeightedPairs(store, [20, len(store) - 20], weights, config.seed)
    return Trainer(model, store, None, config, directory / "run", world, reducer, n_threads=n_threads)


def train(
    world: Communicator,
    directory: Path,
    n_updates: str,
    n_threads: str,
    device: Device = "cpu",
    way: str = "",
    deviant: str = "",
    order: SumOrder = "exact",
    precision: str = "float32",
    sent_in: SentIn = "float32",
    optimizer: str = "adam",
    weights: str = "",
    ema: str = "0",
    freeze: str = "",
) -> dict[str, Any]:
    """Train up to an update, going on from the last checkpoint, and save every rank's own parameters.

    A ``deviant`` rank has another parameter than the others after every update; for that, each must have its own.
    With another optimizer than Adam, the model also has a penalty.  With ``ema``, rank 0 saves the moving average.
    """
    if way:
        world = world_of_kind(way)
    config = dataclasses.replace(TRAINING, max_updates=int(n_updates), sum=order, gradients_sent_in=sent_in)
    config = dataclasses.replace(
        config,
        precision="float32" if precision == "float32" else "bfloat16",
        optimizer=optimizer,
        ema=float(ema),
        freeze=tuple(freeze.split()),
    )
    dtype = "float32" if precision == "bfloat16 products" else precision
    kind = Transformer if optimizer == "adam" else Penalised
    factors = tuple(map(float, weights.split()))
    trainer = trainer_in(directory, world, config, device, dtype, int(n_threads), kind, factors)
    reducer, model = trainer.reducer, trainer.model
    if deviant and world.rank == int(deviant):
        all_gather = reducer.all_gather

        def gather_and_deviate(*weights: Any) -> None:
            all_gather(*weights)
            model.parameters.values[0] += 1e-3

        reducer.all_gather = gather_and_deviate  # type: ignore[method-assign]
    first_update = trainer.resume() and trainer.state.step
    finished = trainer.train(Callback())
    np.save(directory / f"parameters-{world.rank}.npy", to_host(model.parameters.values))
    if trainer.optimizer.ema is not None and (average := trainer.validated_model()) is not model:
        np.save(directory / "average.npy", average.parameters.values)
    return {
        "first update": first_update,
        "finished": finished,
        "micro_batches": len(trainer.micro_batches),
        "moments": trainer.optimizer.size,
        "epoch": trainer.state.epoch,
        "flops": trainer.state.flops,
        "way": reducer.description,
    }


@mock.patch.object(batching, "SHARDS_AT_ONCE", 1)
def train_and_report(world: Communicator, directory: Path) -> dict[str, Any]:
    """Two updates in two groups of shards: which pairs this rank reads for each, and what it says of itself."""
    read: list[list[int]] = []

    class Watched(Pairs):
        def packed(self, indices: Any, side: int) -> Any:
            if side == 0:
                read[-1].extend(indices.tolist())
            return super().packed(indices, side)

    trainer, lines = trainer_in(directory, world, dataclasses.replace(TRAINING, max_updates=2)), list[str]()
    step = trainer.step

    def step_and_note(batch: Any, following: Any) -> Any:
        read.append([])
        return step(batch, following)

    trainer.step = step_and_note  # type: ignore[method-assign]
    with log_shown(lines.append), mock.patch.object(store_module, "Pairs", Watched):
        trainer.train(Callback())
    order = BatchOrder(trainer.store, TRAINING.batch_tokens, TRAINING.seed)
    first, after = order.next((0, 0, 0))
    return {"read": read, "batches": [first.tolist(), order.next(after)[0].tolist()], "lines": lines}


class OnOneRank(Callback):
    """Measures the model, or fails after two updates."""

    def __init__(self, failure: str) -> None:
        self.failure = failure

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        if self.failure and state.step == 2:
            raise ValueError(self.failure)

    def validated(self, *arguments: Any) -> dict[str, float]:
        return {}


def train_with_callback(world: Communicator, directory: Path, rank: str, failure: str) -> str:
    """Train with a callback on one rank only; return how that ends on this rank."""
    callback = OnOneRank(failure) if world.rank == int(rank) else Callback()
    try:
        return str(trainer_in(directory, world).train(callback))
    except CallbackError as error:
        return str(error)


class WitnessingMonitor(Callback):
    """Remembers all that happens, and the parameters after every update."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        self.events.append(f"update {state.step}: parameters {checksum(model.parameters.values)}")

    def go_back(self, state: TrainingState) -> None:
        self.events.append(f"back to update {state.step}")


def train_with_faults(world: Communicator, directory: Path, fault: str, way: str = "") -> dict[str, Any]:
    """Train until that is given up, with a patience of two updates; return what this rank has seen.

    In FAULTY_BATCHES the rank that computes the last micro-batch, and no other, has the fault: "loss nan", "gradient
    inf" …
    """
    if way:
        world = world_of_kind(way)
    trainer, events = trainer_in(directory, world, dataclasses.replace(TRAINING, max_updates=99)), list[str]()
    compute, parameters, (of_what, value) = trainer.gradient.compute, trainer.model.parameters, fault.split()

    def compute_with_fault(*arguments: Any) -> Any:
        loss = compute(*arguments)
        if (
            N_MICRO_BATCHES - 1 in trainer.micro_batches
            and (trainer.state.epoch, trainer.state.next_batch - 1) in FAULTY_BATCHES
        ):
            if of_what == "loss":
                return loss * float(value)
            parameters.named[SPOILT_PARAMETER].view_of(parameters.gradients)[0, 0] = float(value)
        return loss

    trainer.gradient.compute = compute_with_fault  # type: ignore[method-assign]
    with (
        log_shown(events.append),
        mock.patch.object(divergence, "PATIENCE", 2),
        pytest.raises(TrainingDivergedError) as raised,
    ):
        trainer.train(WitnessingMonitor(events))
    return {"events": events, "end": str(raised.value).replace(str(directory), "")}


def parameters_of(directory: Path, rank: int = 0) -> Any:
    return np.load(directory / f"parameters-{rank}.npy")


def corpus_in(directory: Path) -> Path:
    """Three shards with 36 pairs of random sentences, some empty; the last of six updates is in the second epoch."""
    random = np.random.default_rng(9)

    def sentence() -> list[int]:
        return random.integers(3, MODEL.vocabulary_size, random.integers(0, 9)).tolist()

    with mock.patch.object(store_module, "PAIRS_PER_SHARD", 13):
        write_store(directory / "data", "train", [(sentence(), sentence()) for _ in range(36)], MODEL.vocabulary_size)
    return directory


def text_to_prepare(world: Communicator, directory: Path, validation: str) -> DataConfig:
    """95 pairs, with copies, mojibake, pairs to drop and characters to lose."""
    words = [" ".join("abcdefgh"[i % 8] * (1 + i % 3) for i in range(start, start + 4)) for start in range(70)]
    words += ["", "a c e g b d f h a c e g", "a b c d aa b", "\u00ad a", "a bÃ¼ c"] * 5
    if world.rank == 0:
        for name, lines in (("a", words[:50]), ("b", words[50:])):
            for language in ("en", "de"):
                (directory / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sources, targets = (tuple(f"{name}.{end}" for name in ("a", "b")) for end in ("en", "de"))
    in_files = validation == "in files"
    world.barrier()
    return DataConfig(
        raw=directory,
        train_source=sources,
        train_target=targets,
        validation_source=sources if in_files else (),
        validation_target=targets if in_files else (),
        vocabulary_size=40,
        max_length=8,
        held_out=9,
    )


@mock.patch.object(store_module, "PAIRS_PER_SHARD", 7)
def prepare_together(world: Communicator, directory: Path, validation: str) -> list[str]:
    """Prepare pairs in shards of seven; return the log."""
    config, lines = text_to_prepare(world, directory, validation), list[str]()
    with log_shown(lines.append):
        prepare(config, directory / "data", world=world)
    return [line.replace(str(directory), "") for line in lines]


@mock.patch.object(store_module, "PAIRS_PER_SHARD", 7)
def open_prepared(world: Communicator, directory: Path) -> tuple[list[str], int, list[list[int]]]:
    """Prepare and open data, in pairs as two machines.

    Return the files whose checksums this rank computed in the second call, its opened shards, and all lengths.
    """
    config = RunConfig(run=directory, data=text_to_prepare(world, directory, "held out"))
    pairs = world_of_kind("pairs")
    shared_data(config, pairs)
    with (
        mock.patch.object(checksums, "_sha256", side_effect=checksums._sha256) as digest,
        mock.patch.object(store_module, "_open_shard", side_effect=store_module._open_shard) as opening,
    ):
        stores = shared_data(config, pairs).stores.values()
    paths = [call.args[0] for call in digest.call_args_list]
    names = sorted(path.name for path in paths if path.parent == config.data_directory)
    return names, opening.call_count, [store.read().lengths.tolist() for store in stores]


def train_on_stand_in_for_gpu(world: Communicator, directory: Path, n_updates: str) -> None:
    """Train together, and rank 0 alone, too."""
    fake_cuda.stand_in_for_cupy()
    if world.rank == 0:
        train(SerialCommunicator(), corpus_in(directory / "alone"), n_updates, "1", "cuda")
    train(world, directory, n_updates, "1", "cuda")
