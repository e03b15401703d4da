"""minitransformer-doctor tells what is there, what is wrong and how to mend it, and what other systems do."""

import importlib.metadata
import io
import re
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import fake_cuda
import numpy as np
import pytest
from mpirun import MPIRUN, SIZE_VARIABLES, needs_mpi, run
from rich.console import Console
from small_run import Command, Trained, changed

from autograd.kernels.cpu.library import Library
from autograd.kernels.cuda.check import CheckError, CheckResults
from cli.doctor import shown, summary
from minitransformer.config import ModelConfig
from minitransformer.extras.doctor import machine, together
from minitransformer.extras.doctor.check import Replay, conclusion
from minitransformer.extras.doctor.finding import Finding, merged
from minitransformer.extras.doctor.machine import cores, shared_memory
from minitransformer.model.transformer import Transformer
from minitransformer.system import provenance
from minitransformer.system.threads import available_cores
from minitransformer.training.divergence import UpdateFacts, write_repro_bundle
from parallel.communicator import SerialCommunicator
from parallel.placement import Placement
from parallel.reducer import LocalReducer
from tests.support.training import corrupt


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "cupy", None)


def in_one_line(screen: str) -> str:
    """Without colours, which appear where mpirun gives its ranks a terminal."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", screen).split())


Examined = Callable[..., str]


@pytest.fixture
def examined(command: Command, tmp_path: Path) -> Examined:
    """Run the doctor, of a new run unless the words name another; return its output as one line."""

    def run_doctor(*words: object, status: int = 0) -> str:
        ended = command("doctor", *changed(["--run", str(tmp_path)], *map(str, words)))
        assert ended.status == status, ended
        return in_one_line(ended.output)

    return run_doctor


def test_alone_on_a_healthy_machine_nothing_is_wrong(examined: Examined) -> None:
    output = examined()
    assert output.endswith("nothing is wrong")
    assert f"ok NumPy {np.__version__} ok BLAS " in output
    assert f"ok processes 1, on {socket.gethostname()}" in output
    assert "ok GPU none: CuPy cannot be imported" in output
    assert re.search(r"ok precision (float32|bfloat16).* ok memory free: ", output)


def test_it_says_how_kernels_were_compiled_or_why_not(examined: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {"float32": "AVX-512", "bfloat16": None}
    library = Library({"f": print}, "/usr/bin/cc -O3", "4f2a", instruction_sets=sets)
    monkeypatch.setattr(machine, "library", lambda: library)
    expected = "ok kernels 4f2a, compiled by /usr/bin/cc -O3 ok products float32 AVX-512, bfloat16 none"
    assert expected in examined()
    monkeypatch.setattr(machine, "library", lambda: Library({}, obstacle="no C compiler was found: install GCC"))
    output = examined(status=1)
    assert "wrong kernels not compiled; NumPy computes instead" in output
    assert "ok products of NumPy" in output
    assert "→ no C compiler was found: install GCC" in output
    assert 'not used (kernels is "reference")' in examined("--kernels", "reference")


def test_gpus_are_reported_used_or_not(examined: Examined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda.stand_in_for_cupy()
    monkeypatch.setattr(fake_cuda, "N_GPUS", 2)
    monkeypatch.setattr(machine, "check_results", lambda: CheckResults({"linear in float32": None}, {}, tmp_path))
    assert "ok GPU number 0 of 2; CPU, CuPy stand-in" in examined("--device", "cuda")
    assert 'ok GPU 2, not used (device is not "cuda"); CPU' in examined()
    monkeypatch.setattr(fake_cuda, "N_GPUS", -1)
    assert "none: CuPy stand-in finds no usable driver" in examined()


def test_the_check_of_every_cuda_kernel_is_reported(
    examined: Examined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = examined("--device", "cuda", status=1)
    assert "ok CUDA kernels not checked: there is no GPU" in output
    assert "wrong GPU none: CuPy cannot be imported" in output
    assert '→ install it with pip install "cupy-cuda13x[ctk]"' in output
    fake_cuda.stand_in_for_cupy()
    right = CheckResults({"dropout in float32": None, "linear in float32": None}, {}, tmp_path / "file")
    monkeypatch.setattr(machine, "check_results", lambda: right)
    assert "ok CUDA kernels right: dropout, linear" in examined("--device", "cuda")
    with monkeypatch.context() as old:
        old.setattr(fake_cuda.Device, "compute_capability", "75")
        output = examined("--device", "cuda")
    lack = "the GPU has compute capability 7.5, and bfloat16 needs 8.0"
    assert f"dropout, linear in float32 and float16 only: {lack}" in output
    faults = dict.fromkeys(("attention in float32", "linear in float16"), "relative error 2")
    wrong = right._replace(faults={**right.faults, **faults})
    monkeypatch.setattr(machine, "check_results", lambda: wrong)
    output = examined("--device", "cuda", status=1)
    expected = "not used: attention in float32, linear in float16: relative error 2 → update the"
    assert f"wrong CUDA kernels right: dropout {expected}" in output
    assert "to check again, remove" in output
    monkeypatch.setattr(machine, "check_results", Mock(side_effect=CheckError("NVRTC is not installed")))
    output = examined("--device", "cuda", status=1)
    assert "wrong CUDA kernels not used; the references run instead" in output
    assert "→ NVRTC is not installed" in output


def test_what_several_processes_lack_and_an_unknown_blas_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version", Mock(side_effect=importlib.metadata.PackageNotFoundError))
    assert machine.mpi(SerialCommunicator()) == Finding("MPI", "none: several processes need pip install mpi4py mpich")
    monkeypatch.setattr(provenance, "threadpool_info", lambda: [{"user_api": "openmp"}])
    assert machine.blas().found.startswith("none that threadpoolctl recognises")


def test_processes_that_cannot_speak_are_reported_of_by_the_first_alone(
    examined: Examined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "parallel.mpi", raising=False)
    output = examined(status=1)
    assert "wrong launch 2 processes were started, but mpi4py cannot be used" in output
    assert "→ install it with pip install mpi4py mpich" in output
    monkeypatch.setenv("PMI_RANK", "1")
    assert examined(status=1) == examined("--replay", bundle(tmp_path / "bundle")) == ""


def test_more_processes_than_cores_are_wrong_on_the_cpu() -> None:
    crowded = [Placement(frozenset({0, 1}), host="a")] * 3 + [Placement(frozenset({0, 1}), host="b")]
    assert cores("cpu", 0, crowded).remedy == "3 processes on a share 2 cores: start at most 2 there"
    assert cores("cpu", 3, crowded).remedy is None
    assert cores("cuda", 0, crowded).remedy is None
    assert cores("cpu", 0, crowded[:2]).found.startswith("1 of the 2 that this process may use")


def test_mpi_is_not_started_where_shared_memory_is_too_small(
    examined: Examined, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = SimpleNamespace(f_bavail=31, f_frsize=1_000_000)
    monkeypatch.setattr(machine.os, "statvfs", lambda path: room)
    assert shared_memory(1).remedy == shared_memory(3).remedy is None
    assert shared_memory(4).remedy == (
        "give it 32 MB (docker run --shm-size); killed processes of MPICH leave files: rm /dev/shm/mpich_shm_* when no"
        " MPI program runs"
    )
    monkeypatch.setenv("PMI_SIZE", "8")
    monkeypatch.setenv("MPI_LOCALNRANKS", "4")
    monkeypatch.setitem(sys.modules, "mpi4py", None)  # it would be an error to look for it
    output = examined(status=1)
    assert "wrong shared memory /dev/shm has 31 MB free, too little for 4 processes" in output
    assert "launch" not in output
    monkeypatch.setenv("PMI_RANK", "4")
    for local_rank, machine_is_named in (("0", True), ("1", False)):
        monkeypatch.setenv("MPI_LOCALRANKID", local_rank)
        status, output, error = command("doctor", "--run", str(tmp_path))
        assert (status, output) == (1, "")
        assert (f"error: {socket.gethostname()}: /dev/shm has 31 MB free" in error) == machine_is_named
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path / "nothing")
    assert shared_memory(4) == Finding("shared memory", f"this system has no {tmp_path / 'nothing'}")


class Liar(SerialCommunicator):
    """Two ranks, of which the other one's sum has lost a bit."""

    size = 2

    def allgather(self, value: Any) -> list[Any]:
        return [value, "lost" if isinstance(value, str) else value]


