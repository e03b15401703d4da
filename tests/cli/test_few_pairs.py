"""Batches with fewer pairs than micro-batches: ranks without pairs, and the same bits as one process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mpirun import MPIRUN, needs_mpi, run
from small_run import contents, output_of

from cli.train import train

FIVE_PAIRS = {
    "the dog sleeps": "der Hund schläft",
    "the cat sleeps": "die Katze schläft",
    "the man sees the dog": "der Mann sieht den Hund",
    "the woman sees the cat": "die Frau sieht die Katze",
    "a dog sees a cat": "ein Hund sieht eine Katze",
    "a man sleeps": "ein Mann schläft",  # one of the six is held out
}
MODEL = """--data.train-source en --data.train-target de --data.held-out 1 --data.vocabulary-size 40
    --model.n-layers 1 --model.d-model 16 --model.d-ff 16 --model.n-heads 2 --model.d-k 8 --model.d-v 8
    --training.max-updates 3 --training.validate-every 3 --training.checkpoint-every 3"""


@needs_mpi
@pytest.mark.parametrize(
    ("n_ranks", "batches"),
    [
        (4, "--training.n-micro-batches 8"),  # more than the five pairs
        (2, "--training.n-micro-batches 2 --training.batch-tokens 12"),
    ],
)
def test_ranks_without_pairs_train_as_one_process_does(n_ranks: int, batches: str, tmp_path: Path) -> None:
    for name, lines in (("en", FIVE_PAIRS.keys()), ("de", FIVE_PAIRS.values())):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = ["--data.raw", str(tmp_path), *MODEL.split(), *batches.split()]
    output_of(lambda: train(["--run", str(tmp_path / "one"), *options]))
    command = [sys.executable, "-c", "from cli.train import main; raise SystemExit(main())"]
    assert MPIRUN is not None
    done = run([MPIRUN, "-n", str(n_ranks), *command, "--run", str(tmp_path / "several"), *options])
    assert done.returncode == 0, done.stderr
    one, several = (
        {name: content for name, content in contents(tmp_path / run / "checkpoints").items() if "safetensors" in name}
        for run in ("one", "several")
    )
    assert several == one != {}
