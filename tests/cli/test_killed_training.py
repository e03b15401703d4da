"""Killed with SIGKILL at any moment, and started again, training ends as if nothing had happened."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_run import write_parallel_text

from cli.prepare import prepare_data
from tests.cli.test_determinism import differing

ROOT = Path(__file__).parents[2]
# Log lines sum up updates before and after a checkpoint; validations and checkpoints fall together and do not.
DATA = [
    "--data.train-source", "train.en", "--data.train-target", "train.de", "--data.validation-source", "valid.en",
    "--data.validation-target", "valid.de", "--data.vocabulary-size", "40",
]  # fmt: skip
TRAINING = """--model.n-layers 1 --model.d-model 16 --model.d-ff 32 --model.n-heads 2 --model.d-k 8 --model.d-v 8
    --training.max-updates 8 --training.batch-tokens 100 --training.n-micro-batches 2 --training.warmup-steps 6
    --model.alpha 0.6 --training.log-every 5 --training.validate-every 3 --training.checkpoint-every 2
    --training.keep-checkpoints 3 --training.average-checkpoints 2"""
Life = tuple[str, float]  # killed in a "call", during "validation", … (killed.py): in which one, as a share of all


@dataclass(frozen=True)
class Undisturbed:
    """A run in one go, and how many calls and operations on files it makes, by where."""

    folder: Path
    run: Path
    counts: dict[str, int]


def live(lives: list[tuple[str, int]], folder: Path, run: Path) -> list[str]:
    command = [sys.executable, str(ROOT / "tests" / "support" / "killed.py"), json.dumps(lives)]
    command += ["--run", str(run), "--data.directory", str(folder / "data"), "--data.raw", str(folder), *DATA]
    command += TRAINING.split()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *ends, last = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert last == "status 0", done.stderr
    return [*ends, done.stdout.splitlines()[-2]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("killed")
    write_parallel_text(folder, "train", 100, seed=1)
    write_parallel_text(folder, "valid", 5, seed=2)
    assert prepare_data(["--run", str(folder), "--data.raw", str(folder), *DATA]) == 0
    (counts,) = live([], folder, folder / "run")
    return Undisturbed(folder, folder / "run", json.loads(counts))


def check(lives: list[Life], undisturbed: Undisturbed) -> list[str]:
    run = undisturbed.folder / "disturbed"
    shutil.rmtree(run, ignore_errors=True)
    ends = live([(kind, 1 + int(share * undisturbed.counts[kind])) for kind, share in lives], undisturbed.folder, run)
    assert differing(undisturbed.run, run) == []
    return ends


LIVES = st.lists(st.tuples(st.sampled_from(["call", "file", "file"]), st.floats(0, 1, exclude_max=True)), max_size=4)


@pytest.mark.parametrize(
    ("lives", "n_killed"),
    [
        ([("call", 0.2), ("file", 0.4), ("call", 0.35)], 2),  # anywhere
        # the first validation, a save, the second validation, again, and another save
        ([("validation", 0.1), ("file", 0.2), ("validation", 0.45), ("validation", 0.2), ("file", 0.3)], 4),
    ],
)
def test_a_run_killed_often_ends_as_if_undisturbed(lives: list[Life], n_killed: int, undisturbed: Undisturbed) -> None:
    assert check(lives, undisturbed)[:n_killed] == ["killed"] * n_killed


@pytest.mark.slow
def test_a_run_killed_at_every_operation_of_a_save_ends_as_if_it_had_not_been(undisturbed: Undisturbed) -> None:
    """Of the first of four, one operation later in each life; what only the last does, removing, is killed above."""
    n = undisturbed.counts["save"]
    ends = check([("save", (i + 0.5) / n) for i in range(n // 4)], undisturbed)
    assert ends.index("status 0") > n // 5


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lives=LIVES)
def test_runs_killed_at_many_moments_end_as_if_they_had_not_been(undisturbed: Undisturbed, lives: list[Life]) -> None:
    check(lives, undisturbed)
