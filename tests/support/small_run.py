"""A very small model's training run, and the commands' words, files and messages."""

import contextlib
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from number_words import sentences, translation

from cli.command import log_shown, say
from cli.translate import translate

SMALL_MODEL = """--data.train-source train.en --data.train-target train.de --data.vocabulary-size 40
    --data.validation-source valid.en --data.validation-target valid.de
    --model.n-layers 1 --model.d-model 32 --model.d-ff 64 --model.n-heads 2 --model.d-k 16 --model.d-v 16
    --model.alpha 0.6 --training.max-updates 60 --training.batch-tokens 300 --training.n-micro-batches 2
    --training.warmup-steps 30 --training.log-every 10 --training.validate-every 30 --training.checkpoint-every 20
    --training.keep-checkpoints 3 --training.average-checkpoints 2"""

SMALLEST = """--model.n-layers 1 --model.d-model 16 --model.d-ff 16 --model.n-heads 2 --model.d-k 8 --model.d-v 8
    --model.alpha 0.6"""


@dataclass(frozen=True)
class Trained:
    """A finished run, the words that made it, and what it said."""

    run: Path
    arguments: list[str]
    log: str


class Ended(NamedTuple):
    """The status and the output of a command that has ended."""

    status: object
    output: str
    error: str

    @property
    def refusal(self) -> str:
        """The one line of an error."""
        assert self.status != 0
        assert re.fullmatch(r"error: [^\n]+\n", self.error), self.error
        return self.error


Command = Callable[..., Ended]


def write_parallel_text(folder: Path, name: str, n: int, seed: int) -> None:
    lines = sentences(n, seed)
    for language, text in (("en", lines), ("de", map(translation, lines))):
        (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")


def output_of(command: Callable[[], int], status: int = 0) -> str:
    """What a command writes on stderr; it must return this status."""
    with contextlib.redirect_stderr(io.StringIO()) as output, log_shown(say):
        assert command() == status
    return output.getvalue()


def translated(trained: Trained, source: bytes, *options: str) -> bytes:
    target, beam = io.BytesIO(), [] if "--beam" in options else ["--beam", "2"]
    assert translate(["--run", str(trained.run), *beam, *options], io.BytesIO(source), target) == 0
    return target.getvalue()


def results_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "results.json").read_text(encoding="utf-8")))


def log_of(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of this kind in a run's log."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["kind"] == kind]


def changed(words: Sequence[str], *options: str) -> list[str]:
    """The words of a command line with other options, in place of those of the same names."""
    kept, is_kept = [], True
    for word in words:
        is_kept = word not in options if word.startswith("--") else is_kept
        kept += [word] * is_kept
    return [*kept, *options]


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def plain(text: str) -> str:
    """Text in one line."""
    return " ".join(text.split())
