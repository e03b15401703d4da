"""The largest batch is tried first: it changes nothing, and what does not fit is told with a way out."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from waiting import TIME_LIMIT

from autograd import Tensor
from minitransformer import Batch, ModelConfig
from minitransformer.config import RunConfig
from minitransformer.data.batching import cut_into_micro_batches
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training import open_run as opening
from minitransformer.training.callbacks import Callback
from minitransformer.training.flops import flops_of_pairs
from minitransformer.training.loop import Trainer
from minitransformer.training.memory import OutOfMemoryError, memory_advice, try_largest_batch
from minitransformer.training.open_run import OpenRun
from minitransformer.training.run import train_to_end
from minitransformer.training.validation import ValidationMemoryError
from parallel.communicator import SerialCommunicator
from tests.minitransformer.training.test_trainer import everything
from tests.minitransformer.training.test_trainer import trainer_of as any_trainer
from tests.support.training import job_of, run_of

ROOT = Path(__file__).parents[3]
ENOUGH = 2_000_000  # FLOPs of a micro-batch: more than those of the longest pair
MODEL = ModelConfig(vocabulary_size=30, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)


def trainer_of(folder: Path, *, n_threads: int = 2, model: ModelConfig = MODEL, **training: Any) -> Trainer:
    folder.mkdir(exist_ok=True)
    ids = np.random.default_rng(5)
    pairs = [tuple(ids.integers(3, 30, n).tolist() for n in ids.integers(1, 20, 2)) for _ in range(60)]
    write_store(folder, "train", pairs, 30)
    changes = {"max_updates": 6, "batch_tokens": 150, "n_micro_batches": 4, "checkpoint_every": 3} | training
    return any_trainer(folder, store=TokenStore(folder, "train"), n_threads=n_threads, model=model, **changes)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_trying_the_largest_batch_changes_no_bit(tmp_path: Path, n_threads: int) -> None:
    tried, other = (trainer_of(tmp_path / name, n_threads=n_threads) for name in ("tried", "other"))
    try_largest_batch(tried)
    assert everything(tried) == everything(other)
    assert tried.train(Callback())
    assert other.train(Callback())
    assert everything(tried) == everything(other)


def test_only_each_threads_largest_micro_batch_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tmp_path)
    monkeypatch.setattr(trainer.model, "loss", loss := Mock(wraps=trainer.model.loss))
    try_largest_batch(trainer)
    costs_by_batch = []
    for batch in trainer.batches.group(0, 0)[1]:
        cut = cut_into_micro_batches(batch, trainer.pairs.lengths, 4)
        costs = [flops_of_pairs(MODEL, trainer.pairs.lengths[micro_batch] + 1).sum() for micro_batch in cut]
        costs_by_batch.append(sorted([max(costs[:2]), max(costs[2:])]))
    assert sorted(flops_of(call.args[0]) for call in loss.call_args_list) == max(costs_by_batch, key=sum)


def test_it_logs_taken_and_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]) -> None:
    """Most of it are buffers as large as the model: one for each level of the tree of micro-batches."""
    monkeypatch.setattr("minitransformer.system.memory.free_memory", lambda n_processes: 8e9 / n_processes)
    trainer = trainer_of(tmp_path, model=dataclasses.replace(MODEL, d_ff=50_000), n_threads=1)
    size = trainer.model.parameters.values.nbytes
    for n_processes, free in ((1, "8.00 GB"), (4, "2.00 GB for each of 4 processes")):
        monkeypatch.setattr(trainer.world, "local_size", n_processes)
        try_largest_batch(trainer)
        taken = re.fullmatch(rf"memory: the largest batch takes ([\d.]+) MB; {free} were free", logged.pop())
        assert taken
        assert 2 * size <= 1e6 * float(taken[1]) < 8 * size


def flops_of(batch: Batch) -> int:
    return int(flops_of_pairs(MODEL, np.stack([batch.source.lengths, batch.target.lengths], axis=1)).sum())


def lacking_above(flops: int, trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the trainer's memory suffice for micro-batches of at most so many FLOPs."""
    loss = trainer.model.loss

    def limited(batch: Batch, random: Any = None) -> Tensor:
        if flops_of(batch) > flops:
            raise MemoryError("Unable to allocate 1.00 EiB")
        return loss(batch, random)

    monkeypatch.setattr(trainer.model, "loss", limited)


