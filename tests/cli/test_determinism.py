"""The commands again and again: on one machine, one seed gives the same bytes, also if training is killed.

Every run is a process of its own.  Runs differ in what must not matter: the order in which Python's sets are walked,
the number of threads, the name of the directory, the moments in which they are killed.  All files are compared byte
for byte, but for the fields of NOT_COMPARED, and the page that shows them.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_run import log_of, write_parallel_text
from waiting import TIME_LIMIT

ROOT = Path(__file__).parents[2]
TO_TRANSLATE = b"one two\nsix\n\nfive five four three\ntwo\n"

TEXT = ["--data.train-source", "train.en", "--data.train-target", "train.de", "--data.vocabulary-size", "40"]
TEXT += ["--data.weights", "1.5"]
# All kinds of dropout, more micro-batches than threads, several epochs, each with other pairs, segmentations and noise,
# clipping, validations and an average of checkpoints.
TRAINING = """--model.n-layers 1 --model.d-model 16 --model.d-ff 32 --model.n-heads 2 --model.d-k 8 --model.d-v 8
    --model.p-drop 0.1 --model.p-drop-attention 0.1 --model.p-drop-relu 0.1
    --training.max-updates 24 --training.schedule linear --training.batch-tokens 250 --training.n-micro-batches 4
    --training.warmup-steps 12 --training.bpe-dropout 0.1 --training.noise typos=0.1 blanks=0.1
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


@pytest.mark.slow
def test_all_files_and_translations_are_the_same_to_the_bit(first: Path, text: Path, tmp_path: Path) -> None:
    """With three threads, also of BLAS, and any order of sets."""
    three = {"PYTHONHASHSEED": "random", "OPENBLAS_NUM_THREADS": "3", "OMP_NUM_THREADS": "3"}
    assert "threads each 3" in start(tmp_path / "other name", text, n_threads=3, **three)
    assert differing(first, tmp_path / "other name") == []


def test_the_run_that_is_compared_does_something(first: Path) -> None:
    """It learns, reaches a third epoch, translates, and has scores that are no round numbers."""
    compared = {"model.safetensors", "scores", "translations", "digests.json", "data/manifest.json"}
    assert compared <= contents(first).keys()
    training = log_of(first, "training")
    assert training[-1]["epoch"] >= 2
    assert training[-1]["loss"] < 0.8 * training[0]["loss"]
    assert len(log_of(first, "validation")) == 3
    assert (first / "translations").read_bytes().count(b"\n") >= 3 * 4
    assert re.search(r"[a-z]", (first / "translations").read_text(encoding="utf-8"))
    assert len({score for _, score in json.loads((first / "scores").read_text())}) > 4


# Training that is killed.  Log lines sum up updates before and after a checkpoint; validations and checkpoints fall
# together and do not.
DATA = [*TEXT, "--data.validation-source", "valid.en", "--data.validation-target", "valid.de"]
KILLED = """--model.n-layers 1 --model.d-model 16 --model.d-ff 32 --model.n-heads 2 --model.d-k 8 --model.d-v 8
    --training.max-updates 8 --training.batch-tokens 100 --training.n-micro-batches 2 --training.warmup-steps 6
    --model.alpha 0.6 --training.log-every 5 --training.validate-every 3 --training.checkpoint-every 2
    --training.keep-checkpoints 3 --training.average-checkpoints 2 --training.noise typos=0.2 blanks=0.2"""
Life = tuple[str, float]  # killed in a "call", during "validation", … (killed.py): in which one, as a share of all


@dataclass(frozen=True)
class Undisturbed:
    """A run in one go, and how many calls and operations on files it makes, by where."""

    folder: Path
    run: Path
    counts: dict[str, int]


def live(lives: list[tuple[str, int]], folder: Path, run: Path, *options: str) -> list[str]:
    command = [sys.executable, str(ROOT / "tests" / "support" / "killed.py"), json.dumps(lives)]
    command += ["--run", str(run), "--data.directory", str(folder / "data"), "--data.raw", str(folder), *DATA]
    command += [*KILLED.split(), *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *ends, last = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert last == "status 0", done.stderr
    return [*ends, done.stdout.splitlines()[-2]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    from cli.prepare import prepare_data

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


@pytest.mark.slow
def test_a_back_translated_run_killed_often_ends_as_if_undisturbed(undisturbed: Undisturbed) -> None:
    """While text is written, and in both trainings; a life also reads what earlier ones have written."""
    folder = undisturbed.folder
    write_parallel_text(folder, "mono", 30, seed=3)
    options = ["--back-translate", "mono.de", "--back-translate-search", "sampling"]
    (counts,) = live([], folder, folder / "back", *options)
    lives = [("file", int(share * json.loads(counts)["file"])) for share in (0.2, 0.4, 0.5)]
    assert live(lives, folder, folder / "killed back", *options)[:3] == ["killed"] * 3
    assert differing(folder / "back", folder / "killed back") == []


LIVES = st.lists(st.tuples(st.sampled_from(["call", "file", "file"]), st.floats(0, 1, exclude_max=True)), max_size=4)


@pytest.mark.slow
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
    """Each life is killed one operation later in the first of four saves; only the last one removes files (above)."""
    n = undisturbed.counts["save"]
    ends = check([("save", (i + 0.5) / n) for i in range(n // 4)], undisturbed)
    assert ends.index("status 0") > n // 5


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lives=LIVES)
def test_runs_killed_at_many_moments_end_as_if_they_had_not_been(undisturbed: Undisturbed, lives: list[Life]) -> None:
    check(lives, undisturbed)


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
