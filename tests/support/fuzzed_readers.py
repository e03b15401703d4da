"""What reads files, and the files that it should read: the starting points of tests/fuzz.py."""

import contextlib
import dataclasses
import gzip
import json
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import babel.messages.plurals  # noqa: F401  (no reader may open a file elsewhere, as an import does)
import numpy as np
import sacrebleu.tokenizers.tokenizer_13a  # noqa: F401  (the same)
import sentencepiece.sentencepiece_model_pb2  # noqa: F401  (the same)
from ctranslate2_models import ctranslate2_directory, random_parts
from marian_npz_files import write_marian
from state_dict_files import write_fairseq, write_joeynmt
from toy_treebank import write_toy_treebank

from autograd.optim import Adam
from cli.train import read_options
from minitransformer.config import DataConfig, ModelConfig, RunConfig
from minitransformer.data.corpus import FileCorpus
from minitransformer.data.prepare import prepare
from minitransformer.data.store import TokenStore, write_store
from minitransformer.data.tokenizer import TOKENIZER_CHECKSUMS, Tokenizer
from minitransformer.extras.convert.formats import read_parts
from minitransformer.extras.convert.marian_directory import write_marian as write_marian_mt
from minitransformer.extras.convert.parts import Parts, write_bundle
from minitransformer.extras.doctor.check import replay_repro_bundle
from minitransformer.extras.files.documents import read_document
from minitransformer.extras.files.memories import CLOSING, opening, unit_of
from minitransformer.extras.files.resumable import translate_file
from minitransformer.extras.parsing.penn import read_tree, read_trees, write_tree
from minitransformer.extras.parsing.plain import plain
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_run
from minitransformer.inference.translator import Translation
from minitransformer.model.files import write_model_files
from minitransformer.model.storage import stored
from minitransformer.model.transformer import Transformer
from minitransformer.system.checksums import checksums_of, write_checksums
from minitransformer.system.files import CheckpointError, read_json, write_text
from minitransformer.training.callbacks import MetricsFile, TrainingReport
from minitransformer.training.checkpoint import (
    CHECKPOINT_FILES,
    Snapshot,
    average_weights,
    load_checkpoint,
    save_checkpoint,
)
from minitransformer.training.divergence import UpdateFacts, write_repro_bundle
from minitransformer.training.run_data import open_or_prepare
from minitransformer.training.state import TrainingState

TINY = ModelConfig(vocabulary_size=9, n_layers=1, d_model=4, d_ff=6, n_heads=1, d_k=4, d_v=4)
RECIPE = Path(__file__).parents[2] / "recipes" / "wmt14-en-de-big.toml"
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven"]
PAIRS = [(a, b) for a in NUMBERS for b in NUMBERS]
LINES, SWAPPED_LINES = ("".join(f"{pair[i]} {pair[1 - i]}\n" for pair in PAIRS) for i in (0, 1))


@dataclass(frozen=True)
class Reader:
    """How its files are written, what happens after one (but not of the untouched) was changed, and who reads them."""

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda directory: None
    untouched: tuple[str, ...] = ()
    changes_others: bool = False
    notices_all: bool = False
    also_allowed: tuple[type[BaseException], ...] = ()


def model_and_adam() -> tuple[Transformer, Adam]:
    model = Transformer(TINY, seed=1)
    return model, Adam(model.parameters)


def write_checkpoint(run: Path) -> None:
    save_checkpoint(run, Snapshot.of(*model_and_adam(), TrainingState(20, 3, 2, 7, 0.5, 12.25)), keep=1)


CHECKPOINT = Path("checkpoints", "step-00000020")
HERE = model_and_adam()


def note_checksums(run: Path) -> None:
    names = [name for name in CHECKPOINT_FILES if (run / CHECKPOINT / name).exists()]
    write_checksums(run / CHECKPOINT, names)


def read_checkpoint(run: Path) -> None:
    average_weights([run / CHECKPOINT])
    load_checkpoint(run / CHECKPOINT, *HERE)


