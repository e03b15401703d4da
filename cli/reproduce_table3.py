"""minitransformer-reproduce table3: train variations on the Transformer, and compare them as the paper does."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cli.command import all_end_together, log_shown
from cli.console import log_console
from cli.entry import INTERRUPTED
from cli.run_options import start_of
from minitransformer.data.corpus import text_files
from minitransformer.data.prepare import PreparedData
from minitransformer.data.survey import CorpusError
from minitransformer.extras.paper.table3 import Experiment, Result, Scale, rows_named
from minitransformer.extras.paper.table3_report import as_markdown, differences_as_markdown, provenance_as_markdown
from minitransformer.system.files import write_text
from minitransformer.training.progress_bar import ProgressBar
from parallel.communicator import Communicator
from parallel.launch import communicator


@dataclass(frozen=True)
class Table3Options:
    """Train rows of Table 3 at a scale of your choice, and print the table next to the paper's.

    After an interruption, the same command continues; finished cells are not trained again.
    """

    corpus: Path | None = None
    """TOML file with the settings of text, batches and warm-up, such as recipes/multi30k-en-de.toml; if not given, the
    demonstration's settings are used.  The model and the numbers of steps in the file are ignored."""
    rows: tuple[str, ...] = ()
    """Rows to train: letters (A B C D E), "big", or names such as A-h1; all rows if none is given."""
    budget: int = 1_000
    """Training steps of each model; the big model is trained for three times as many, as in the paper."""
    seeds: tuple[int, ...] = (1,)
    """Random seeds; each row is trained once with each seed.  Two or more seeds give confidence intervals."""
    d_model: int = 128
    """Width of the base row, a multiple of 32 (512 in the paper); the other widths are scaled in proportion."""
    n_layers: int = 3
    """Layers of the base row, a multiple of 3 (6 in the paper)."""
    directory: Path = Path("runs/table3")
    """Directory for all runs, and for the tables: table3.md."""


def reproduce_table3(options: Table3Options) -> int:
    """Train the cells that have no result, and print the tables; return 130 if interrupted."""
    world = communicator()  # first: a rank that ended before starting MPI would leave other ranks waiting
    console = log_console(quiet=world.rank != 0)
    with all_end_together(world):
        _, template = start_of(options.corpus)
        experiment = Experiment(
            template,
            options.directory,
            Scale(options.d_model, options.n_layers),
            options.budget,
            rows_named(options.rows),
            options.seeds,
        )
        _require_text(experiment, options)
        if not _train_all(experiment, world, console):
            return INTERRUPTED
        if world.rank == 0:
            corpus = str(options.corpus) if options.corpus else "the demonstration's corpus"
            tables = _tables(experiment, corpus)
            write_text(options.directory / "table3.md", tables)
            print(tables, end="")
    return 0


def _require_text(experiment: Experiment, options: Table3Options) -> None:
    """Raise CorpusError if text and prepared data are missing.

    The error's remedy names the configuration file, because this command has no option for the folder of the text.
    """
    cell = experiment.cell("base", experiment.seeds[0])
    missing = [path for path in text_files(cell.data).values() if not path.exists()]
    if not missing or PreparedData.is_in(cell.data_directory):
        return
    prepare = shlex.join(
        ["minitransformer-prepare", "--config", str(options.corpus), "--data.directory", str(cell.data_directory)]
    )
    raise CorpusError(
        f"{missing[0]}: not found; set raw in [data] of {options.corpus} to the folder with the text, or prepare it"
        f" from where it is: {prepare} --data.raw FOLDER"
        f"{' (or --download)' if cell.data.download_from else ''}"
    )


def _train_all(experiment: Experiment, world: Communicator, console: Console) -> bool:
    """Train every cell that has no result yet; return False if interrupted."""
    experiment.check_settings()
    cells = list(experiment.cells())
    for number, (row, seed) in enumerate(cells, 1):
        if not world.bcast(experiment.result(row, seed) is not None):
            bar = ProgressBar(console)
            bar.print(f"[{number} of {len(cells)}] {row}, seed {seed}")
            with log_shown(bar.print):
                if not experiment.train(row, seed, world, [bar]):
                    return False
        if world.rank == 0:
            experiment.forget_checkpoints(row, seed)
    return True


def _tables(experiment: Experiment, corpus: str) -> str:
    results: dict[str, dict[int, Result]] = {row: {} for row in experiment.rows}
    for row, seed in experiment.cells():
        result = experiment.result(row, seed)
        if result is not None:
            results[row][seed] = result
    parts = as_markdown(results, experiment.scale), differences_as_markdown(results)
    return "\n".join([*parts, provenance_as_markdown(results, corpus)])
