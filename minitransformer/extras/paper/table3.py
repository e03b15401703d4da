"""Table 3 of the paper at a smaller scale: variations of the Transformer are trained and compared.

A cell of the table is one row trained with one seed.  All cells have the same data and number of updates; only the big
model has three times as many updates.  Every model is evaluated by perplexity and BLEU on held-out text.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from minitransformer.config import ConfigError, ModelConfig, presets
from minitransformer.config.model import ALPHA
from minitransformer.config.run import RUN_FILE, RunConfig, initial_settings, with_values
from minitransformer.data.prepare import PreparedData
from minitransformer.system.files import CorruptFileError, write_text
from minitransformer.system.provenance import code_version, short_hash
from minitransformer.system.records import read_record
from minitransformer.training.callbacks import Callback
from minitransformer.training.run import RunResult, train
from parallel.communicator import Communicator

RESULT_FILE = "cell.json"
AVERAGED = 5  # number of last checkpoints that are averaged; a cell saves one every twentieth of its updates
BIG_UPDATES = 3  # the big model's updates relative to other models' updates: 300,000 / 100,000 in the paper


@dataclass(frozen=True)
class Printed:
    """The paper's numbers for a row: perplexity per word piece and BLEU on newstest2013."""

    perplexity: float
    bleu: float


PRINTED = {
    "base": Printed(4.92, 25.8),
    "table3-A-h1": Printed(5.29, 24.9),
    "table3-A-h4": Printed(5.00, 25.5),
    "table3-A-h16": Printed(4.91, 25.8),
    "table3-A-h32": Printed(5.01, 25.4),
    "table3-B-dk16": Printed(5.16, 25.1),
    "table3-B-dk32": Printed(5.01, 25.4),
    "table3-C-n2": Printed(6.11, 23.7),
    "table3-C-n4": Printed(5.19, 25.3),
    "table3-C-n8": Printed(4.88, 25.5),
    "table3-C-d256": Printed(5.75, 24.5),
    "table3-C-d1024": Printed(4.66, 26.0),
    "table3-C-ff1024": Printed(5.12, 25.4),
    "table3-C-ff4096": Printed(4.75, 26.2),
    "table3-D-drop0": Printed(5.77, 24.6),
    "table3-D-drop2": Printed(4.95, 25.5),
    "table3-D-ls0": Printed(4.67, 25.3),
    "table3-D-ls2": Printed(5.47, 25.7),
    "table3-E": Printed(4.92, 25.7),
    "big": Printed(4.33, 26.4),
}


def rows_named(words: Sequence[str]) -> list[str]:
    """Return the rows that ``words`` name, in the order of the table.

    A word is a letter "A" … "E" for several rows, or a row's name such as A-h1; without words, all rows are returned.
    The base model is always included, because the other rows are compared with it.
    Raises: ConfigError for any other word.
    """
    if not words:
        return list(PRINTED)
    wanted = {"base"}
    for word in words:
        rows = [
            row for row in PRINTED if word in (row, short(row)) or (row in presets.TABLE3 and short(row)[0] == word)
        ]
        if not rows:
            raise ConfigError(
                f"table3: rows are A, B, C, D, E or one of {', '.join(map(short, PRINTED))}; got {word!r}"
            )
        wanted |= set(rows)
    return [row for row in PRINTED if row in wanted]


def short(row: str) -> str:
    """Return a row's name without the prefix "table3-" of the presets."""
    return row.removeprefix("table3-")


