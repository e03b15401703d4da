"""The benchmark for GPUs, and dry runs of it and of the tests of the GPU; needs no GPU."""

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cuda_on_cpu
import pytest
from mpirun import needs_mpi
from waiting import wait_until

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import gpu_card
import gpu_ours
import gpu_peers
import gpu_ranks
from gpu_card import Card
from gpu_results import Results
from workload import Workload

from autograd import precision
from minitransformer import ModelConfig

ROOT = Path(__file__).resolve().parents[2]
STAGES = ["preflight", "numerics", "sameness", "host", "ours", "classes", "contests", "decoding", "ranks", "multi30k"]
PRESENT = (  # on a machine for experiments, with CuPy and PyTorch
    "numpy", "mpi4py", "sentencepiece", "sacrebleu", "safetensors", "rich", "threadpoolctl", "requests", "pytest",
    "hypothesis", "platformdirs", "psutil",
)  # fmt: skip
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
needs_compiler = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "gpu.json"


def run(*command: Path | str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=others | environment, capture_output=True, text=True, check=False)


def benchmark(
    results: Path, *stages: str, seconds: float = 3_000, python: Path | str = sys.executable
) -> list[Path | str]:
    arguments = "--device", "cpu", "--seconds", str(seconds), "--out", results
    return [python, ROOT / "benchmarks" / "gpu.py", *stages, *arguments]


def items_of(results: Path) -> list[tuple[str, ...]]:
    """Return the names of the rows with a result, in order."""
    return [
        (row["stage"], row["what"], *(str(row.get(name)) for name in ("batch tokens", "peer", "order", "sums")))
        for row in json.loads(results.read_text(encoding="utf-8"))["rows"]
        if "what" in row and "begun" not in row
    ]


# Dry runs on the stand-ins.


@pytest.mark.slow
@needs_compiler
@needs_mpi
@needs_torch
def test_every_stage_of_the_benchmark_ends_well_in_order_and_none_is_run_twice(results: Path) -> None:
    done = run(*benchmark(results))
    content = json.loads(results.read_text(encoding="utf-8"))
    assert content["failed"] == {}
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(content["stages"]) == STAGES
    assert {stage for stage, ended in content["stages"].items() if ended == "well"} == {*STAGES} - {"multi30k"}
    assert content["stages"]["multi30k"].startswith("skipped")
    contests = [row["contestants"] for row in content["rows"] if "contestants" in row]
    assert [len(contestants) for contestants in contests] == [1] * 4 + [2] * 6  # ours alone, then pairs
    assert min(one["tokens/s"] for contestants in contests for one in contestants) > 0
    decoded = [(row["peer"], row["same translations"]) for row in content["rows"] if "same translations" in row]
    assert decoded[:2] == [("PyTorch, eager", 1), ("PyTorch, eager", 3)]
    has_ctranslate2 = importlib.util.find_spec("ctranslate2") is not None
    assert [peer for peer, _ in decoded[2:]] == 2 * has_ctranslate2 * ["CTranslate2, float32"]
    (same,) = [
        row for row in content["rows"] if row["what" if "what" in row else "stage"].startswith("the same bits as")
    ]
    assert same["transport"].startswith("gradients travel through NCCL, because every rank has a GPU of its own")
    assert (same["processes"], same["why no graph"]) == (2, None)
    updates = [(row["order"], row["sums"]) for row in content["rows"] if row.get("what") == "update"]
    assert updates == 2 * [*product(("exact", "fast"), ("during the backward pass", "at the end"))]
    items = items_of(results)
    again = run(*benchmark(results))
    assert again.returncode == 0, again.stdout
    assert items_of(results) == items


@pytest.mark.slow
@needs_compiler
def test_a_stage_without_time_is_recorded_and_the_next_one_too_unless_the_preflight_fails(results: Path) -> None:
    assert run(*benchmark(results, "sameness", "numerics", seconds=0.1)).returncode == 1
    stages = json.loads(results.read_text(encoding="utf-8"))["stages"]
    assert list(stages) == ["sameness", "numerics"]
    assert all("its time was over" in ended for ended in stages.values())
    results.unlink()
    done = run(*benchmark(results, "preflight", "numerics", seconds=0.1))
    assert done.returncode == 1
    assert "must work before anything else is measured" in done.stdout
    assert list(json.loads(results.read_text(encoding="utf-8"))["stages"]) == ["preflight"]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("killed", ["runner", "stage"])
