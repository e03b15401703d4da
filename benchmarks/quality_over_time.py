"""Train our recipe and JoeyNMT on the same text for the same minutes, and draw validation BLEU over time.

    python benchmarks/quality_over_time.py MULTI30K --joeynmt PYTHON [--minutes 40] [--cores-each 1]

MULTI30K: the directory with train.en.gz, train.de.gz, val.en.gz and val.de.gz.  PYTHON: that of an environment with
`pip install joeynmt==2.3.0 torch==2.13.0 sentencepiece==0.2.0 importlib_metadata`.

Each contestant is pinned to its cores.  As many train at the same time as the cores allow; the others follow.  Time is
training alone: neither validation nor reading the text counts.  JoeyNMT uses our subword tokenizer.  Its configurations
are named by --peers:

- "small" has the model and the training of its configs/transformer_small.yaml;
- "iwslt14" those of its configs/transformer_iwslt14_deen_bpe.yaml;
- "same" has the sizes, the dropout, the batches and the learning rate of our preset "small".

Both are scored by the same function on the whole validation set: ours as the average of the last quarter of its
checkpoints, at most as many as the recipe averages, with a beam of 4; JoeyNMT's as its newest checkpoint, with a beam
of 5 and α 1.0.  The command continues where it was interrupted, but a training of JoeyNMT begins anew.  Other minutes
or cores need another --work.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from contest import describe_machine
from matplotlib.figure import Figure

from minitransformer import Translator
from minitransformer.config import RunConfig
from minitransformer.data.tokenizer import JOINT_FILE, Tokenizer
from minitransformer.extras.report.colours import FAINT, head_colours
from minitransformer.extras.report.saving import save_picture
from minitransformer.inference.bleu import bleu
from minitransformer.model.files import load_model_files, save_model_files
from minitransformer.training.checkpoint import average_weights, checkpoints_of_updates

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "multi30k-en-de.toml"
MINUTES = (2, 5, 10, 15, 20, 30, 40)  # of training at which scores are computed; the last is the default of --minutes
PRESET = RunConfig.of_preset("small")
PEERS = {
    "small": "JoeyNMT, its transformer_small",
    "iwslt14": "JoeyNMT, its transformer_iwslt14_deen_bpe",
    "same": "JoeyNMT, sizes and rates of minitransformer",
}
TRAINED = "trained"  # a file in the directory of a contestant whose training is over


class Checkpoint(NamedTuple):
    """A checkpoint of a training: its updates, and how many seconds they took."""

    updates: int
    seconds: float


class Ours:
    """A training by the recipe of this project."""

    name = "minitransformer"

    def __init__(self, text: Path, work: Path) -> None:
        self.run = work / "ours"
        self._common = ["--config", RECIPE, "--data.raw", text, "--data.directory", work / "data", "--run", self.run]

    def prepare(self) -> None:
        """Make the text into token ids."""
        subprocess.run([command("prepare"), *self._common], check=True)

    def start(self, environment: dict[str, str], cores: str) -> subprocess.Popen[bytes]:
        """Begin or continue the training."""
        train = [command("train"), *self._common, "--training.keep-checkpoints", "100_000"]
        return subprocess.Popen(["taskset", "-c", cores, *train], env=environment)

    def progress(self) -> tuple[list[Checkpoint], float]:
        """Return the checkpoints so far, and the seconds of training so far."""
        log = self.run / "metrics.jsonl"
        rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()] if log.exists() else []
        seconds = {row["step"]: row["seconds"] for row in rows if row["kind"] == "training"}
        saved = [int(path.name.split("-")[-1]) for path in checkpoints_of_updates(self.run)]
        return [Checkpoint(step, seconds[step]) for step in saved if step in seconds], max(seconds.values(), default=0)

    def translations(self, sources: Sequence[str], updates: int) -> list[str]:
        """Translate with the average of the last checkpoints up to an update."""
        paths = [p for p in checkpoints_of_updates(self.run) if int(p.name.split("-")[-1]) <= updates]
        chosen = paths[-max(1, min(PRESET.training.average_checkpoints, len(paths) // 4)) :]
        averaged = self.run / "averaged"
        averaged.mkdir(exist_ok=True)
        save_model_files(averaged, load_model_files(chosen[-1])[0], average_weights(chosen))
        Tokenizer.load(self.run).save(averaged)
        return Translator.load(averaged).translate(sources, beam=4)


class JoeyNMT:
    """A training by a configuration of JoeyNMT: Apache License 2.0, https://github.com/joeynmt/joeynmt."""

    def __init__(self, peer: str, python: Path, work: Path) -> None:
        self.name, self.run, self._python, self._work = PEERS[peer], work / f"joeynmt-{peer}", python, work
        self._config = joeynmt_config(peer, work, self.run)

    def start(self, environment: dict[str, str], cores: str) -> subprocess.Popen[bytes]:
        """Begin the training."""
        config = write_json(self.run.with_suffix(".json"), self._config)
        train = ["taskset", "-c", cores, self._python, "-m", "joeynmt", "train", config, "--skip-test"]
        with self.run.with_suffix(".log").open("wb") as log:
            return subprocess.Popen(train, env=environment, stdout=log, stderr=log, cwd=self._work)

    def progress(self) -> tuple[list[Checkpoint], float]:
        """Return the checkpoints so far, and the seconds of training so far.

        Both are read from the times in the log.  A validation ends with its last line.
        """
        found, seconds, since, is_validation = [], 0.0, 0.0, False
        every = self._config["training"]["validation_freq"]
        for moment, message in logged(self.run / "train.log"):
            if message.startswith(("EPOCH", "Epoch")):
                since, is_validation = since or moment, False
                if step := re.search(r"Step: +(\d+)", message):
                    seconds, since, updates = seconds + moment - since, moment, int(step[1])
                    if is_validation := updates % every == 0:
                        found.append(Checkpoint(updates, seconds))
            elif is_validation:
                since = moment
        return found, seconds

    def translations(self, sources: Sequence[str], updates: int) -> list[str]:
        """Translate with the checkpoint of an update."""
        checkpoint = {"load_model": str(self.run / f"{updates}.ckpt")}
        config = self._config | {"testing": self._config["testing"] | checkpoint}
        file = write_json(self.run.with_suffix(".translate.json"), config)
        translate = [self._python, "-m", "joeynmt", "translate", file]
        with self.run.with_suffix(".log").open("a", encoding="utf-8") as log:
            found = subprocess.run(
                translate,
                input="\n".join(sources),
                text=True,
                check=True,
                cwd=self._work,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        return found.stdout.splitlines()


def joeynmt_config(peer: str, work: Path, run: Path) -> dict[str, Any]:
    """Return a configuration of JoeyNMT.

    Its validations, which write the checkpoints, are at other updates than the published ones, and short.
    """
    size = PRESET.model
    layers, heads, width, hidden, dropout = {
        "small": (3, 4, 64, 128, 0.1),
        "iwslt14": (6, 4, 256, 1024, 0.3),
        "same": (size.n_layers, size.n_heads, size.d_model, size.d_ff, size.p_drop),
    }[peer]
    noam = {"scheduling": "noam", "adam_betas": [0.9, 0.98], "batch_type": "token"}
    training = {
        "small": noam | {"learning_rate_factor": 0.5, "learning_rate_warmup": 1_000, "batch_size": 250,
            "normalization": "batch", "validation_freq": 500},
        "iwslt14": {"scheduling": "plateau", "patience": 250, "decrease_factor": 0.7, "learning_rate": 0.0003,
            "adam_betas": [0.9, 0.999], "batch_size": 4_096, "batch_type": "token", "normalization": "tokens",
            "label_smoothing": 0.1, "validation_freq": 20},
        "same": noam | {"learning_rate_factor": PRESET.training.learning_rate_factor,
            "learning_rate_warmup": PRESET.training.warmup_steps, "batch_size": PRESET.training.batch_tokens,
            "normalization": "tokens", "label_smoothing": size.label_smoothing, "validation_freq": 60},
    }[peer]  # fmt: skip
    stack: dict[str, Any] = {
        "type": "transformer", "num_layers": layers, "num_heads": heads, "hidden_size": width, "ff_size": hidden,
        "dropout": dropout, "embeddings": {"embedding_dim": width, "scale": True},
    }  # fmt: skip
    if peer == "same":
        stack["layer_norm"] = "post"
    if peer == "iwslt14":
        stack["embeddings"]["dropout"] = 0.0
    side = {
        "level": "bpe", "max_length": 62, "voc_file": str(work / "pieces.txt"), "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": str(work / "data" / JOINT_FILE)},
    }  # fmt: skip
    return {
        "name": peer,
        "model_dir": str(run),
        "use_cuda": False,
        "random_seed": 42,
        "data": {"train": str(work / "train"), "dev": str(work / "val"),
            "sample_dev_subset": 64, "src": side | {"lang": "en"}, "trg": side | {"lang": "de"}},
        "training": training
        | {"optimizer": "adam", "learning_rate_min": 0.0, "epochs": 100_000, "logging_freq": 20, "overwrite": True,
            "early_stopping_metric": "bleu", "print_valid_sents": [0], "keep_best_ckpts": -1},
        "testing": {"beam_size": 5, "beam_alpha": 1.0, "batch_size": 1_024, "batch_type": "token",
            "max_output_length": 100, "eval_metrics": ["bleu"]},
        "model": {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "bias_initializer": "zeros",
            "tied_embeddings": peer != "small", "tied_softmax": True, "encoder": stack, "decoder": stack},
    }  # fmt: skip


