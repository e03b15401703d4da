"""minitransformer-reproduce table3: variations on the Transformer, trained and compared as in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cli.command import all_end_together
from cli.console import log_console
from cli.train import read_options
from minitransformer.data.prepare import PreparedData, text_files
from minitransformer.data.survey import CorpusError
from minitransformer.files import write_text
from minitransformer.reproduce.claims import comparisons
from minitransformer.reproduce.table3 import Experiment, Result, Scale, rows_named
from minitransformer.reproduce.table3_report import (
    as_markdown,
    claims_as_markdown,
    provenance_as_markdown,
    verdicts_as_markdown,
)
from minitransformer.training.callbacks import ProgressBar
from parallel.communicator import Communicator
from parallel.launch import communicator


@dataclass(frozen=True)
class Table3Options:
    """Train rows of Table 3 at a scale of one's own, and print the table beside the paper's.

    Interrupted, it goes on when the same command is given again; cells that are finished are not trained again.
    """

    corpus: Path | None = None
    """TOML file with the text (prepared, or where its raw says), batches and schedule, such as
    recipes/multi30k-en-de.toml; without, the demonstration's.  Its model and numbers of updates do not count."""
    rows: tuple[str, ...] = ()
    """Letters (A B C D E), "big", or names such as A-h1; all rows if none is named."""
    budget: int = 1_000
    """Updates of each model; the big one has three times as many, as in the paper."""
    seeds: tuple[int, ...] = (1,)
    """Each row is trained once with each; from two seeds on there are intervals."""
    d_model: int = 128
    """Width of the base row, a multiple of 32 (512 in the paper); the other widths are in proportion."""
    n_layers: int = 3
    """Layers of the base row, a multiple of 3 (6 in the paper)."""
    directory: Path = Path("runs/table3")
    """Where all runs go, and the tables: table3.md."""


def reproduce_table3(options: Table3Options) -> int:
    """Train what is not trained yet, and print the tables; 130 when interrupted."""
    world = communicator()  # first of all: the other ranks would wait for one that ends before it has started MPI
    console = log_console(quiet=world.rank != 0)
    with all_end_together(world):
        template = read_options(["--config", str(options.corpus)] if options.corpus else [])
        experiment = Experiment(
            template, options.directory, Scale(options.d_model, options.n_layers),
            options.budget, rows_named(options.rows), options.seeds,
        )  # fmt: skip
        _require_text(experiment, options)
        if not _train_all(experiment, world, console):
            return 130
        if world.rank == 0:
            corpus = str(options.corpus) if options.corpus else "the demonstration's corpus"
            tables = _tables(experiment, corpus)
            write_text(options.directory / "table3.md", tables)
            print(tables, end="")
    return 0


def _require_text(experiment: Experiment, options: Table3Options) -> None:
    """Say what to do where neither the text nor what is prepared from it is there: no option here names its folder."""
    cell = experiment.cell("base", experiment.seeds[0])
    missing = [path for path in text_files(cell.data).values() if not path.exists()]
    if not missing or PreparedData.is_in(cell.data_directory):
        return
    prepare = f"minitransformer-prepare --config {options.corpus} --data.directory {cell.data_directory}"
    raise CorpusError(
        f"{missing[0]}: not found; set raw in [data] of {options.corpus} to the folder with the text, or prepare it"
        f" from where it is: {prepare} --data.raw FOLDER"
        f"{' (or --download)' if cell.data.download_from else ''}"
    )


def _train_all(experiment: Experiment, world: Communicator, console: Console) -> bool:
    """Train every cell that has no result yet; False when interrupted."""

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    experiment.check_settings()
    cells = list(experiment.cells())
    for number, (row, seed) in enumerate(cells, 1):
        if not world.bcast(experiment.result(row, seed) is not None):
            say(f"[{number} of {len(cells)}] {row}, seed {seed}")
            if not experiment.train(row, seed, world, [ProgressBar(console)]):
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
    compared = list(comparisons(results))
    parts = (
        as_markdown(results, experiment.scale), verdicts_as_markdown(compared), claims_as_markdown(compared),
        provenance_as_markdown(results, corpus),
    )  # fmt: skip
    return "\n".join(parts)