class Doubling(LocalReducer):
    """Adds what the other of two ranks has: one more."""

    def allocate(self, n: int, dtype: Any) -> tuple[Any, Any]:
        values, self.gradients = super().allocate(n, dtype)
        return values, self.gradients

    def reduce_scatter(self) -> None:
        self.gradients += self.gradients + 1


def test_a_sum_that_is_wrong_on_a_rank_is_found() -> None:
    found = together.sum_over_ranks(Liar(), Doubling(), 2)
    assert "checksum wrong on rank 1" in found.found
    assert found.remedy
    honest = together.sum_over_ranks(SerialCommunicator(), LocalReducer(), 1)
    assert honest.remedy is None
    assert "as expected" in honest.found


def test_findings_that_differ_are_reported_by_rank() -> None:
    alike, free, bound = Finding("a", "1"), Finding("b", "2"), Finding("c", "3", if_ranks_differ="the same")
    assert merged([[alike, free, bound]] * 3) == [alike, free, bound]
    others = [Finding("a", "1"), Finding("b", "4", "mend it"), Finding("c", "5", if_ranks_differ="the same")]
    assert merged([[alike, free, bound], [alike, free, bound], others]) == [
        alike,
        Finding("b", "ranks 0, 1: 2\nrank 2: 4", "mend it"),
        Finding("c", "ranks 0, 1: 3\nrank 2: 5", "the same", "the same"),
    ]


