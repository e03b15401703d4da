"""The demonstration's translator: lines in capitals, and vulgar words."""

import time
from pathlib import Path

import pytest
from serving import small_translator

from minitransformer.config import DataConfig, RunConfig
from minitransformer.config.run import RUN_FILE
from minitransformer.extras.demo.words import DATA
from minitransformer.extras.demo_translator import DemonstrationTranslator, load_translator, without_vulgar_words
from minitransformer.inference.search import Hypothesis, SearchConfig


def test_vulgar_words_become_asterisks_and_the_demonstration_has_none() -> None:
    assert without_vulgar_words("das Fuckshund, bäkack und Arschloch.") == "das F***, b*** und A***."
    assert without_vulgar_words("ein Tit im Marsch, Titel im Futur") == "ein T*** im Marsch, Titel im Futur"
    assert without_vulgar_words(str(DATA)) == str(DATA)


def test_the_time_to_find_vulgar_words_grows_as_the_text() -> None:
    begin = time.process_time()
    assert without_vulgar_words("a" * 30_000) == "a" * 30_000
    assert time.process_time() - begin < 2  # milliseconds; over a minute if it grew as the square


@pytest.mark.parametrize(("data", "begins"), [
    (DataConfig(), "F***"), (DataConfig(train_source=("a.en",), train_target=("a.de",)), "Fuck"),
])  # fmt: skip
def test_the_commands_load_this_translator_for_the_demonstration(data: DataConfig, begins: str, tmp_path: Path) -> None:
    small_translator().model.save(tmp_path)
    small_translator().tokenizer.save(tmp_path)
    (tmp_path / RUN_FILE).write_text(RunConfig(data=data).to_json(), encoding="utf-8")
    (text,) = load_translator(tmp_path).translate(["one"], beam=1, prefixes=["Fuck "])
    assert text.startswith(begins)


def test_a_line_in_capitals_is_translated_in_lower_case() -> None:
    lines = ["ONE AND I", "One and I", "one AND two", "", "I", "I, A"]
    translator = small_translator(DemonstrationTranslator)
    upper, *others = translator.translate(lines, beam=1)
    assert upper == others[0].upper() != others[0]
    assert others == small_translator().translate(lines[1:], beam=1)
    assert len(set(translator.count_tokens(lines[:2]))) == 1
    given = ["Vier s", "VIER S", "Vier s"]
    lower, upper, mixed = translator.translate(["One two", "ONE TWO", "ONE TWO"], beam=1, prefixes=given)
    assert (upper, lower[:6], mixed) == (lower.upper(), "Vier s", f"Vier s{lower[6:].upper()}")


def test_texts_that_are_shown_alike_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator(DemonstrationTranslator)
    ids = translator.tokenizer.encode_target(["eins sex", "zwei", "eins shit"])
    found = [Hypothesis(0.0, 0.0, tuple(each)) for each in ids]
    monkeypatch.setattr("minitransformer.inference.translator.beam_search", lambda *_: [found])
    (best,) = translator.n_best(["ONE TWO"], SearchConfig(n_best=3), n_threads=1)
    assert [each.text for each in best] == ["EINS S***", "ZWEI"]