def test_a_lack_of_memory_tells_what_fits_if_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tmp_path, batch_tokens=600)
    lacking_above(ENOUGH, trainer, monkeypatch)
    with pytest.raises(OutOfMemoryError) as caught:
        try_largest_batch(trainer)
    message = re.fullmatch(
        r"out of memory \(trying the largest batch\): 600 tokens in 4 micro-batches need more than the .* that are"
        r" free\. training\.n_micro_batches = (\d+) fits: the same batch in smaller pieces",
        str(caught.value),
    )
    assert message
    again = trainer_of(tmp_path / "again", batch_tokens=600, n_micro_batches=int(message[1]))
    lacking_above(ENOUGH, again, monkeypatch)
    assert again.train(Callback())
    lacking_above(0, trainer, monkeypatch)
    with pytest.raises(OutOfMemoryError, match="No number of micro-batches fits: choose a smaller model "):
        try_largest_batch(trainer)


WITHIN_A_LIMIT = """
import numpy as np
from minitransformer.system.memory import limited_memory
with limited_memory(100e6):
    np.zeros(10_000_000, np.int8)
    try:
        np.zeros(200_000_000, np.int8)
    except MemoryError:
        print("refused", end=" ")
np.zeros(200_000_000, np.int8)
print("granted")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the data of a process")
def test_more_memory_than_is_free_is_refused_and_not_only_promised() -> None:
    """In a process of its own: the heap of this one may have as much that is free."""
    command = [sys.executable, "-c", WITHIN_A_LIMIT]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=TIME_LIMIT)
    assert run.stdout == "refused granted\n"


def test_a_lack_of_memory_later_names_the_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tmp_path)
    job = OpenRun(RunConfig(), SerialCommunicator(), None, trainer)  # type: ignore[arg-type]

    monkeypatch.setattr(trainer.gradient, "compute", Mock(side_effect=MemoryError))
    with pytest.raises(OutOfMemoryError, match=r"out of memory \(update 1\)"):
        train_to_end(job, Callback())


@pytest.mark.parametrize("lacking", ["score_pairs", "Translator"])
def test_lack_of_memory_in_validation_has_a_line(lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(run_of(tmp_path, max_updates=2))
    monkeypatch.setattr(f"minitransformer.training.validation.{lacking}", Mock(side_effect=MemoryError))
    with pytest.raises(ValidationMemoryError) as caught:
        train_to_end(job, Callback())
    assert re.match(r"validation: out of memory, with pairs of up to 1\d tokens, on \d+ threads\. ", str(caught.value))
    assert "batch" not in str(caught.value)


def test_a_run_may_change_its_batches_until_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(opening, "try_largest_batch", Mock(side_effect=OutOfMemoryError("out of memory")))
        with pytest.raises(OutOfMemoryError):
            job_of(config)
    assert not (config.run / "run.json").exists()
    trainer = job_of(config).trainer
    message = rf" smaller pieces, with another directory as run: {config.run} has begun with other batches$"
    with pytest.raises(OutOfMemoryError, match=message), memory_advice(trainer):
        raise MemoryError
    (config.run / "run.json").unlink()
    with pytest.raises(OutOfMemoryError, match=r" smaller pieces$"), memory_advice(trainer):
        raise MemoryError


LIMITED = """
import os, resource, sys
from cli.train import main
import minitransformer.training.open_run as opening
from minitransformer.training.update import TrainingStep

try_first, update = opening.try_largest_batch, TrainingStep.__call__

def limited(trainer):
    taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + 300 * 10**6, resource.RLIM_INFINITY))
    try_first(trainer)

def last_limited(*arguments):
    update(*arguments)
    os._exit(0)

opening.try_largest_batch, TrainingStep.__call__ = limited, last_limited
sys.exit(main())
"""


def limited_to_300_mb(options: str) -> tuple[int, str]:
    """The command with 300 MB more than it has taken when it begins, to its first update: status, words."""
    command = [sys.executable, "-c", LIMITED, *options.split()]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)
    return run.returncode, run.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read from Linux")
def test_a_process_that_may_not_take_more_memory_says_what_to_do_before_its_first_update(tmp_path: Path) -> None:
    for name in ("en", "de"):
        (tmp_path / name).write_text("".join(f"{'abcdefgh'[i % 8]} b c d e f g {i}\n" for i in range(3_000)))
    command = f"""--run {tmp_path / "run"} --data.raw {tmp_path} --data.train-source en --data.train-target de
        --data.vocabulary-size 25 --model.d-model 64 --model.d-ff 2048 --model.n-layers 4
        --training.batch-tokens 8000 --training.n-micro-batches 1 --training.max-updates 1"""
    status, logged = limited_to_300_mb(command)
    assert status == 1
    fits = re.search(
        r"\nerror: out of memory \(trying the largest batch\): 8,000 tokens in 1 micro-batches need more than .*"
        r"training\.n_micro_batches = (\d+) fits.*\n$",
        logged,
    )
    assert fits
    assert "Traceback" not in logged
    assert not list((tmp_path / "run").glob("checkpoints/*"))
    status, logged = limited_to_300_mb(command.replace("batches 1 ", f"batches {fits[1]} "))
    assert status == 0, logged
