"""The paper's tables from the command line; of Table 3 the corpus, the rows, and finished cells."""

import contextlib
import dataclasses
import errno
import io
import json
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
from small_run import output_of, results_of, write_parallel_text

from cli.prepare import prepare_data
from cli.reproduce import reproduce
from cli.reproduce_table3 import Table3Options, reproduce_table3
from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.extras.paper.complexity.table import LAYER_TYPES, sweeps
from minitransformer.system.files import CheckpointError
from minitransformer.system.provenance import short_hash


def test_table_1_is_printed_and_written_and_a_refusing_stdout_not_mistaken_for_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [dataclasses.replace(each, sweeps=sweeps(1, (16, 16, 4), n=(16, 32))) for each in LAYER_TYPES[::2]]
    monkeypatch.setattr("cli.reproduce.LAYER_TYPES", small)
    words = ["table1", "--repeats", "1", "--output"]
    assert reproduce([*words, str(tmp_path / "new")]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("| Layer type ")
    assert "O(n² · d)" in printed.out
    assert re.search(r"wrote .*new/table1.json; code ", printed.err)
    assert len(json.loads((tmp_path / "new" / "table1.json").read_text())["rows"]) == len(small)
    monkeypatch.setattr(sys, "stdout", Mock(write=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))))
    with pytest.raises(OSError, match="^.Errno"):
        reproduce([*words, str(tmp_path)])
    assert (tmp_path / "table1.json").exists()


def options(folder: Path, *rows: str) -> Table3Options:
    write_parallel_text(folder, "train", 200, seed=1)
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'[data]\nraw = "{folder}"\ntrain_source = ["train.en"]\ntrain_target = ["train.de"]\nheld_out = 5\n'
        "vocabulary_size = 40\n[training]\nbatch_tokens = 200\nn_micro_batches = 1\n",
        encoding="utf-8",
    )
    return Table3Options(corpus=recipe, rows=rows, budget=20, d_model=32, n_layers=3, directory=folder / "table3")


@dataclass(frozen=True)
class Table:
    """The options of a table of two cells that have been trained, and what the command printed."""

    options: Table3Options
    output: str
    log: str

    def copied(self, folder: Path, recipe: str | None = None) -> Table3Options:
        """Return the options of a copy, which a test may change; ``recipe`` is another text of the recipe."""
        shutil.copytree(self.options.directory, folder / "table3")
        (folder / "recipe.toml").write_text(recipe or self.recipe)
        return dataclasses.replace(self.options, corpus=folder / "recipe.toml", directory=folder / "table3")

    @property
    def recipe(self) -> str:
        assert self.options.corpus
        return self.options.corpus.read_text()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    asked, output = options(tmp_path_factory.mktemp("table"), "E"), io.StringIO()
    with contextlib.redirect_stdout(output):
        log = output_of(lambda: reproduce_table3(asked))
    return Table(asked, output.getvalue(), log)


def test_rows_are_trained_once_and_printed(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "[2 of 2] table3-E, seed 1" in table.log
    rows, differences, provenance = table.output.split("\n\n")
    assert [line.split(" |")[0] for line in rows.splitlines()[2:]] == ["| base", "| (E) learned positions"]
    assert [line.split(" |")[0] for line in differences.splitlines()[2:]] == ["| E"]
    results = results_of(table.options.directory / "base-seed-1")
    files = json.loads((table.options.directory / "data" / "manifest.json").read_text())["files"]
    text = short_hash(json.dumps(files, sort_keys=True))
    assert re.match(rf"Text: \S+recipe\.toml, {text}\. Seeds: 1\.", provenance)
    assert f"Configuration of base-seed-1: {results['configuration']}.\nCode: {results['code']}" in provenance
    assert provenance.endswith(f" BLEU: beam 4, {results['validation']['signature']}.\n")
    assert (table.options.directory / "table3.md").read_text() == table.output
    asked = dataclasses.replace(table.copied(tmp_path), corpus=table.options.corpus)
    checkpoints = asked.directory / "base-seed-1" / "checkpoints"
    assert not checkpoints.exists()
    checkpoints.mkdir()  # what is left if it is killed before it has removed them
    assert reproduce_table3(asked) == 0
    assert tuple(capsys.readouterr()) == (table.output, "")
    assert not checkpoints.exists()
    (asked.directory / "table3.md").unlink()
    (asked.directory / "table3.md").mkdir()
    with pytest.raises(CheckpointError, match=r"table3\.md: cannot be written"):
        reproduce_table3(asked)


def test_table_3_is_a_subcommand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Table3Options] = []
    monkeypatch.setattr("cli.reproduce.reproduce_table3", lambda options: asked.append(options) or 7)
    words = ["table3", "--rows", "A", "big", "--seeds", "3", "5", "--budget", "40", "--directory", str(tmp_path)]
    assert reproduce(words) == 7
    assert asked == [Table3Options(rows=("A", "big"), seeds=(3, 5), budget=40, directory=tmp_path)]


def test_a_missing_text_is_reported_with_what_this_command_can_do_and_prepared_text_suffices(tmp_path: Path) -> None:
    folder = tmp_path / "my $(text)"
    folder.mkdir()
    asked = options(folder, "base")
    (folder / "train.en").rename(folder / "elsewhere")
    with pytest.raises(
        CorpusError, match=r"train\.en: not found; set raw in \[data\] .* --data\.raw FOLDER$"
    ) as caught:
        reproduce_table3(asked)
    (folder / "elsewhere").rename(folder / "train.en")
    words = shlex.split(str(caught.value).partition("minitransformer-prepare ")[2])
    assert prepare_data([str(folder) if word == "FOLDER" else word for word in words]) == 0
    (folder / "train.en").unlink()
    assert reproduce_table3(asked) == 0


def test_cells_of_another_budget_scale_text_or_setting_are_refused_before_anything_is_trained(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished and half done ones; also of settings with which a single run may go on."""
    asked = table.options
    with pytest.raises(ConfigError, match="base-seed-1: was trained for 20 updates, not 24; set directory to another"):
        reproduce_table3(dataclasses.replace(asked, budget=24))
    others = "trained with other settings than this table's: "
    with pytest.raises(ConfigError, match=f"{others}model.d_model is 32 there, 64 here"):
        reproduce_table3(dataclasses.replace(asked, d_model=64))
    smaller = table.recipe.replace("vocabulary_size = 40", "vocabulary_size = 39")
    with pytest.raises(ConfigError, match=f"{others}data.vocabulary_size is 40 there, 39 here"):
        reproduce_table3(table.copied(tmp_path / "smaller", smaller))
    asked = table.copied(tmp_path, table.recipe + "learning_rate_factor = 0.9\nclip_norm = 1.0\n")
    shutil.rmtree(asked.directory / "base-seed-1")
    message = (
        rf"table3-E-seed-1: was {others}training\.learning_rate_factor is 1\.0 there, 0\.9 here;"
        r" training\.clip_norm is None there, 1\.0 here\. Set them back .*, set directory to another"
    )
    for _ in ("finished", "half done"):
        with pytest.raises(ConfigError, match=message):
            reproduce_table3(asked)
        (asked.directory / "table3-E-seed-1" / "cell.json").unlink(missing_ok=True)
    assert "[1 of 2]" not in capsys.readouterr().err