@dataclass(frozen=True)
class Scale:
    """The scale of all models: d_model and n_layers of the base model.  The defaults are the paper's base model."""

    d_model: int = 512
    n_layers: int = 6

    def __post_init__(self) -> None:
        if self.d_model < 32 or self.d_model % 32:
            raise ConfigError(f"table3: d_model must be a multiple of 32 (rows have 32 heads); got {self.d_model}")
        if self.n_layers < 3 or self.n_layers % 3:
            raise ConfigError(
                f"table3: n_layers must be a multiple of 3 (rows have a third of it); got {self.n_layers}"
            )

    def of(self, row: str) -> ModelConfig:
        """Return a row's model with scaled widths and depth, and with the paper's heads, dropout and smoothing."""
        config = presets.named(row)
        wide = {name: getattr(config, name) * self.d_model // 512 for name in ("d_model", "d_ff", "d_k", "d_v")}
        return dataclasses.replace(config, **wide, n_layers=config.n_layers * self.n_layers // 6)


@dataclass(frozen=True)
class Result:
    """The result of a trained cell: held-out perplexity per token and BLEU (beam 4), cost, and provenance.

    ``flops`` are counted, not estimated from time.  ``weights`` names the checkpoints of the final model, such as
    "average".  ``configuration`` and ``signature`` (of sacreBLEU) are copied from the cell's ``results.json``.
    ``text`` is a hash of the files from which the data was prepared.
    """

    perplexity: float
    bleu: float
    parameters: int
    updates: int
    seconds: float
    code: str
    flops: int
    weights: str
    configuration: str
    signature: str
    text: str


@dataclass(frozen=True)
class Experiment:
    """The settings of a reproduction of Table 3: rows, seeds, scale, text and number of updates.

    ``template`` gives the text, the batches and the warm-up; ``budget`` is the number of updates of a cell.
    """

    template: RunConfig
    directory: Path
    scale: Scale
    budget: int
    rows: Sequence[str]
    seeds: Sequence[int]

    def __post_init__(self) -> None:
        if self.template.data.task == "parsing":
            raise ConfigError(
                "table3: compares models by translation, but the corpus is a treebank (train_trees in its [data]); name"
                " one of sentence pairs, such as recipes/multi30k-en-de.toml"
            )
        if not self.template.data.joint_vocabulary:
            raise ConfigError(
                "table3: its models share one matrix for both languages, but the corpus has joint_vocabulary = false in"
                " its [data]; set it to true"
            )
        if self.budget < 4 * AVERAGED:
            raise ConfigError(f"table3: the budget must be at least {4 * AVERAGED} updates; got {self.budget}")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ConfigError(f"table3: expected one seed or more, all different; got {list(self.seeds)}")

    def cells(self) -> Iterator[tuple[str, int]]:
        """Return (row, seed) for all rows of the first seed, then of the next: a finished seed has a complete table."""
        return ((row, seed) for seed in self.seeds for row in self.rows)

    def cell(self, row: str, seed: int) -> RunConfig:
        """Return the configuration of a cell's training run."""
        updates = self.budget * (BIG_UPDATES if row == "big" else 1)
        training = dataclasses.replace(
            self.template.training,
            seed=seed,
            schedule="paper",
            max_updates=updates,
            warmup_steps=min(self.template.training.warmup_steps, updates // 3),
            validate_every=updates,
            checkpoint_every=updates // (4 * AVERAGED),
            keep_checkpoints=AVERAGED,
            average_checkpoints=AVERAGED,
        )
        data_directory = self.template.data.directory or self.directory / "data"
        return dataclasses.replace(
            self.template,
            run=self.directory / f"{row}-seed-{seed}",
            model=dataclasses.replace(self.scale.of(row), alpha=ALPHA),
            training=training,
            data=dataclasses.replace(self.template.data, directory=data_directory),
        )

    def result(self, row: str, seed: int) -> Result | None:
        """Return the result of a cell whose training is finished; None for other cells.

        Raises: ConfigError if a finished or unfinished cell has other settings than this table; CheckpointError if a
        file of the cell is corrupt, or if a finished cell has no ``run.json``.
        """
        config = self.cell(row, seed)
        config = with_values(config, initial_settings(config.run))
        found = read_record(config.run / RESULT_FILE, Result) if (config.run / RESULT_FILE).exists() else None
        if found and found.updates != config.training.max_updates:
            raise ConfigError(
                f"{config.run}: was trained for {found.updates:,} updates, not {config.training.max_updates:,};"
                " set directory to another one, or remove this one"
            )
        if found and not (config.run / RUN_FILE).exists():
            raise CorruptFileError(
                f"{config.run / RUN_FILE}: not found; without it the settings of this training are unknown:"
                f" remove {config.run} to train it again"
            )
        if differences := config.differences(free=("log_every",)):
            raise ConfigError(
                f"{config.run}: was trained with other settings than this table's: {'; '.join(differences)}. Set them"
                " back (budget, d_model, n_layers and the corpus file), set directory to another one, or remove this"
                " cell to train it again"
            )
        return found

    def check_settings(self) -> None:
        """Check the settings of all existing cells before hours of training.  Raises: the exceptions of ``result``."""
        for row, seed in self.cells():
            self.result(row, seed)

    def train(self, row: str, seed: int, world: Communicator, callbacks: Iterable[Callback]) -> bool:
        """Train a cell, or resume its training; return False if it was interrupted and saved."""
        config = self.cell(row, seed)
        done = train(config, world=world, callbacks=callbacks, always_average=True)  # section 6.2
        if done.is_complete and world.rank == 0:
            result = _result_of(done, PreparedData.open(config.data_directory))
            write_text(config.run / RESULT_FILE, json.dumps(dataclasses.asdict(result), indent=2) + "\n")
        world.barrier()
        return done.is_complete

    def forget_checkpoints(self, row: str, seed: int) -> None:
        """Remove a finished cell's checkpoints and keep its final model; checkpoints of all cells would fill a disk."""
        shutil.rmtree(self.cell(row, seed).run / "checkpoints", ignore_errors=True)


def _result_of(done: RunResult, data: PreparedData) -> Result:
    results = done.results
    return Result(
        perplexity=results["validation"]["perplexity"],
        bleu=results["validation"]["bleu"],
        parameters=results["parameters"],
        updates=results["updates"],
        seconds=results["training_seconds"],
        code=code_version(),
        flops=results["flops"],
        weights=results["weights"],
        configuration=results["configuration"],
        signature=results["validation"]["signature"],
        text=short_hash(json.dumps(data.manifest["files"], sort_keys=True)),
    )
