"""The languages of a server: given, or said by the names of the run's training text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minitransformer.config import ConfigError, RunConfig
from minitransformer.extras.serve.languages import languages_of


def run_of(folder: Path, **data: Any) -> Path:
    settings = json.loads(RunConfig().to_json())
    settings["data"] |= data
    (folder / "run.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def codes(run: Path, *given: str | None) -> tuple[str, str]:
    found = languages_of(run, *(given or (None, None)))
    return found.source.code, found.target.code


def test_the_demonstration_is_english_to_german(tmp_path: Path) -> None:
    assert codes(run_of(tmp_path)) == ("en", "de")


@pytest.mark.parametrize("names", [["train.en"], ["a/europarl.de-en.en.gz", "news.en"], ["corpus.en.XZ"]])
def test_files_end_in_their_language(tmp_path: Path, names: list[str]) -> None:
    assert codes(run_of(tmp_path, train_source=names, train_target=["train.fr"])) == ("en", "fr")


@pytest.mark.parametrize("names", [["train.txt"], ["train.en", "train.fr"], ["train"], "train.en", None])
def test_other_names_say_nothing_and_options_are_needed(tmp_path: Path, names: Any) -> None:
    run = run_of(tmp_path, train_source=names, train_target=["train.de"])
    with pytest.raises(ConfigError, match=r"say its source language; set source \(a code, such as en\)$"):
        codes(run)
    assert codes(run, "en", None) == ("en", "de")
    assert codes(run, "pt-BR", None) == ("pt-br", "de")


def test_a_model_without_a_run_needs_both_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its target language"):
        codes(tmp_path, "en", None)
    with pytest.raises(ConfigError, match=r"its source and target language; set source \(.*\) and set target \(.*\)$"):
        codes(tmp_path)
    assert codes(tmp_path, "en", "gsw") == ("en", "gsw")
    assert languages_of(tmp_path, "en", "gsw").target.name == "gsw"


def test_what_is_no_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='expected a code such as "en"'):
        codes(tmp_path, "English <b>", "de")


def test_memories_are_in_the_languages_that_the_run_names(tmp_path: Path) -> None:
    run = run_of(tmp_path, train_source=["m.tmx"], languages=["en_US", "fr"])
    assert codes(run) == ("en-us", "fr")
    with pytest.raises(ConfigError, match="source and target language"):
        codes(run_of(tmp_path, train_source=["m.tmx"]))
