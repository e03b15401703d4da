"""minitransformer-train --verify-resume: it proves what it says, and finds a resume that is not exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_run import SMALL_MODEL, contents, output_of, plain, write_parallel_text

from cli.train import train
from minitransformer.config import ConfigError
from minitransformer.extras.doctor.check import ResumeCheckError
from minitransformer.system.files import read_json
from minitransformer.training import checkpoint as checkpoint_module
from minitransformer.training.memory import OutOfMemoryError
from minitransformer.training.state import TrainingState


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    write_parallel_text(tmp_path, "train", 200, seed=1)
    write_parallel_text(tmp_path, "valid", 5, seed=2)
    return ["--run", str(tmp_path / "run"), "--data.raw", str(tmp_path), *SMALL_MODEL.split()]


def test_it_says_what_was_compared_and_leaves_nothing(arguments: list[str], tmp_path: Path) -> None:
    before = contents(tmp_path)
    output = plain(output_of(lambda: train([*arguments, "--verify-resume", "7"])))
    assert "7 updates in one go" in output
    assert "the same command again: 4 updates from the checkpoint after update 3" in output
    assert "the same, bit for bit: 22,272 parameters, 44,544 moments of Adam" in output
    assert "5 logged losses" in output
    assert contents(tmp_path) == before


def test_a_run_that_segments_its_text_anew_resumes_with_the_same_segmentations(arguments: list[str]) -> None:
    anew = ["--training.bpe-dropout", "0.3", "--training.schedule", "linear"]
    output = plain(output_of(lambda: train([*arguments, *anew, "--verify-resume", "20"])))  # several epochs
    assert "the same, bit for bit: 22,272 parameters" in output


@pytest.mark.parametrize(
    ("forgotten", "message"),
    [({"next_batch": 0}, r"\d+ of \d+ arrays of model.safetensors, such as"),
     ({"unlogged_loss": 0.0}, "metrics.jsonl: .*'loss'")],
)  # fmt: skip
def test_a_resume_that_forgets_something_is_found(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, forgotten: dict[str, Any], message: str
) -> None:
    def forgetful(path: Path) -> TrainingState:
        fields = read_json(path) | forgotten
        return TrainingState(**fields)

    monkeypatch.setattr(checkpoint_module, "read_state", forgetful)
    with pytest.raises(ResumeCheckError, match=f"differs from the one in one go in {message}"):
        train([*arguments, "--verify-resume", "6"])


def test_a_lack_of_memory_says_what_would_fit(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("minitransformer.training.update.TrainingStep.__call__", lacking)
    with pytest.raises(OutOfMemoryError, match=r"out of memory \(update 1\)"):
        train([*arguments, "--verify-resume", "4"])


@pytest.mark.parametrize("number", ["1", "0", "-3"])
def test_a_number_that_proves_nothing_is_refused(arguments: list[str], number: str) -> None:
    with pytest.raises(ConfigError, match=f"needs at least 2 updates; got {number}"):
        train([*arguments, "--verify-resume", number])
