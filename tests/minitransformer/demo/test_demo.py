"""The demo corpus: sentences drawn from its grammar, and the corpus made of them."""

import re
import unicodedata
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

import minitransformer.demo
from minitransformer.demo import SHOWCASE, demo_corpus, sentence_pair
from minitransformer.demo.english import english_sentence
from minitransformer.demo.german import german_sentence
from minitransformer.demo.phrases import NAMES
from minitransformer.demo.sentences import MAX_WORDS, PATTERNS


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    random = Random(7)
    return [sentence_pair(random) for _ in range(20_000)]


@pytest.mark.parametrize("pattern", [pattern for _, pattern in PATTERNS])
def test_every_pattern_draws_sentences(pattern) -> None:
    random = Random(3)
    for _ in range(100):
        meaning = pattern(random)
        english, german = english_sentence(meaning), german_sentence(meaning)
        assert english.endswith("?") == german.endswith("?")


def test_an_english_sentence_has_one_translation(pairs: list[tuple[str, str]]) -> None:
    translations: dict[str, set[str]] = defaultdict(set)
    for english, german in pairs:
        translations[english].add(german)
    assert [english for english, germans in translations.items() if len(germans) > 1] == []


def test_sentences_are_well_formed_text(pairs: list[tuple[str, str]]) -> None:
    for pair in pairs:
        for text in pair:
            assert text == unicodedata.normalize("NFC", text)
            assert text == " ".join(text.split())
            assert not any(flaw in text for flaw in (",,", " ,", " ?", ",?"))
            assert not text.endswith((".", ","))


def test_sentences_are_of_moderate_length(pairs: list[tuple[str, str]]) -> None:
    lengths = [len(english.split()) for english, _ in pairs]
    assert max(lengths) <= MAX_WORDS
    assert min(lengths) >= 2
    assert 8 <= sum(lengths) / len(lengths) <= 12


def test_nobody_is_called_by_name_beside_their_own_genitive(pairs: list[tuple[str, str]]) -> None:
    for english, _ in pairs:
        words = set(english.split())
        assert not any({name, f"{name}'s"} <= words for name in NAMES)


def test_showcase_is_in_the_language(pairs: list[tuple[str, str]]) -> None:
    english_words = {word for english, _ in pairs for word in english.split()}
    german_words = {word for _, german in pairs for word in german.split()}
    assert english_words.issuperset(SHOWCASE[0].split())
    assert german_words.issuperset(SHOWCASE[1].split())


def test_corpus_is_a_function_of_its_arguments() -> None:
    corpus = demo_corpus(5, n_train=300, n_validation=20, n_test=30)
    assert corpus == demo_corpus(5, n_train=300, n_validation=20, n_test=30)
    assert corpus != demo_corpus(6, n_train=300, n_validation=20, n_test=30)
    larger = demo_corpus(5, n_train=400, n_validation=20, n_test=30)
    assert (larger.validation, larger.test, larger.train[:300]) == (corpus.validation, corpus.test, corpus.train)


def test_corpus_repeats_no_sentence_and_holds_out_the_showcase() -> None:
    corpus = demo_corpus(n_train=4_000)
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (4_000, 500, 1_000)
    pairs = [*corpus.train, *corpus.validation, *corpus.test, SHOWCASE]
    assert len({english for english, _ in pairs}) == len({german for _, german in pairs}) == len(pairs)


def test_the_demonstration_imports_nothing_else_of_the_package() -> None:
    files = Path(minitransformer.demo.__file__).parent.glob("*.py")
    imported = {
        name for file in files for name in re.findall(r"(?:from|import) (minitransformer[.\w]*)", file.read_text())
    }
    assert all(name.startswith("minitransformer.demo") for name in imported)
