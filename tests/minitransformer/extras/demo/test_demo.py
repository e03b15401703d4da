"""The demo corpus: sentences drawn from its grammar, and the corpus made of them."""

import re
import unicodedata
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from readme import demonstrated

import minitransformer.extras.demo
from minitransformer.extras.demo import SHOWCASE, DemoCorpus, demo_corpus, sentence_pair
from minitransformer.extras.demo.english import english_sentence
from minitransformer.extras.demo.german import german_sentence
from minitransformer.extras.demo.phrases import NAMES
from minitransformer.extras.demo.sentences import MAX_WORDS, PATTERNS
from minitransformer.extras.demo.writing import Form, shortened, write_sentences


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    random = Random(7)
    return [sentence_pair(random) for _ in range(10_000)]


@pytest.fixture(scope="module")
def corpus() -> DemoCorpus:
    return demo_corpus(n_train=3_000)


def test_every_pattern_draws_sentences() -> None:
    random = Random(3)
    for _, pattern in PATTERNS * 100:
        meaning = pattern(random)
        english, german = english_sentence(meaning), german_sentence(meaning)
        assert english.endswith("?") == german.endswith("?"), pattern


def test_an_english_sentence_has_one_translation(pairs: list[tuple[str, str]]) -> None:
    translations: dict[str, set[str]] = defaultdict(set)
    for english, german in pairs:
        translations[english].add(german)
    assert [english for english, germans in translations.items() if len(germans) > 1] == []


def test_sentences_are_well_formed_text_of_moderate_length(pairs: list[tuple[str, str]]) -> None:
    for pair in pairs:
        for text in pair:
            assert text == unicodedata.normalize("NFC", text)
            assert text == " ".join(text.split())
            assert not any(flaw in text for flaw in (",,", " ,", " ?", ",?"))
            assert not text.endswith((".", ","))
    lengths = [len(english.split()) for english, _ in pairs]
    assert max(lengths) <= MAX_WORDS
    assert min(lengths) == 1  # a word alone: "dogs"
    assert 7 <= sum(lengths) / len(lengths) <= 12
    for english, _ in pairs:  # nobody is called by name beside their own genitive
        assert not any({name, f"{name}'s"} <= set(english.split()) for name in NAMES if f"{name}'s" in english)


def test_the_showcase_needs_no_word_that_is_not_in_the_language_but_a_name(pairs: list[tuple[str, str]]) -> None:
    for side in (0, 1):
        words = {word.strip(",?") for pair in pairs for word in pair[side].split()}
        needed = {word.strip(",?") for pair in SHOWCASE for word in pair[side].split()}
        assert needed - words == {"Obama"}


def test_corpus_is_a_function_of_its_arguments() -> None:
    corpus = demo_corpus(5, n_train=300, n_validation=20, n_test=30)
    assert corpus == demo_corpus(5, n_train=300, n_validation=20, n_test=30)
    assert corpus != demo_corpus(6, n_train=300, n_validation=20, n_test=30)
    larger = demo_corpus(5, n_train=400, n_validation=20, n_test=30)
    assert (larger.validation, larger.test, larger.train[:300]) == (corpus.validation, corpus.test, corpus.train)


def test_corpus_repeats_no_sentence_and_holds_out_the_showcase(corpus: DemoCorpus) -> None:
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (3_000, 500, 1_000)
    lines = [english for english, _ in (*corpus.train, *corpus.validation, *corpus.test, *SHOWCASE)]
    sentences = [sentence for line in lines for sentence in re.split(r"[.!?] ", line.rstrip(".!?").lower())]
    assert len(sentences) > 1.05 * len(lines)  # some lines have two
    assert len(set(sentences)) == len(sentences)


def test_corpus_has_every_form_in_which_people_write(corpus: DemoCorpus, pairs: list[tuple[str, str]]) -> None:
    lines = corpus.train
    forms = {
        "The .*[.]": 0.1, "the .*[a-z]": 0.04, "the .*[.]": 0.015, "(Does|Is|Can|Where|Who|Which) .*[?]": 0.02,
        "(does|is|can|where|who|which) .*[a-z]": 0.004, ".*, .*": 0.05, ".*[.!?] [A-Z].*": 0.05, ".*!": 0.02,
        ".*(n't|'m|'re|'ll) .*": 0.015, ".*\\b[Yy]ou\\b.*": 0.02, '.*["“].+["”].*': 0.03, ".* & .*": 0.005,
        "[A-Z][a-z]+[.]?": 0.001,
    }  # fmt: skip
    for form, share in forms.items():
        assert sum(bool(re.fullmatch(form, english)) for english, _ in lines) > share * len(lines), form
    known = {word for pair in pairs for text in pair for word in re.findall(r"\w+", text.lower())}
    copied = [line for line in lines if set.intersection(*(set(re.findall(r"\w+", text)) for text in line)) - known]
    assert len(copied) > 0.1 * len(lines)


def test_readme_shows_the_showcase() -> None:
    *alone, train, question = SHOWCASE
    form = Form(capital=True, mark=".")
    lines = [[pair] for pair in alone] + [[train, question]]
    english = [write_sentences([shortened(pair[0]) for pair in line], form) for line in lines]
    german = [write_sentences([pair[1] for pair in line], form) for line in lines]
    assert demonstrated() == list(zip(english, german, strict=True))


def test_the_grammar_imports_nothing_else_of_the_package() -> None:
    """Only the task, which hands its sentences to a training, and the translator do."""
    files = set(Path(minitransformer.extras.demo.__file__).parent.glob("*.py"))
    code = "".join(file.read_text() for file in files if file.name not in ("task.py", "translator.py"))
    imported = re.findall(r"(?:from|import) (minitransformer[.\w]*)", code)
    assert all(name.startswith("minitransformer.extras.demo") for name in imported)
