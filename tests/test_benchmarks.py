"""Every command of ``benchmarks/`` runs at its smallest size; comparisons with PyTorch are in ``tests/oracles``."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
from benchmark_runs import ROOT, benchmark
from number_words import sentences
from small_run import write_parallel_text

from minitransformer import ModelConfig, Transformer
from minitransformer.data.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

ELSEWHERE = {"gpu.py": "gpu/test_gpu_benchmark.py", "translation.py": "oracles/test_benchmark_peers.py"}
needs_mpi = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a small random model and its tokenizer."""
    directory = tmp_path_factory.mktemp("model")
    lines = sentences(200, seed=1)
    tokenizer = Tokenizer.train([(line, line) for line in lines], vocabulary_size=40)
    tokenizer.save(directory)
    Transformer(ModelConfig(40, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8), seed=1).save(directory)
    return directory


def test_every_command_has_a_test() -> None:
    commands = set(re.findall(r"^\| `(\w+\.py)", (ROOT / "benchmarks" / "README.md").read_text("utf-8"), re.MULTILINE))
    tested = set(re.findall(r'benchmark\(\s*"(\w+\.py)"', Path(__file__).read_text("utf-8")))
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / "tests" / test).read_text("utf-8")
    assert tested | ELSEWHERE.keys() == commands


def test_training() -> None:
    shown = benchmark("training.py", "tiny", "--rounds", 1, change="training.PEERS.clear()")
    assert [
        row for row in ("| ours |", "| ours, bfloat16 |", "| the matrix products alone |") if row not in shown
    ] == []


def test_weights(model: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("\n".join(sentences(5, seed=1)), "utf-8")
    shown = benchmark("weights.py", model, lines, lines)
    rows = re.findall(r"^(\w+): (\d) of 5 changed, BLEU = ", shown, re.MULTILINE)
    assert [name for name, _ in rows] == ["float32", "TF32", "float16", "bfloat16"]
    assert rows[0][1] == "0"
    shown = benchmark("weights.py", model, lines, lines, change="weights.as_tf32 = lambda x: print(x.shape) or x")
    assert {"(16, 40)", "(16, 16)"} <= set(shown.splitlines()), "factors of the projection and of layers"


def test_costs_of_python() -> None:
    assert shown_ratio(benchmark("costs.py", "python", "--rounds", 1), r"ms, of which ([\d.]+) ms") > 0


def shown_ratio(shown: str, pattern: str) -> float:
    found = re.search(pattern, shown)
    assert found, shown
    return float(found[1])


@pytest.mark.parametrize("source", ["demonstration", "files"])
def test_costs_of_input(source: str, tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "train", 300, seed=1)
    files = [tmp_path / "train.en", tmp_path / "train.de"] if source == "files" else []
    noise = ["--noise", "typos=0.5", "blanks=0.5"]
    shown = benchmark("costs.py", "input", *files, "--rounds", 1, *noise, change="costs.VOCABULARY = 40")
    assert shown_ratio(shown, r"prepare: (\d+)") > 0
    assert shown_ratio(shown, r"ms, ([\d.]+) % of an update") > 0
    assert shown_ratio(shown, r"noise in a batch of 2,560 tokens: ([\d.]+) ms") > 0


@needs_mpi
def test_costs_of_the_exchange() -> None:
    assert "| tiny |" in benchmark("costs.py", "exchange", "tiny", "--rounds", 1)


def test_costs_of_a_checkpoint() -> None:
    assert shown_ratio(benchmark("costs.py", "checkpoint", "tiny", "--rounds", 1), r"stall: (\d+)") >= 0


def test_serving(model: Path) -> None:
    shown = benchmark(
        "serving.py", "--run", model, "--requests", 4, "--at-once", 2, "--idle", 2, "--flood", "documents"
    )
    assert shown.count("0 lost, 0 different of 4") == 4
    assert shown.count("beside documents") == 2


def test_costs_of_texts(model: Path, tmp_path: Path) -> None:
    run = shutil.copytree(model, tmp_path / "run")
    rows = [{"source": f"{line}."} for line in sentences(5, seed=2)]
    (run / "translations.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    shown = benchmark("costs.py", "texts", run, change="costs.N_LINES = 20")
    assert shown_ratio(shown, r"one sentence: ([\d.]+) times the model alone") > 0
    assert shown_ratio(shown, r"20 lines: ([\d.]+) times the model alone") > 0


def test_house(model: Path) -> None:
    shown = benchmark("house.py", "--run", model)
    assert shown_ratio(shown, r"files that a sentence passes: (\d+)") > 20
