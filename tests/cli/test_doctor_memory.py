"""minitransformer-doctor predicts the memory of a run, says what would fit, and tries it if asked."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from mpirun import MPIRUN, SIZE_VARIABLES, needs_mpi, run
from small_run import Trained, plain

from cli.doctor import doctor
from cli.train import read_options
from minitransformer.config.automatic import resolved
from minitransformer.data.prepare import PreparedData
from minitransformer.model.transformer import Transformer
from minitransformer.training.doctor import memory
from minitransformer.training.doctor.finding import Finding
from minitransformer.training.footprint import format_bytes, predict
from minitransformer.training.largest_batch import OutOfMemoryError
from parallel.communicator import SerialCommunicator
from parallel.placement import Placement

SIZE = r"([\d.,]+) ([MG]B)"


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process without CuPy, whoever runs the tests where."""
    for name in SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "cupy", None)


def found_of(trained: Trained, *options: str, n_processes: int = 1, try_largest: bool = False) -> list[Finding]:
    placements = [Placement(frozenset({0, 1}), host="a")] * n_processes
    config = resolved(read_options([*trained.arguments, *options]), 1, "")
    return memory.memory(config, SerialCommunicator(), placements, try_largest=try_largest)


def megabytes(text: str) -> float:
    return {"MB": 1.0, "GB": 1e3}[text.split()[1]] * float(text.split(maxsplit=1)[0].replace(",", ""))


def test_the_prediction_is_that_of_training(trained: Trained) -> None:
    config = resolved(read_options(trained.arguments), 1, "")
    lengths = PreparedData.open(config.data_directory).store("train").lengths
    footprint, _ = predict(Transformer.load(trained.run), config.training, lengths, n_threads=2)
    (finding,) = found_of(trained)
    assert finding.found.startswith(f"about {footprint}; ")
    assert finding.found.endswith(" free")
    assert not finding.remedy


def test_what_does_not_fit_is_wrong_and_the_remedies_fit(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    large = "--training.batch-tokens", "2000"
    needed = megabytes(re.search(f"about ({SIZE})", found_of(trained, *large)[0].found)[1])  # type: ignore[index]
    monkeypatch.setattr(memory, "free_memory", lambda n_processes: needed * 1e6 / n_processes)
    (finding,) = found_of(trained, *large)
    assert finding.found.endswith(f"; {format_bytes(needed * 1e6)} free, of which 75% can be relied on: too little")
    ways = re.findall(r"training\.(\w+) = (\d+) \(", finding.remedy)
    assert [name for name, _ in ways] == ["n_micro_batches", "batch_tokens"]
    for name, value in ways:
        assert not found_of(trained, *large, f"--training.{name.replace('_', '-')}", value)[0].remedy
    monkeypatch.setattr(memory, "free_memory", lambda n_processes: 1_000.0)
    assert found_of(trained)[0].remedy == "choose a smaller model (model.n_layers, model.d_model …), or another machine"


def test_processes_of_a_machine_share_its_memory(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda n_processes: 9e9 / n_processes)
    assert found_of(trained, n_processes=3)[0].found.endswith("; 3.00 GB free for each of 3 processes")


def test_the_process_that_has_least_to_spare_is_logged(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    class Second(SerialCommunicator):
        rank, size = 1, 2

        def allgather(self, value: object) -> list[object]:
            return [(1e30, Finding("memory", "of rank 0")), value] if isinstance(value, tuple) else [value]

    placements = [Placement(frozenset({0}), host="a"), Placement(frozenset({0}), host="b")]
    config = resolved(read_options(trained.arguments), 1, "")
    (finding,) = memory.memory(config, Second(), placements, try_largest=False)
    assert finding.found.startswith("rank 1, which has the least left: about ")


def test_without_prepared_data_nothing_is_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(["--run", str(tmp_path)]) == 0
    assert "memory not known: its prediction needs prepared data" in plain(capsys.readouterr().out)
    assert doctor(["--run", str(tmp_path), "--try-largest-batch"]) == 1
    assert "→ prepare the data first, with the same settings" in plain(capsys.readouterr().out)


def test_corrupt_data_are_wrong(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[]")
    (finding,) = found_of(trained, "--data.directory", str(tmp_path))
    assert (finding.found, "repare the data again" in finding.remedy) == ("not known", True)


def test_memory_of_gpus_is_not_predicted(trained: Trained) -> None:
    (finding,) = found_of(trained, "--device", "cuda")
    assert finding.found == "of GPUs is not predicted; training tries its largest batch first"


def test_the_largest_batch_is_tried_only_if_asked(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(trained.run.rglob("*"))
    assert doctor(trained.arguments) == 0
    assert "largest batch" not in capsys.readouterr().out
    assert doctor([*trained.arguments, "--try-largest-batch"]) == 0
    assert "largest batch was computed: " in plain(capsys.readouterr().out)
    assert sorted(trained.run.rglob("*")) == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the peak")
def test_the_peak_is_at_least_what_the_batch_holds(trained: Trained) -> None:
    larger = "--model.d-model", "512", "--model.d-ff", "4096"  # most of it are moments and gradients
    _, finding = found_of(trained, *larger, try_largest=True)
    output = re.fullmatch(f"was computed: the process grew by ({SIZE}); predicted ({SIZE})", finding.found)
    assert output
    assert 0.75 < megabytes(output[1]) / megabytes(output[4]) < 1.33


def test_a_batch_that_does_not_fit_is_wrong(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(trainer: object) -> None:
        raise OutOfMemoryError("out of memory: what fits")

    monkeypatch.setattr(memory, "try_largest_batch", lacking)
    _, finding = found_of(trained, try_largest=True)
    assert finding == Finding("largest batch", "does not fit", "out of memory: what fits")


@needs_mpi
def test_under_mpirun_every_process_tries_its_own_part(trained: Trained) -> None:
    assert MPIRUN is not None
    code = "from cli.doctor import main; raise SystemExit(main())"
    done = run([MPIRUN, "-n", "2", sys.executable, "-c", code, *trained.arguments, "--try-largest-batch"])
    output = plain(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout))
    assert done.returncode == 0, output
    assert re.search(r"memory rank \d, which has the least left: about .* free for each of 2 processes", output)
    assert output.count("was computed: ") in (1, 2)  # once if both processes grew alike
