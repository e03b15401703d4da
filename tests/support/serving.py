"""A small random translator, an application around it, and the server as a process."""

import functools
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason='the extra is not installed: pip install -e ".[serve]"')

from number_words import sentences, translation
from starlette.testclient import TestClient
from waiting import TIME_LIMIT

from minitransformer import ModelConfig, Transformer
from minitransformer.data.profile import TextProfile
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.serve.app import create_app
from minitransformer.extras.serve.directions import Direction, Directions
from minitransformer.extras.serve.languages import Language
from minitransformer.extras.serve.metrics import Metrics
from minitransformer.extras.serve.translation_queue import TranslationQueue
from minitransformer.extras.serve.translation_request import Limits
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.text.translation import Translation

ROOT = Path(__file__).resolve().parents[2]


def directions_of(*pairs: str, **translators: Any) -> Directions:
    """Directions such as "en-de"; each has its translator in ``translators``, such as en_de, or one that shouts."""
    languages = [tuple(map(Language, pair.replace("_", "-").split("-"))) for pair in (*pairs, *translators)]
    models = [*(ScriptedTranslator() for _ in pairs), *translators.values()]
    return Directions([Direction(*two, model) for two, model in zip(languages, models, strict=True)])


@functools.cache
def small_translator() -> Translator:
    """A random model over the pieces of number words; its distributions are far from uniform."""
    pairs = [(line, translation(line)) for line in sentences(200, seed=1)]
    tokenizer = Tokenizer.train(pairs, vocabulary_size=40)
    sizes = ModelConfig(tokenizer.n_target_words, n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
    model = Transformer(sizes, seed=3)
    model.parameters.values *= 2
    return Translator(model, tokenizer)


class WordTokenizer:
    """A tokenizer that knows all characters; a word is a token."""

    languages = ()
    spells_no_words = True

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        return [[3] * len(line.split()) for line in lines]


class ScriptedTranslator:
    """A translator that writes words in capitals, fails at "fail", and reaches the greatest length at "endless"."""

    longest_source, tokenizer, profile = 20, WordTokenizer(), TextProfile()

    def __init__(self, write: Callable[[str], str] = str.upper) -> None:
        self.write = write
        self.batches: list[list[str]] = []

    def n_best(
        self, lines: Sequence[str], config: SearchConfig, aligned: Any = None, **_: Any
    ) -> list[list[Translation]]:
        self.batches.append(list(lines))
        if any("fail" in line for line in lines):
            raise FloatingPointError(f"cannot translate {lines}")

        def shouted(line: str, k: int) -> Translation:
            links = tuple((i, i) for i in range(len(line.split()))) if aligned else ()
            return Translation(self.write(line) + "!" * k, -k - 1.0, -k - 0.5, links, is_cut="endless" in line)

        return [[shouted(line, k) for k in range(config.n_best)] for line in lines]

    def count_tokens(self, lines: Sequence[str]) -> list[int]:
        return list(map(len, self.tokenizer.encode_source(lines)))


def queue_of(beam: int = 4, max_tokens: int = 10_000, **options: Any) -> TranslationQueue:
    return TranslationQueue(SearchConfig(beam=beam), max_tokens=max_tokens, n_threads=1, **options)


@contextmanager
def client_of(translator: Any, *, tokens_waiting: int = 10_000, beam: int = 4, **options: Any) -> Iterator[TestClient]:
    """A client of an application with a translator from English to German, or with directions.

    The queue is its attribute ``queue``.
    """
    metrics = Metrics()
    counts = {"on_batch": metrics.count_batch, "on_cut": metrics.count_cut}
    queue = queue_of(beam, tokens_waiting, **counts)
    limits = Limits(characters=200, alternatives=3)
    directions = translator if isinstance(translator, Directions) else directions_of(en_de=translator)
    app = create_app(queue, directions, limits, metrics, **({"tokens_per_minute": 1_000_000} | options))
    with TestClient(app) as client:
        client.queue = queue  # type: ignore[attr-defined]
        yield client


def form(q: Any, **more: Any) -> dict[str, Any]:
    return {"q": q, "source": "en", "target": "de", **more}


@dataclass
class Served:
    """A server process and its address."""

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def post(self, path: str, fields: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, json.dumps(fields).encode(), headers)
        with urllib.request.urlopen(request, timeout=TIME_LIMIT) as answer:
            return json.load(answer)

    def end(self, signal: int) -> tuple[int, str]:
        """Send a signal; return the status and the rest of what the process has said."""
        self.process.send_signal(signal)
        _, said = self.process.communicate(timeout=TIME_LIMIT)
        return self.process.returncode, said


@contextmanager
def served(
    run: Path | str, *options: str, languages: Sequence[str] = ("--source", "en", "--target", "de"), before: str = ""
) -> Iterator[Served]:
    """The command as a process on a free port; ``before`` is code that it runs first."""
    code = f"import sys, cli.serve\n{before}\nsys.exit(cli.serve.main())"
    words = ["--run", str(run), "--port", "0", *languages, "--threads", "1", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stderr.readline()
            assert line.startswith("http://"), line + process.stderr.read()
            yield Served(process, line.split()[0])
        finally:
            process.kill()
