"""Table 3 from the command line: a corpus from a file, rows by their letters, finished cells left alone."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from small_run import write_parallel_text

from cli.prepare import prepare_data
from cli.reproduce import reproduce
from cli.reproduce_table3 import Table3Options, reproduce_table3
from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.system.files import CheckpointError


def options(folder: Path, *rows: str, budget: int = 20) -> Table3Options:
    write_parallel_text(folder, "train", 200, seed=1)
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'[data]\nraw = "{folder}"\ntrain_source = ["train.en"]\ntrain_target = ["train.de"]\nheld_out = 5\n'
        "vocabulary_size = 40\n[training]\nbatch_tokens = 200\nn_micro_batches = 1\n",
        encoding="utf-8",
    )
    return Table3Options(corpus=recipe, rows=rows, budget=budget, d_model=32, n_layers=3, directory=folder / "table3")


def test_rows_are_trained_and_printed_and_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce_table3(options(tmp_path, "E")) == 0
    out, error = capsys.readouterr()
    assert "[2 of 2] table3-E, seed 1" in error
    table, outcomes, title, claims, counts, provenance = out.split("\n\n")
    assert [line.split(" |")[0] for line in table.splitlines()[2:]] == ["| base", "| (E) learned positions"]
    assert len(outcomes.splitlines()) == 4
    assert title.startswith("What the paper concludes")
    assert claims.startswith("- (E) learned positions do nearly the same as sinusoids: perplexity ")
    assert counts.startswith("Of all comparisons ")
    assert re.match(r"Text: \S+recipe\.toml, [0-9a-f]{10}\. Seeds: 1\.", provenance)
    assert (tmp_path / "table3" / "table3.md").read_text() == out
    checkpoints = tmp_path / "table3" / "base-seed-1" / "checkpoints"
    assert not checkpoints.exists()
    checkpoints.mkdir()  # what is left if it is killed before it has removed them
    assert reproduce_table3(options(tmp_path, "E")) == 0
    again, output = capsys.readouterr()
    assert again == out
    assert output == ""
    assert not checkpoints.exists()
    (tmp_path / "table3" / "table3.md").unlink()
    (tmp_path / "table3" / "table3.md").mkdir()
    with pytest.raises(CheckpointError, match=r"table3\.md: cannot be written"):
        reproduce_table3(options(tmp_path, "E"))


def test_table_3_is_a_subcommand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Table3Options] = []
    monkeypatch.setattr("cli.reproduce.reproduce_table3", lambda options: asked.append(options) or 7)
    words = ["table3", "--rows", "A", "big", "--seeds", "3", "5", "--budget", "40", "--directory", str(tmp_path)]
    assert reproduce(words) == 7
    assert asked == [Table3Options(rows=("A", "big"), seeds=(3, 5), budget=40, directory=tmp_path)]


def test_a_corpus_without_text_of_its_own_is_the_demonstrations_and_a_missing_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: not found"):
        reproduce_table3(Table3Options(corpus=tmp_path / "nowhere.toml"))
    with pytest.raises(ConfigError, match="rows are A, B, C, D, E"):
        reproduce_table3(Table3Options(rows=("Z",), directory=tmp_path))


def test_a_missing_text_is_reported_with_what_this_command_can_do_and_prepared_text_suffices(tmp_path: Path) -> None:
    folder = tmp_path / "my $(text)"
    folder.mkdir()
    asked = options(folder, "base")
    assert asked.corpus is not None
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


def test_finished_cells_of_another_budget_scale_or_text_are_not_taken_for_these(tmp_path: Path) -> None:
    first = options(tmp_path, "base")
    assert reproduce_table3(first) == 0
    assert first.corpus is not None
    with pytest.raises(ConfigError, match="base-seed-1: was trained for 20 updates, not 24; set directory to another"):
        reproduce_table3(dataclasses.replace(first, budget=24))
    with pytest.raises(
        ConfigError, match="trained with other settings than this table's: model.d_model is 32 there, 64 here"
    ):
        reproduce_table3(dataclasses.replace(first, d_model=64))
    first.corpus.write_text(first.corpus.read_text().replace("vocabulary_size = 40", "vocabulary_size = 39"))
    with pytest.raises(
        ConfigError, match="other settings than this table's: data.vocabulary_size is 40 there, 39 here"
    ):
        reproduce_table3(first)


@pytest.mark.parametrize("cell", ["finished", "half done"])
def test_cells_of_other_settings_are_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    """Also of settings with which a single run may go on."""
    asked = options(tmp_path, "E")
    assert asked.corpus is not None
    assert reproduce_table3(asked) == 0
    shutil.rmtree(asked.directory / "base-seed-1")
    if cell == "half done":
        (asked.directory / "table3-E-seed-1" / "cell.json").unlink()
    capsys.readouterr()
    asked.corpus.write_text(asked.corpus.read_text() + "learning_rate_factor = 0.9\nclip_norm = 1.0\n")
    message = (
        r"table3-E-seed-1: was trained with other settings than this table's: training\.learning_rate_factor is 1\.0"
        r" there, 0\.9 here; training\.clip_norm is None there, 1\.0 here\. Set them back .*, set directory to another"
    )
    with pytest.raises(ConfigError, match=message):
        reproduce_table3(asked)
    assert "[1 of 2]" not in capsys.readouterr().err


def test_a_table_tells_where_its_figures_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = options(tmp_path, "E")
    assert reproduce_table3(asked) == 0
    base = json.loads((asked.directory / "base-seed-1" / "results.json").read_text())
    text = json.loads((asked.directory / "base-seed-1" / "cell.json").read_text())["text"]
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first == (
        f"Text: {asked.corpus}, {text}. Seeds: 1. Updates: 20. Configuration of base-seed-1: {base['configuration']}."
    )
    assert second.startswith(f"Code: {base['code']}")
    assert second.endswith(
        f" Weights: average of the last 5 checkpoints. BLEU: beam 4, {base['validation']['signature']}."
    )


def test_a_cell_trained_on_other_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = options(tmp_path, "E")
    assert reproduce_table3(asked) == 0
    write_parallel_text(tmp_path, "train", 200, seed=2)  # under the same names
    for folder in ("data", "table3-E-seed-1"):
        shutil.rmtree(asked.directory / folder)
    assert reproduce_table3(asked) == 0
    assert re.search(
        r"recipe\.toml, [0-9a-f]{10}; NOT THE SAME: [0-9a-f]{10} \(table3-E-seed-1\)\.", capsys.readouterr().out
    )