def test_what_is_killed_goes_on_with_what_has_no_result(results: Path, killed: str) -> None:
    process = subprocess.Popen(benchmark(results, "ours"))
    wait_until(lambda: results.exists() and len(items_of(results)) >= 1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8")
    stage = int(children.split()[0])
    os.kill(process.pid if killed == "runner" else stage, signal.SIGKILL)
    if killed == "runner":
        process.wait()
        wait_until(lambda: not Path(f"/proc/{stage}").exists())
    first = items_of(results)
    if killed == "runner":
        assert run(*benchmark(results, "ours")).returncode == 0
    else:
        assert process.wait() == 0
    items = items_of(results)
    assert items[: len(first)] == first
    assert len(items) == len(set(items)) > len(first)
    assert json.loads(results.read_text(encoding="utf-8"))["stages"] == {"ours": "well"}


@pytest.mark.slow
@needs_compiler
def test_the_tests_that_need_a_gpu_pass_on_its_stand_in() -> None:
    """But for products of the base model's size, which are work for a GPU."""
    options = (
        "-q -p no:cacheprovider -p gpu_stand_in -m gpu --deselect tests/gpu/test_gpu.py::test_products_of_the_model"
    )
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = run(sys.executable, "-m", "pytest", *options.split(), "tests/gpu", "tests/autograd/cuda", PYTHONPATH=paths)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


# Dry runs in a checkout that is not installed, on a machine that lacks packages.


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new environment with these packages and what they require, and nothing else."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    for name in required(PRESENT):
        found = distribution(name)
        for entry in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / entry).exists():
                (site / entry).symlink_to(Path(str(found.locate_file(entry))))
    return directory / "bin" / "python"


def required(names: tuple[str, ...]) -> set[str]:
    """Return the installed distributions of these names, and those that they require."""
    found, left = set[str](), [*names]
    while left:
        name = left.pop()
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:  # of another system or version of Python
            continue
        if name not in found:
            found.add(name)
            left += [re.split(r"[^\w.-]", line)[0] for line in requirements if "extra" not in line]
    return found


