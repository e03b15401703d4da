"""Ranks that differ in options, data, parameters, compilers or processors, and ranks without pairs."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mpirun import MPIRUN, needs_mpi, run
from small_run import SMALL_MODEL, SMALLEST, changed, contents, output_of, write_parallel_text

from autograd.kernels.cpu.library import library
from cli.prepare import prepare_data
from cli.train import train
from minitransformer.data.store import TokenStore
from minitransformer.system.provenance import blas_libraries

pytestmark = needs_mpi
needs_compiler = pytest.mark.skipif(not library().functions, reason="no C compiler")


def run_two(first: list[str], second: list[str]) -> subprocess.CompletedProcess[str]:
    """Run two ranks, each with a command line of its own; fail if they do not end."""
    assert MPIRUN is not None
    return run([MPIRUN, "-n", "1", *first, ":", "-n", "1", *second])


def train_after(code: str) -> list[str]:
    """Return the command in a process that runs other code first."""
    return [sys.executable, "-c", f"{code}\nfrom cli.train import main; raise SystemExit(main())"]


TRAIN = train_after("")
NO_COMPILER = ["env", "CC=no-such-compiler"]


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    write_parallel_text(tmp_path, "train", 60, seed=1)
    write_parallel_text(tmp_path, "valid", 5, seed=2)
    return ["--run", str(tmp_path / "run"), "--data.raw", str(tmp_path), *SMALL_MODEL.split()]


@pytest.mark.parametrize(
    ("others", "messages"),
    [
        (["--config", "/missing.toml"], ["rank 1 of 2", "error: /missing.toml: not found"]),
        (["--model.d-ff", "128"], ["at the start ranks disagree: model.d_ff is 128 on rank 1"]),
    ],
)
def test_a_rank_with_other_options_ends_all_before_data_is_prepared(
    others: list[str], messages: list[str], options: list[str], tmp_path: Path
) -> None:
    done = run_two([*TRAIN, *options], [*TRAIN, *changed(options, *others)])
    assert done.returncode != 0
    assert [message for message in messages if message not in done.stderr] == []
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "data").exists()


def test_a_rank_that_ends_before_it_starts_mpi_ends_the_other_after_a_set_time() -> None:
    waits = "from parallel.launch import communicator; communicator(patience=1)"
    done = run_two([sys.executable, "-c", waits], [sys.executable, "-c", "raise SystemExit(1)"])
    assert done.returncode != 0
    assert "Timeout (0:00:01)!" in done.stderr
    assert "parallel/launch.py" in done.stderr


@pytest.mark.slow
@needs_compiler
def test_a_rank_without_a_compiler_is_refused_unless_all_use_no_kernels(options: list[str], tmp_path: Path) -> None:
    done = run_two([*TRAIN, *options], [*NO_COMPILER, *TRAIN, *options])
    assert done.returncode != 0
    assert "warning: rank 1: no C compiler was found" in done.stderr
    assert "at the start ranks disagree: kernel library is none on rank 1" in done.stderr
    assert "no C compiler was found (cc, or what the environment variable CC names): install GCC" in done.stderr
    assert 'or set kernels = "reference"' in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "data").exists(), "kernels are compared before data is prepared"

    options = changed(options, "--kernels", "reference", "--training.max-updates", "2")
    done = run_two([*TRAIN, *options], [*NO_COMPILER, *TRAIN, *options])
    assert done.returncode == 0, done.stderr
    assert "no C compiler" not in done.stderr


@pytest.mark.skipif(
    "openblas" not in str(blas_libraries()) or platform.machine() != "x86_64",
    reason="these types of processor are those of OpenBLAS for x86",
)
def test_another_type_of_processor_is_a_warning_on_rank_0(options: list[str]) -> None:
    options = changed(options, "--training.max-updates", "2")
    done = run_two(*(["env", f"OPENBLAS_CORETYPE={name}", *TRAIN, *options] for name in ("Haswell", "Nehalem")))
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: BLAS differs: ")]
    assert len(warnings) == 1
    assert re.search(r"openblas \S+ for Haswell on rank 0; openblas \S+ for Nehalem on rank 1: ", warnings[0])


def test_a_rank_with_other_token_ids_of_the_same_lengths_is_reported(options: list[str], tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("data", "other-data")]
    pairs_of_words = zip(options[::2], options[1::2], strict=True)
    data_options = [word for pair in pairs_of_words if pair[0].startswith("--data.") for word in pair]
    for directory in directories:
        assert prepare_data([*data_options, "--data.directory", str(directory)]) == 0
        for text in tmp_path.glob("train.*"):
            lines = [" ".join(reversed(line.split())) for line in text.read_text(encoding="utf-8").splitlines()]
            text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    stores = [TokenStore(directory, "train").read() for directory in directories]
    assert (stores[0].lengths == stores[1].lengths).all()
    each_on_its_own_machine = """
from minitransformer.training import run_data

run_data.call_on_rank_0 = lambda function, ranks: function()
"""
    command = [*train_after(each_on_its_own_machine), *options, "--data.directory"]
    done = run_two(*([*command, str(path)] for path in directories))
    assert done.returncode != 0
    assert "at the start ranks disagree: prepared data is " in done.stderr


def test_a_rank_that_begins_with_other_parameters_is_reported(options: list[str]) -> None:
    """Its memory cannot be shared: in shared memory there is one array of parameters."""
    deviant = """
import os
from minitransformer import Transformer
from minitransformer.training import new_trainer

def refuse(*_):
    raise OSError("no room")

def build_another(*arguments, **keywords):
    model = Transformer(*arguments, **keywords)
    model.parameters.values[0] += 1
    return model

os.posix_fallocate, new_trainer.class_of = refuse, lambda config: build_another
"""
    done = run_two([*TRAIN, *options], [*train_after(deviant), *options])
    assert done.returncode != 0
    assert "at the start ranks disagree: parameters is " in done.stderr


MODEL = f"""--data.train-source train.en --data.train-target train.de --data.held-out 1 --data.vocabulary-size 30
    {SMALLEST} --training.max-updates 3 --training.validate-every 3 --training.checkpoint-every 3"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_ranks", "batches"),
    [
        (4, "--training.n-micro-batches 8"),  # more than the five pairs
        (2, "--training.n-micro-batches 2 --training.batch-tokens 12"),
    ],
)
def test_ranks_without_pairs_train_as_one_process_does(n_ranks: int, batches: str, tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "train", 6, seed=1)  # of which one pair is held out
    options = ["--data.raw", str(tmp_path), *MODEL.split(), *batches.split()]
    output_of(lambda: train(["--run", str(tmp_path / "one"), *options]))
    assert MPIRUN is not None
    done = run([MPIRUN, "-n", str(n_ranks), *TRAIN, "--run", str(tmp_path / "several"), *options])
    assert done.returncode == 0, done.stderr
    one, several = (
        {name: content for name, content in contents(tmp_path / run / "checkpoints").items() if "safetensors" in name}
        for run in ("one", "several")
    )
    assert several == one != {}