@pytest.mark.parametrize("width", [30, 80])
def test_in_a_narrow_terminal_nothing_is_cut_off(width: int) -> None:
    long = "one two three four five six seven eight nine ten [bold]eleven"
    findings = [Finding("what", long, "do " + long), Finding("[red]", long)]
    screen = io.StringIO()
    Console(file=screen, width=width).print(shown(findings), summary(findings))
    assert max(map(len, screen.getvalue().splitlines())) <= width
    assert screen.getvalue().count("[bold]eleven") == 3
    assert "[red]" in screen.getvalue()


def test_a_flipped_bit_in_prepared_data_is_found(examined: Examined, trained: Trained, tmp_path: Path) -> None:
    def without_folds(output: str) -> str:
        return output.replace(" ", "")

    assert f"okdatanonepreparedin{tmp_path}/data" in without_folds(examined())
    shutil.copytree(trained.run / "data", tmp_path / "data")
    assert f"okdata200pairsin{tmp_path}/data,allbytesastheywerewritten" in without_folds(examined())
    corrupt(tmp_path / "data/train-00000.source.npy")
    output = without_folds(examined(status=1))
    assert f"wrongdata{tmp_path}/data/train-00000.source.npy:haschangedsinceitwaswritten" in output
    assert f"→ifitstextisstillthere,remove{tmp_path}/data:" in output


@needs_mpi
def test_under_mpirun_the_first_speaks_for_all_and_each_tries_its_own_part(trained: Trained) -> None:
    assert MPIRUN is not None
    code = "from cli.doctor import main; raise SystemExit(main())"
    done = run([MPIRUN, "-n", "2", sys.executable, "-c", code, *trained.arguments])
    output = in_one_line(done.stdout)
    assert done.stdout.count("NumPy") == 1
    if available_cores() > 1:  # else both processes share the only core, which is wrong
        assert (done.returncode, output.endswith("nothing is wrong")) == (0, True), output
    assert f"ok processes 2 processes {socket.gethostname()}: ranks 0, 1" in output
    assert "travel through shared memory; added in one fixed order" in output
    assert re.search(r"ok sum 17 MB in [\d.]+ ms, [\d.]+ GB/s; checksum \w{8}, as expected", output)


SMALL = ModelConfig(vocabulary_size=12, n_layers=1, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)
PAIRS = [(np.array([3, 4, 5]), np.array([6])), (np.array([8]), np.array([7, 9]))]


def bundle(folder: Path, value: float | None = None) -> str:
    model = Transformer(SMALL)
    if value is not None:
        model.parameters.named["decoder.layers.0.feed_forward.hidden.weight"].value[0] = value
    facts = UpdateFacts(17, 1, 0, 4, [5, 0], seed=3, n_micro_batches=2, learning_rate=1e-3, what="the loss is nan")
    write_repro_bundle(folder, model, PAIRS, facts, model.parameters.gradients)
    return str(folder)


@pytest.mark.parametrize(
    ("value", "single", "double", "output"),
    [
        (np.nan, "first not finite: ", "first not finite: ", "float64 does not help: look at the operation"),
        (3e38, "first not finite: ", "all numbers are finite", "lower the learning rate, or clip (training.clip_"),
        (None, "all numbers are finite", "all numbers are finite", "check the machine that trained"),
    ],
)
def test_both_precisions_lead_to_a_conclusion(
    value: float | None, single: str, double: str, output: str, command: Command, tmp_path: Path
) -> None:
    of_single, of_double, conclusion = command("doctor", "--replay", bundle(tmp_path, value)).output.splitlines()
    assert of_single.startswith(f"float32: {single}")
    assert of_double.startswith(f"float64: {double}")
    assert conclusion.startswith("conclusion: ")
    assert output in conclusion


def test_a_sum_that_overflows_is_not_finite() -> None:
    single, double = Replay("float32", 2.0, np.inf, None, None), Replay("float64", 2.0, 3.0, None, None)
    assert conclusion(single, double).startswith("float32 overflows")