def write_model(directory: Path) -> None:
    Transformer(TINY, seed=1).save(directory)
    (directory / "checksums.json").unlink()


def write_int8_model(directory: Path) -> None:
    write_model_files(directory, TINY, stored(Transformer(TINY, seed=1).weights(), "int8"))


@cache
def tiny_tokenizer() -> Tokenizer:
    return Tokenizer.train([(line, line) for line in LINES.splitlines()], vocabulary_size=40)


def write_tiny_bundle(directory: Path) -> None:
    write_bundle(Parts(TINY, Transformer(TINY, seed=1).weights(), tiny_tokenizer(), licence="CC0"), directory)


def write_tokens(directory: Path) -> None:
    write_store(directory, "train", [([3, 4, 5], [6]), ([7], [8, 3]), ([], [4])] * 5, 9)


def read_tokens(directory: Path) -> None:
    store = TokenStore(directory, "train").read()
    assert all(len(side) for i in range(len(store)) for side in store.pair(i) if len(side))


def write_tokenizer(directory: Path) -> None:
    tiny_tokenizer().save(directory)
    (directory / TOKENIZER_CHECKSUMS).unlink()


def read_tokenizer(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    tokenizer.decode_target(tokenizer.encode_source(["one two", "seven ж"]))


def data_config(directory: Path) -> DataConfig:
    names: dict[str, Any] = {"train_source": ("t.en",), "train_target": ("t.de",)}
    return DataConfig(raw=directory, vocabulary_size=40, held_out=3, directory=directory, **names)


def write_data(directory: Path) -> None:
    texts = {directory / "t.en": LINES, directory / "t.de": SWAPPED_LINES}
    for path, text in texts.items():
        path.write_text(text)
    prepare(data_config(directory), directory)
    for path in texts:
        path.unlink()


def note_data_checksums(directory: Path) -> None:
    """Make the manifest's checksums those of the files that are there, if it still is a manifest."""
    with contextlib.suppress(CheckpointError, AttributeError, TypeError, ValueError):
        manifest = read_json(directory / "manifest.json")
        names = [path.name for path in directory.glob("*.*") if path.name not in ("manifest.json", TOKENIZER_CHECKSUMS)]
        text = json.dumps(manifest | {"checksums": checksums_of(directory, names)}, indent=2)
        write_text(directory / "manifest.json", text + "\n")


def read_data(directory: Path) -> None:
    data = open_or_prepare(RunConfig(run=directory / "run", data=data_config(directory)))
    data.text("validation")
    data.text("test")


def write_run(directory: Path) -> None:
    RunConfig(run=directory).claim_directory()


def write_recipe(directory: Path) -> None:
    (directory / "recipe.toml").write_text('compat = "fairseq"\n' + RECIPE.read_text())


class CutOffError(Exception):
    """A process has died, so to speak."""


class FirstFourLines:
    """Stands for a translator: it comes four lines far."""

    opening = closing = b""
    whole_units = False
    alignments = prefixes = None

    def __call__(self, lines: Sequence[bytes], n_before: int, advance: Any) -> list[bytes]:
        if n_before == 4:
            raise CutOffError
        return [b"".join(line.upper() + b"\n" for line in lines)]

    def facts(self) -> dict[str, Any]:
        return {"beam": 4, "n_best": None, "model": "abc"}


def translate_four_lines(directory: Path, *, resume: bool) -> None:
    translator, files = FirstFourLines(), (directory / "in", directory / "out")
    with contextlib.suppress(CutOffError):
        translate_file(translator, *files, resume=resume, lines_at_once=2)  # type: ignore[arg-type]


def write_half_translated(directory: Path) -> None:
    (directory / "in").write_text("one two\nthree\n" * 4)
    translate_four_lines(directory, resume=False)


def write_repro_bundle_of_update(directory: Path) -> None:
    model, pairs = Transformer(TINY, seed=1), [(np.array([3, 4]), np.array([5])), (np.array([6]), np.array([7, 8]))]
    facts = UpdateFacts(
        step=17,
        epoch=1,
        group=0,
        batch_index=4,
        pairs=[5, 0],
        seed=3,
        n_micro_batches=2,
        learning_rate=1e-3,
        what="the loss is nan",
        code="",
    )
    write_repro_bundle(directory, model, pairs, facts, model.parameters.gradients)
    (directory / "checksums.json").unlink()


def write_corpus(directory: Path) -> None:
    lines = LINES.encode()
    (directory / "t.en").write_bytes(lines)
    (directory / "t.de.gz").write_bytes(gzip.compress(lines, mtime=0))
    (directory / "v.en.xz").write_bytes(lzma.compress(lines))
    (directory / "v.de").write_bytes(lines)


def read_corpus(directory: Path) -> None:
    train: dict[str, Any] = {"train_source": ("t.en",), "train_target": ("t.de.gz",)}
    validation: dict[str, Any] = {"validation_source": ("v.en.xz",), "validation_target": ("v.de",)}
    corpus = FileCorpus.of(DataConfig(raw=directory, **train, **validation))
    assert len(list(corpus.train())) == corpus.surveys[directory / "t.en"].n_lines
    assert len(list(corpus.validation())) == corpus.surveys[directory / "v.de"].n_lines


def write_translation_memory(directory: Path) -> None:
    beginning = opening("en").replace(b"<tmx", b'<!DOCTYPE tmx SYSTEM "t.dtd">\n<tmx')
    units = (unit_of(("en", "de"), pair) for pair in PAIRS)
    (directory / "t.tmx").write_bytes(b"".join([beginning, *units, CLOSING]))


def read_translation_memory(directory: Path) -> None:
    corpus = FileCorpus.of(DataConfig(raw=directory, train_source=("t.tmx",), held_out=3))
    n_pairs = len(list(corpus.train())) + len(list(corpus.validation()))
    assert n_pairs == corpus.surveys[directory / "t.tmx"].n_lines


def write_documents(directory: Path) -> None:
    texts = {
        "po": '# c\n#, c-format\nmsgctxt "c"\nmsgid "one %d\\n"\n"two"\nmsgid_plural "%d"\nmsgstr[0] ""\n\n'
        '#~ msgid "a"\n',
        "json": '{"a": {"b": "one {{n}}", "c": [1, null, "<b>two</b> \\u00e4"]}}',
        "xml": '<resources><string name="a">one <b>%1$s</b> &amp;</string><plurals name="b"><item>two</item></plurals>'
        '<string name="c"><![CDATA[<p>three</p>]]></string></resources>',
        "xlf": '<?xml version="1.0" encoding="utf-8"?>\n<xliff version="1.2"><file source-language="en"><body>'
        '<trans-unit id="1"><source>one <g id="1">two</g><x id="2"/></source><target state="new"/></trans-unit>'
        '<trans-unit id="2"><source>a</source><seg-source><mrk mtype="seg">a</mrk></seg-source></trans-unit>'
        "</body></file></xliff>",
        "tmx": '<tmx version="1.4"><header srclang="en"><note>n</note></header><body><tu><tuv xml:lang="en"><seg>one'
        "<ph>x</ph></seg></tuv></tu></body></tmx>",
    }
    for ending, text in texts.items():
        (directory / f"a.{ending}").write_text(text)


def read_documents(directory: Path) -> None:
    """Read and write each document; its translations are its sources."""
    for ending in ("po", "json", "xml", "xlf", "tmx"):
        path = directory / f"a.{ending}"
        document = read_document(path, ("en", "de"))
        document.fill([Translation("x", 0, 0, parts=parts) for parts in document.segments])
        read_document(path, ("en", "de"), document.content())


def read_treebank(directory: Path) -> None:
    for tree in read_trees(directory / "t.mrg"):
        read_tree(write_tree(plain(tree)))


def write_metrics(directory: Path) -> None:
    metrics = MetricsFile(directory)
    for step in range(1, 9):
        metrics.report(TrainingReport(step, 0, 1 / step, 1e-3, 0.25, 4_000.0, 2.0, 10**9))


def write_logged_run(directory: Path) -> None:
    write_run(directory)
    write_metrics(directory)
    sample = {"source": "one", "reference": "eins", "translation": "zwei"}
    line = {"kind": "validation", "time": 1.5, "step": 8, "loss": 1.25, "bleu": 20.5, "samples": [sample]}
    with (directory / "metrics.jsonl").open("a") as log:
        log.write(json.dumps(line) + "\n")
    (directory / "translations.jsonl").write_text(json.dumps({"split": "validation"} | sample) + "\n")
    results = {"updates": 8, "validation": {"bleu": 20.5, "signature": "x"}, "data": {"train_pairs": 3, "dropped": {}}}
    (directory / "results.json").write_text(json.dumps(results))


def write_marian_directory(directory: Path) -> None:
    config = dataclasses.replace(TINY, vocabulary_size=40)
    write_marian_mt(Parts(config, Transformer(config, seed=1).weights(), tiny_tokenizer()), directory)


def read_finite(directory: Path, name: str) -> None:
    parts = read_parts(directory, name)
    assert all(np.isfinite(array).all() for array in parts.weights.values())


READERS: dict[str, Reader] = {
    "checkpoint": Reader(write_checkpoint, read_checkpoint, notices_all=True),
    "checkpoint-with-new-checksums": Reader(
        write_checkpoint, read_checkpoint, prepare=note_checksums, changes_others=True
    ),
    "model": Reader(write_model, Transformer.load),
    "int8-model": Reader(write_int8_model, Transformer.load),
    "bundle": Reader(write_tiny_bundle, Parts.load),
    "tokens": Reader(write_tokens, read_tokens),
    "tokenizer": Reader(write_tokenizer, read_tokenizer),
    "prepared-data": Reader(write_data, read_data),
    "prepared-data-with-new-checksums": Reader(
        write_data, read_data, prepare=note_data_checksums, untouched=("tokenizer.model",), changes_others=True
    ),
    "run": Reader(write_run, lambda directory: RunConfig(run=directory).check_directory()),
    "recipe": Reader(
        write_recipe, lambda directory: read_options(["--config", str(directory / "recipe.toml")]),
        also_allowed=(SystemExit,),
    ),
    "ctranslate2": Reader(
        lambda directory: ctranslate2_directory(directory, random_parts({"n_layers": 1})),
        lambda directory: read_finite(directory, "ctranslate2"),
    ),
    "fairseq": Reader(write_fairseq, lambda directory: read_finite(directory, "fairseq")),
    "joeynmt": Reader(write_joeynmt, lambda directory: read_finite(directory, "joeynmt")),
    "metrics": Reader(write_metrics, lambda directory: MetricsFile(directory).begin(TrainingState(step=5), 9)),
    "logged-run": Reader(write_logged_run, lambda directory: run_page([read_run(directory)] * 2)),
    "repro-bundle": Reader(write_repro_bundle_of_update, replay_repro_bundle),
    "translation": Reader(
        write_half_translated, lambda directory: translate_four_lines(directory, resume=True), changes_others=True
    ),
    "marian": Reader(write_marian_directory, lambda directory: read_finite(directory, "marian")),
    "marian-npz": Reader(write_marian, lambda directory: read_finite(directory, "marian-npz")),
    "corpus": Reader(write_corpus, read_corpus),
    "translation-memory": Reader(write_translation_memory, read_translation_memory),
    "documents": Reader(write_documents, read_documents),
    "treebank": Reader(lambda directory: write_toy_treebank(directory / "t.mrg", 8, seed=1), read_treebank),
}  # fmt: skip