def test_the_benchmark_starts_from_any_directory(python: Path, tmp_path: Path) -> None:
    done = run(python, ROOT / "benchmarks" / "gpu.py", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "all if none is named" in " ".join(done.stdout.split())


def test_a_stage_names_the_package_that_it_lacks(python: Path, results: Path) -> None:
    done = run(*benchmark(results, "contests", python=python), cwd=results.parent)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    failed = json.loads(results.read_text(encoding="utf-8"))["failed"]
    assert failed == {"contests, all of it": "torch is not installed: pip install torch"}


@pytest.mark.slow
def test_the_preflight_stops_without_bfloat16_and_names_its_package(python: Path, results: Path) -> None:
    done = run(*benchmark(results, "preflight", "numerics", python=python), cwd=results.parent)
    assert done.returncode == 1
    content = json.loads(results.read_text(encoding="utf-8"))
    assert list(content["stages"]) == ["preflight"]
    assert all("pip install ml_dtypes" in error for error in content["failed"].values())


def test_all_stages_can_be_imported(python: Path) -> None:
    names = "gpu, gpu_ours, gpu_peers, gpu_ranks, minitransformer.training.run"
    done = run(python, "-c", f"import {names}", cwd=ROOT / "benchmarks")
    assert done.returncode == 0, done.stderr


def test_the_tests_that_need_a_gpu_are_collected(python: Path) -> None:
    done = run(python, "-m", "pytest", "-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "tests/gpu/test_gpu.py::test_ten_updates_equal_numpy[kernels]" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]


# The file of results, and contests.

MACHINE = {"device": "cuda", "card": "NVIDIA H200", "driver": "1", "commit": "a", "code": "b"}


@pytest.fixture(autouse=True)
def works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the card work again after an error."""
    monkeypatch.setattr(gpu_card, "synchronize", lambda: None)


def results_in(folder: Path, **machine: str) -> Results:
    return Results(folder / "gpu.json", MACHINE | machine)


def card_of(results: Results) -> Card:
    return Card("cpu", results, "numerics")


def fail() -> dict[str, Any]:
    raise ValueError("wrong")


def test_an_item_with_a_result_is_not_run_again(tmp_path: Path) -> None:
    card = card_of(results_in(tmp_path))
    assert card.attempt("adam", lambda: {"most_off": 1.0}, dtype="float32")
    assert card.attempt("adam", fail, dtype="float32")
    assert not card.attempt("adam", fail, dtype="bfloat16")


@pytest.mark.parametrize("other", [{"card": "NVIDIA H100"}, {"code": "c"}])
def test_other_code_and_another_card_have_results_of_their_own(tmp_path: Path, other: dict[str, str]) -> None:
    card_of(results_in(tmp_path)).attempt("adam", lambda: {"most_off": 1.0})
    card = card_of(results_in(tmp_path, **other))
    assert not card.attempt("adam", fail)
    content = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert content["failed"] == {"numerics, adam": "ValueError: wrong"}
    assert len(content["rows"]) == 2


def test_what_failed_is_run_again_only_when_it_is_forgotten(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    assert not card_of(results).attempt("adam", fail)
    assert not card_of(results).attempt("adam", lambda: {"most_off": 1.0})
    results.forget_failures()
    assert card_of(results).attempt("adam", lambda: {"most_off": 1.0})


def test_an_item_that_ends_its_process_twice_is_an_error_the_third_time(tmp_path: Path) -> None:
    def crash() -> dict[str, Any]:
        raise SystemExit

    card = card_of(results_in(tmp_path))
    for _ in range(2):
        with pytest.raises(SystemExit):
            card.attempt("adam", crash)
    assert not card.attempt("adam", crash)
    assert card.attempt("clip", lambda: {"most_off": 1.0})


def test_a_process_whose_card_does_not_work_any_more_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_card, "synchronize", fail)
    with pytest.raises(SystemExit) as ended:
        card_of(results_in(tmp_path)).attempt("adam", fail)
    assert ended.value.code == gpu_card.LOST
    assert "error" in results_in(tmp_path).rows()[0]


def test_an_item_stopped_with_its_call_may_begin_again_any_number_of_times(tmp_path: Path) -> None:
    results, item = results_in(tmp_path), {"stage": "numerics", "what": "adam"}
    for _ in range(3):
        assert results.begin(item)
        results.forget_begun()


def test_an_item_for_which_too_little_time_is_left_has_no_result(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    card = Card("cpu", results, "timing", ends=0.0)
    assert not card.attempt("contest", lambda: {}, seconds=1)
    assert card.n_left == 1
    assert results.rows() == []


def test_the_file_is_json_also_with_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    results = results_in(tmp_path)
    results.add(stage="numerics", most_off=float("nan"))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    content = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert content["rows"][0]["most_off"] == "NaN"


def test_words_are_as_frequent_as_one_divided_by_their_rank() -> None:
    """The sum of 1/1, 1/2 … 1/1,000 is 7.4855, so the first word has 13.36 % and the second word half of that."""
    pairs = Workload(ModelConfig(1_003, n_layers=1), 50_000, 1, zipf=True).pairs()
    words = [word for source, target in pairs for word in (*source, *target)]
    assert min(words) == 3
    assert max(words) <= 1_002
    assert words.count(3) / len(words) == pytest.approx(0.1336, abs=0.005)
    assert words.count(4) / len(words) == pytest.approx(0.0668, abs=0.005)


def test_the_preflight_comes_first_in_a_minute_all_stages_in_half_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")  # the script changes it
    stages = importlib.import_module("gpu").STAGES
    names, seconds = [*stages], [stage.seconds for name, stage in stages.items() if name != "ranks"]  # of one GPU
    assert names == STAGES
    assert seconds[0] <= 60
    assert sum(seconds) <= 30 * 60


def test_an_old_gpu_ends_the_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(Device=lambda: SimpleNamespace(compute_capability="75"))
    monkeypatch.setattr(precision, "namespace_of_device", lambda device: SimpleNamespace(cuda=cuda))
    with pytest.raises(RuntimeError, match=r"compute capability 7\.5, and bfloat16 needs 8\.0"):
        gpu_ours.compile_sources()


def test_with_one_gpu_no_ranks_are_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_ranks, "count_gpus", lambda device: 1)
    monkeypatch.setattr(gpu_ranks, "launched", pytest.fail)
    results = results_in(tmp_path)
    assert gpu_ranks.ranks(Card("cuda", results, "ranks"))
    assert [row["left_out"] for row in results.rows()] == ["there is one GPU"]


def test_other_bits_than_those_of_one_process_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def launched(card: Card, n: int, what: str, facts: dict[str, Any]) -> dict[str, Any]:
        return {"parameters": "a" if n == 1 else "b", "transport": "NCCL"}

    monkeypatch.setattr(gpu_ranks, "launched", launched)
    with pytest.raises(AssertionError, match="the parameters differ; .*NCCL"):
        gpu_ranks.same_bits(card_of(results_in(tmp_path)), 8)


def test_on_a_gpu_no_stage_registers_kernels_that_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_card, "register_all", pytest.fail)
    Card("cuda").open()


def test_contestants_are_two_and_ours_is_ready_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = list[tuple[str, str]]()

    class Contestant:
        tokens, peak_mb, median = 1, 1.0, 1.0

        def __init__(self, name: str, command: list[str]) -> None:
            self.name, self.seconds = name, [1.0]

        def __getattr__(self, what: str) -> Any:
            return lambda: events.append((what, self.name))

    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setattr(gpu_peers, "Contestant", Contestant)
    assert gpu_peers.contests(card_of(results_in(tmp_path)))
    first = ["begin", "wait_until_ready"]
    ours, peer = ([(what, name) for what in first] for name in ("ours", "PyTorch, compiled"))
    assert events[: 2 * len(first)] == ours + peer
    names = [name for what, name in events if what == "begin"]
    assert names[::2] == ["ours"] * len(names[1::2])
    assert "ours" not in names[1::2]
    assert sum(what == "stop" for what, _ in events) == len(names)
