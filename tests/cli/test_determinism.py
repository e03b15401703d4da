"""The commands again and again: on one machine, one seed gives the same bytes.

Every run is a process of its own, which prepares text, trains on it and translates with the result.  Runs differ in
what must not matter: the order in which Python's sets are walked, the number of threads, the name of the directory.
All files are compared byte for byte, but for the fields of NOT_COMPARED, and the page that shows them.
"""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_run import log_of, write_parallel_text
from waiting import TIME_LIMIT

ROOT = Path(__file__).parents[2]
TO_TRANSLATE = b"one two\nsix\n\nfive five four three\ntwo\n"

TEXT = ["--data.train-source", "train.en", "--data.train-target", "train.de", "--data.vocabulary-size", "40"]
# All kinds of dropout, more micro-batches than threads, several epochs, each with other segmentations, clipping,
# validations and an average of checkpoints.
TRAINING = """--model.n-layers 1 --model.d-model 16 --model.d-ff 32 --model.n-heads 2 --model.d-k 8 --model.d-v 8
    --model.p-drop 0.1 --model.p-drop-attention 0.1 --model.p-drop-relu 0.1
    --training.max-updates 24 --training.schedule linear --training.batch-tokens 250 --training.n-micro-batches 4
    --training.warmup-steps 12 --training.bpe-dropout 0.1
    --training.clip-norm 1.0 --training.log-every 2 --training.validate-every 8 --training.checkpoint-every 6
    --training.keep-checkpoints 3 --training.average-checkpoints 2"""

# What a run may write otherwise the next time: clock and stopwatch, the process' memory, and the commit of the code,
# which others may make while this runs.
NOT_COMPARED = {
    "metrics.jsonl": ("time", "peak_memory", "seconds", "target_tokens_per_second"),
    "state.json": ("seconds", "unlogged_seconds", "device_seconds"),
    "checksums.json": ("state.json",),
    "results.json": (
        "training_seconds",
        "evaluation_seconds",
        "flops_by_time",
        "device_seconds",
        "device_flops_per_second",
        "code",
    ),
}


def start(*arguments: object, n_threads: int = 2, **variables: str) -> str:
    """Prepare, train and translate in a process of its own; return what it says on stderr."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"} | variables
    command = [sys.executable, "-W", "error", __file__, str(n_threads), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    write_parallel_text(folder, "train", 200, seed=1)
    return folder


@pytest.fixture(scope="module")
def first(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("first") / "run"
    start(run, text, n_threads=1, PYTHONHASHSEED="12345")
    return run


def contents(directory: Path) -> dict[str, bytes]:
    """Every file's bytes, with the values of the fields that are not compared struck out; of report.html none."""
    found: dict[str, bytes] = {}
    for path in filter(Path.is_file, directory.rglob("*")):
        content = b"" if path.name == "report.html" else path.read_bytes()
        for name in NOT_COMPARED.get(path.name, ()):
            content = re.sub(rb'"%s": ([{][^}]*[}]|[^,}\s]+)' % name.encode(), b'"%s": ?' % name.encode(), content)
        found[str(path.relative_to(directory))] = content
    return found


def differing(one: Path, other: Path) -> list[str]:
    """The names of files that are not the same in both, or only in one."""
    ours, theirs = contents(one), contents(other)
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def test_all_files_and_translations_are_the_same_to_the_bit(first: Path, text: Path, tmp_path: Path) -> None:
    """With three threads, also of BLAS, and any order of sets."""
    three = {"PYTHONHASHSEED": "random", "OPENBLAS_NUM_THREADS": "3", "OMP_NUM_THREADS": "3"}
    assert "threads each 3" in start(tmp_path / "other name", text, n_threads=3, **three)
    assert differing(first, tmp_path / "other name") == []


def test_the_run_that_is_compared_does_something(first: Path) -> None:
    """It learns, reaches a third epoch, translates, and has scores that are no round numbers."""
    training = log_of(first, "training")
    assert training[-1]["epoch"] >= 2
    assert training[-1]["loss"] < 0.8 * training[0]["loss"]
    assert len(log_of(first, "validation")) == 3
    assert (first / "translations").read_bytes().count(b"\n") >= 3 * 4
    assert re.search(r"[a-z]", (first / "translations").read_text(encoding="utf-8"))
    assert len({score for _, score in json.loads((first / "scores").read_text())}) > 4


def test_another_seed_changes_losses_and_model_but_no_prepared_data(first: Path, text: Path, tmp_path: Path) -> None:
    start(tmp_path, text, "--training.seed", 2)
    assert differing(first / "data", tmp_path / "data") == []
    for kind in ("training", "validation"):
        pairs = zip(log_of(first, kind), log_of(tmp_path, kind), strict=True)
        assert all(one["loss"] != other["loss"] for one, other in pairs)
    changed = differing(first, tmp_path)
    assert {name for name in contents(first) if name.endswith(".safetensors")} <= set(changed)
    assert {"scores", "translations"} <= set(changed)


# What runs in the processes


def prepare_train_and_translate(run: str, text: str, *options: str) -> None:
    """Run the three commands, one after the other; then write the scores to the last bit, and digests."""
    from cli.prepare import prepare_data
    from cli.train import train
    from cli.translate import translate
    from minitransformer.inference.search import SearchConfig
    from minitransformer.inference.translator import Translator

    directories = ["--run", run, "--data.raw", text]
    assert prepare_data([*directories, *TEXT]) == 0
    assert train([*directories, *TEXT, *TRAINING.split(), *options]) == 0
    with (Path(run) / "translations").open("wb") as target:
        assert translate(["--run", run, "--n-best", "3"], io.BytesIO(TO_TRANSLATE), target) == 0
    lines = TO_TRANSLATE.decode().splitlines()
    found = Translator.load(run).n_best(lines, SearchConfig(beam=4, n_best=3))
    scores = [(t.text, t.score.hex()) for translations in found for t in translations]
    (Path(run) / "scores").write_text(json.dumps(scores), encoding="utf-8")
    (Path(run) / "digests.json").write_text(json.dumps(digests()), encoding="utf-8")


def digests() -> dict[str, str]:
    """Return digests of a short demonstration's text, and of tokenizers of it."""
    from minitransformer.data import tokenizer
    from minitransformer.extras.demo import demo_corpus

    def digest(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    def digest_of_tokenizer(**options: Any) -> str:
        made = tokenizer.Tokenizer.train(corpus.train, vocabulary_size=150, **options)
        return digest(made.source.serialized_model_proto() + made.target.serialized_model_proto())

    corpus = demo_corpus(n_train=400, n_validation=20, n_test=20)
    found = {
        f"{kind}, {joint}": digest_of_tokenizer(kind=kind, joint=joint)
        for kind in ("bpe", "unigram")
        for joint in (True, False)
    }
    tokenizer.MAX_TRAINING_SENTENCES = 300
    found["bpe, sampled"] = digest_of_tokenizer()
    return found | {"demo": digest(repr((corpus.train, corpus.validation, corpus.test)).encode())}


if __name__ == "__main__":
    n_threads, *arguments = sys.argv[1:]
    os.sched_getaffinity = lambda process: set(range(int(n_threads)))  # as if there were that many cores
    prepare_train_and_translate(*arguments)