def logged(file: Path) -> Iterator[tuple[float, str]]:
    """Yield the time and the message of each complete line of a log of JoeyNMT."""
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        if found := re.match(r"(\d{4}-\d\d-\d\d [\d:]{8}),(\d{3}) - \w+ - joeynmt\.\w+ - (.*)", line):
            yield datetime.fromisoformat(found[1]).timestamp() + int(found[2]) / 1_000, found[3]


def command(name: str) -> Path:
    """Return the path of one of our commands."""
    return Path(sys.executable).with_name(f"minitransformer-{name}")


def write_json(file: Path, value: object) -> Path:
    """Write a value as JSON; YAML, which JoeyNMT reads, includes JSON."""
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file


def plain_text(text: Path, work: Path) -> None:
    """Write what JoeyNMT reads: both texts without compression, and the list of our pieces."""
    for name in ("train", "val"):
        for language in ("en", "de"):
            (work / f"{name}.{language}").write_bytes(gzip.decompress((text / f"{name}.{language}.gz").read_bytes()))
    vocabulary = Tokenizer.load(work / "data").source
    pieces = [vocabulary.id_to_piece(i) for i in range(3, vocabulary.get_piece_size())]
    (work / "pieces.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")


def train_all(contestants: Sequence[Ours | JoeyNMT], minutes: float, cores_each: int) -> None:
    """Train each contestant for ``minutes``; as many at the same time as the cores allow."""
    cores = sorted(os.sched_getaffinity(0))
    at_once = len(cores) // cores_each
    threads = {name: str(cores_each) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    waiting = [c for c in contestants if not (c.run / TRAINED).exists()]
    for first in range(0, len(waiting), at_once):
        running = {}
        for i, contestant in enumerate(waiting[first : first + at_once]):
            own = ",".join(map(str, cores[i * cores_each : (i + 1) * cores_each]))
            running[contestant] = contestant.start(os.environ | threads, own)
        while running:
            time.sleep(2)
            for contestant, process in list(running.items()):
                saved, seconds = contestant.progress()
                is_over = bool(saved) and seconds >= 60 * minutes
                if is_over:
                    process.send_signal(signal.SIGINT)
                if is_over or process.poll() is not None:
                    if (process.wait() and not is_over) or not contestant.progress()[0]:
                        raise RuntimeError(f"{contestant.name}: the training failed, or has no checkpoint yet")
                    (contestant.run / TRAINED).touch()
                    del running[contestant]


def curve(contestant: Ours | JoeyNMT, minutes: float, work: Path) -> list[dict[str, Any]]:
    """Return the score at each of MINUTES and at the last minute, with the newest checkpoint of that time."""
    sources, references = ((work / f"val.{language}").read_text("utf-8").splitlines() for language in ("en", "de"))
    moments = sorted({m for m in MINUTES if m < minutes} | {minutes})
    saved, _ = contestant.progress()
    chosen = {m: max((c for c in saved if c.seconds <= 60 * m), default=None) for m in moments}
    points = []
    for checkpoint in sorted({c for c in chosen.values() if c}):
        score = bleu(contestant.translations(sources, checkpoint.updates), [references], language="de")
        points.append({"minutes": checkpoint.seconds / 60, "updates": checkpoint.updates, "bleu": score.value,
            "detail": str(score)})  # fmt: skip
        print(
            f"{contestant.name}: {checkpoint.seconds / 60:.1f} min, {checkpoint.updates:,} updates: {score}", flush=True
        )
    return points


def draw(curves: dict[str, list[dict[str, Any]]], picture: Path) -> None:
    """Draw validation BLEU over minutes, a line for each contestant."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for (name, points), colour in zip(curves.items(), head_colours(len(curves)), strict=True):
        axes.plot(
            [p["minutes"] for p in points], [p["bleu"] for p in points], "o-", color=colour, markersize=4, label=name
        )
    axes.set_xlabel("minutes of training", color=FAINT)
    axes.set_ylabel("BLEU, validation set", color=FAINT)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    save_picture(figure, picture)


def main() -> None:
    """Train, score and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="MULTI30K")
    parser.add_argument("--joeynmt", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--peers", nargs="*", choices=tuple(PEERS), default=["small", "same"])
    parser.add_argument("--minutes", type=float, default=MINUTES[-1])
    parser.add_argument("--cores-each", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs/quality-over-time"))
    parser.add_argument("--picture", type=Path, default=Path("docs/figures/quality-over-time.svg"))
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs, and so contestants, may ignore SIGINT
    describe_machine("sacrebleu", "sentencepiece")
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    ours = Ours(options.text.absolute(), work)
    if not (work / "pieces.txt").exists():
        ours.prepare()
        plain_text(options.text, work)
    contestants = [ours, *(JoeyNMT(peer, options.joeynmt.absolute(), work) for peer in options.peers)]
    train_all(contestants, options.minutes, options.cores_each)
    results = work / "results.json"
    curves = json.loads(results.read_text("utf-8")) if results.exists() else {}
    for contestant in contestants:
        if contestant.name not in curves:
            curves[contestant.name] = curve(contestant, options.minutes, work)
            write_json(results, curves)
    draw(curves, options.picture)


if __name__ == "__main__":
    main()
