"""Argos Translate beside ourselves: it installs the packages that we write, and translates as we do."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from marian_models import LINES, write_directory
from number_words import sentences, trained_parts
from sentencepiece import SentencePieceProcessor

from minitransformer import Transformer, Translator
from minitransformer.data.profile import TextProfile
from minitransformer.extras.convert.argos import unpacked
from minitransformer.extras.convert.formats import output_directory, read_parts
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.inference.search import SearchConfig


def package_of(parts: Parts, directory: Path) -> Path:
    with output_directory(dataclasses.replace(parts, profile=TextProfile("en", "de")), directory, "argos", "float32"):
        pass
    (package,) = directory.iterdir()
    return package


class WholeLines:
    """Each line is one sentence; the sentence splitters of Argos Translate are models that it downloads."""

    def __init__(self, package: Any) -> None:
        pass

    def split_sentences(self, line: str) -> list[str]:
        return [line]


@pytest.mark.skipif(not find_spec("argostranslate"), reason="pip install argostranslate")
def test_argos_translate_installs_a_package_and_translates_as_we_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "ARGOS_PACKAGES_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))  # read when argostranslate is imported
    monkeypatch.setenv("ARGOS_BEAM_SIZE", "1")  # its beam search ends by other rules than ours
    package, translate = (import_module(f"argostranslate.{name}") for name in ("package", "translate"))
    monkeypatch.setattr(translate, "MiniSBDSentencizer", WholeLines)
    parts, lines = trained_parts(), sentences(20, seed=2)
    package.install_from_path(package_of(parts, tmp_path / "written"))
    assert {language.name for language in translate.get_installed_languages()} == {"English", "German"}
    model = Transformer(parts.config, seed=None)
    model.set_weights(parts.weights)
    ours = [best.text for best, *_ in Translator(model, parts.tokenizer).n_best(lines, SearchConfig(beam=1))]
    assert [translate.translate(line, "en", "de") for line in lines] == ours


def test_the_tokenizer_of_the_source_also_joins_the_words_of_a_model_of_marianmt(tmp_path: Path) -> None:
    """Both languages have a sentencepiece model, and share one vocabulary."""
    write_directory(tmp_path / "theirs")
    parts = read_parts(tmp_path / "theirs")
    assert not parts.tokenizer.is_joint
    package = package_of(parts, tmp_path / "written")
    ids = parts.tokenizer.encode_target(["der kleine Hund sieht drei rote H\u00e4user"])
    source, target = (SentencePieceProcessor(model_proto=model) for model in parts.tokenizer.models)
    with unpacked(package) as directory:
        theirs = SentencePieceProcessor(model_file=str(directory / "sentencepiece.model"))
    assert theirs.decode_pieces([target.id_to_piece(i) for i in ids[0]]) == parts.tokenizer.decode_target(ids)[0]
    assert [theirs.encode(line) for line in LINES] == [source.encode(line) for line in LINES]
    assert read_parts(package).tokenizer.decode_target(ids)[0] == parts.tokenizer.decode_target(ids)[0]


def test_a_tokenizer_that_cannot_join_the_words_of_the_target_is_refused(tmp_path: Path) -> None:
    write_directory(tmp_path / "theirs", kind="bpe")
    with pytest.raises(ConversionError, match="must split the source and join the target; this model has none"):
        package_of(read_parts(tmp_path / "theirs"), tmp_path / "written")
