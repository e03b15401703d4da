"""Faults of pairs are counted, shown, and dropped as the settings say; good pairs stay."""

import json
import random
import re
from collections import Counter
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from shared_data import DATA, needs

from minitransformer.config import ConfigError, DataConfig
from minitransformer.config.data import FAULTS, Fault
from minitransformer.config.run import completed
from minitransformer.data.corpus import FileCorpus
from minitransformer.data.faults import faults_of, has_mojibake, is_repetition, script_of
from minitransformer.data.inspection import DESCRIPTIONS
from minitransformer.data.prepare import prepare, selected_text
from minitransformer.data.survey import Pair, read_lines
from minitransformer.extras.demo import demo_corpus

TELLS_LANGUAGES = find_spec("py3langid") is not None
PAIRS = demo_corpus(n_train=2_000, n_validation=1, n_test=1).train
FRENCH = [
    f"{subject} {verb} {rest}."
    for subject in ("Les enfants de la voisine", "Notre vieux professeur", "Cette grande maison blanche")
    for verb in ("ne se trouve plus dans", "a toujours beaucoup aimé", "n'est pas très loin de", "regarde souvent vers")
    for rest in ("la ville où nous sommes nés", "le marché du village", "cette rue qui descend au port")
]


def corpus_of(folder: Path, pairs: list[Pair], **fields: Any) -> FileCorpus:
    return FileCorpus.of(config_of(folder, pairs, **fields))


def config_of(folder: Path, pairs: list[Pair], **fields: Any) -> DataConfig:
    for side, name in enumerate(("t.en", "t.de")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return DataConfig(raw=folder, train_source=("t.en",), train_target=("t.de",), **fields)


def read_as(text: str, encoding: str) -> str:
    return "".join(
        bytes([byte]).decode(encoding, "ignore") or chr(byte)  # Windows-1252 leaves five bytes undefined
        for byte in text.encode()
    )


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("text", [
    "für", "„Gut“", "naïve", "a – b", "10 €", "déjà vu", "Wałęsa", "žena", "привет", "καλημέρα", "مرحبا", "你好吗",
    "😀",
])  # fmt: skip
def test_text_that_was_read_in_another_encoding_is_found_once_and_twice(text: str, encoding: str) -> None:
    once = read_as(text, encoding)
    assert has_mojibake(f"A line: {once}, and more")
    assert has_mojibake(read_as(once, encoding))
    assert not has_mojibake(text)


@pytest.mark.parametrize("line", [
    "«MENÜ» und »MENÜ« und „Ä“ – Ä…", "passé\u00a0» ou «\u00a0café\u00a0»", "CAFÉ» É™", "SÃO PAULO, NÃO", "Â\u00e0 15°",
    "Ÿ Å Ø – ß", "20 µm ±½", "Ã",
])  # fmt: skip
def test_letters_before_quotes_and_signs_are_no_mojibake(line: str) -> None:
    assert not has_mojibake(line)


@pytest.mark.parametrize(("source", "target", "faults"), [
    ("a b", "a b", ["copied"]),
    ("a&nbsp;b", "c", ["markup"]),
    ("a", "it&amp;#39;s", ["markup"]),
    ("a<br>", "c", ["markup"]),
    ('a <a href="x">b</a>', "c", ["markup"]),
    ("AT&T; 3 < 4 & 5 > 2 <3 a <b c", "R&D", []),
    ("!" * 10, "c", ["repetition"]),
    ("- - - - - -", "c", ["repetition"]),
    ("ha ha ha ha ha", "c", ["repetition"]),
    ("ha ha ha ha", "ha ha ha ha!", []),
    ("!" * 9, "no, no, no, no, no", []),
    ("in 1990", "im Jahr 1991", ["numbers"]),
    ("1,234.5 in 2 of 3", "1.234,5 in zwei von 3", []),
    ("500,000 yen", "500 000 Yen", []),
    ("at 2:30", "um halb drei", []),
    ("20 pounds", "neun Kilo", []),
    ("٢٠٢٣", "2023", []),
    ("1" * 5_000, "2" * 5_000, ["repetition", "numbers"]),
    ("a\u2028b", "", []),
])  # fmt: skip
def test_faults_of_a_pair(source: str, target: str, faults: list[str]) -> None:
    assert list(faults_of(source, target)) == faults


@pytest.mark.parametrize(("line", "script"), [
    ("Tom", "LATIN"), ("für ‘αβ’", "LATIN"), ("Αθήνα: Tom", "GREEK"), ("привет!", "CYRILLIC"), ("12 – 13", None),
    ("你好", "CJK"), ("안녕 😀", "HANGUL"), ("😀", None), ("", None), ("Tiếng Việt", "LATIN"),
])  # fmt: skip
def test_the_script_of_a_line_is_that_of_most_of_its_letters(line: str, script: str | None) -> None:
    assert script_of(line) == script


def test_every_fault_has_a_description() -> None:
    assert tuple(DESCRIPTIONS) == FAULTS


def noisy(good: list[Pair], french: list[str]) -> list[tuple[Pair, str]]:
    """Return good pairs and faulty ones made of them, each with its kind, in random order."""
    draw, n = random.Random(1), len(good) // 20
    some = draw.sample(good, 3 * n)
    kinds: dict[str, list[Pair]] = {
        "good": good,
        "repeated": good[:1] * 5 * n,
        "copied": [(source, source) for source, _ in good[:n]],
        "language": [(source, draw.choice(french)) for source, _ in good[n : 2 * n]],
        "mojibake": [(source, read_as(f"{target} Für Öl.", "latin-1")) for source, target in some[:n]],
        "markup": [(f"{source}&nbsp;<br>", f"{target}&amp;#39;") for source, target in some[n : 2 * n]],
        "repetition": [("!" * 60, "!" * 60)] * n,
        "script": [(source, "Это предложение написано по-русски.") for source, _ in some[2 * n :]],
    }
    pairs = [(pair, kind) for kind, of_kind in kinds.items() for pair in of_kind]
    return draw.sample(pairs, len(pairs))


def dropped_by_kind(corpus: FileCorpus, pairs: list[tuple[Pair, str]]) -> Counter[str]:
    """Count the dropped pairs by kind; a pair of which another copy is kept is repeated."""
    drops = corpus.inspection.drop
    kept = {pair for (pair, _), drop in zip(pairs, drops, strict=True) if not drop}
    return Counter(
        "repeated" if pair in kept else kind for (pair, kind), drop in zip(pairs, drops, strict=True) if drop
    )


def test_faulty_pairs_of_generated_text_are_found_and_good_ones_stay(tmp_path: Path) -> None:
    pairs = noisy(PAIRS, FRENCH)
    names = [fault for fault in FAULTS if fault != "language" or TELLS_LANGUAGES]
    corpus = corpus_of(tmp_path, [pair for pair, _ in pairs], filter=tuple(names))
    kinds, dropped = Counter(kind for _, kind in pairs), dropped_by_kind(corpus, pairs)
    for kind in kinds.keys() - {"good", "repeated", "repetition", *({} if TELLS_LANGUAGES else {"language"})}:
        assert dropped[kind] >= 0.95 * kinds[kind], kind
    assert dropped["repeated"] + dropped["repetition"] >= kinds["repeated"] + kinds["repetition"] - 1
    assert dropped["good"] <= 0.01 * kinds["good"]
    assert len([*corpus.train(), *corpus.validation()]) == len(pairs) - corpus.inspection.drop.sum()


@needs("tatoeba", "europarl-en-fr")
def test_faulty_pairs_of_real_text_are_found_and_good_ones_stay(tmp_path: Path) -> None:
    english, german = (list(read_lines(DATA / f"tatoeba/train.en-de.{side}.xz")) for side in ("en", "de"))
    good = random.Random(2).sample(list(zip(english, german, strict=True)), 4_000)
    pairs = noisy(good, list(islice(read_lines(DATA / "europarl-en-fr/train.fr.xz"), 2_000)))
    names = [fault for fault in FAULTS if fault != "language" or TELLS_LANGUAGES]
    corpus = corpus_of(tmp_path, [pair for pair, _ in pairs], filter=tuple(names))
    dropped, n_bad = dropped_by_kind(corpus, pairs), sum(kind != "good" for _, kind in pairs)
    n_unseen = 0 if TELLS_LANGUAGES else len(good) // 20
    assert sum(dropped.values()) - dropped["good"] >= 0.9 * n_bad - n_unseen
    assert dropped["good"] <= 0.01 * len(good)


GOOD = PAIRS[:200]
FAULTY = [("one", "einsÃ¼"), ("two", "- - - - - - -"), ("three", "three"), ("four", "4&nbsp;"), GOOD[7]]


def test_faults_are_counted_and_shown_and_only_some_are_dropped_by_default(tmp_path: Path, logged: list[str]) -> None:
    """The default drops only pairs that teach nothing: broken characters, and lines without content."""
    config = config_of(tmp_path, [*GOOD, *FAULTY], vocabulary_size=200)
    data = prepare(config, tmp_path / "data")
    manifest = data.manifest
    assert (manifest["train_pairs"], manifest["validation_pairs"]) == (183, 20)
    assert manifest["faults"] == {"repeated": 1, "copied": 2, "mojibake": 1, "markup": 1, "repetition": 1}
    assert manifest["dropped"] == {"mojibake": 1, "repetition": 1}
    assert manifest["first_dropped"]["mojibake"] == ["t.en:201"]
    at = logged.index(
        "training text: mojibake (UTF-8 that was read as Latin-1 or Windows-1252): 1 of 205 pairs, dropped"
    )
    assert logged[at + 1] == "  t.en:201: 'one' → 'einsÃ¼'"
    at = logged.index("training text: repeated (an earlier pair again): 1 of 205 pairs")
    assert logged[at + 1] == f"  t.en:205: {GOOD[7][0]!r} → {GOOD[7][1]!r}"
    assert "pairs dropped as mojibake: 1 (t.en:201)" in logged
    assert any(
        re.fullmatch(r"sentences in a line of the source: one \d.*%, two .*%, more .*%", line) for line in logged
    )


def test_a_long_line_is_shown_where_its_fault_is(tmp_path: Path, logged: list[str]) -> None:
    corpus_of(tmp_path, [*GOOD, ("a " * 100 + "&nbsp;" + " b" * 100, "c")])
    (line,) = (line for line in logged if "&nbsp;" in line)
    assert line.startswith("  t.en:201: …'a a a a a a a a a a &nbsp; b b")
    assert len(line) < 120


@pytest.mark.parametrize("drop", [("repeated",), ("copied", "markup"), FAULTS[:6]])
def test_pairs_are_held_out_of_what_the_filter_keeps(drop: tuple[Fault, ...], tmp_path: Path) -> None:
    """Locations are those of the files; ``selected_text`` reads what training reads."""
    pairs = [pair for i, one in enumerate(GOOD) for pair in (one, FAULTY[i % 5])]
    config = config_of(tmp_path, pairs, filter=drop, vocabulary_size=200, max_ratio=100.0)
    corpus = FileCorpus.of(config)
    train, held_out = list(corpus.train()), list(corpus.validation())
    assert len(held_out) == round(len([*train, *held_out]) / 10)
    assert len({*train, *held_out}) == len([*train, *held_out]) or "repeated" not in drop
    for found, location in (train, corpus.location), (held_out, corpus.held_out_location):
        assert [pairs[int(str(location(i)).removeprefix("t.en:")) - 1] for i in range(len(found))] == found
    data = prepare(config, tmp_path / "data")
    assert len(list(selected_text(corpus, data, config))) == len(data.stores["train"])
    assert sum(corpus.inspection.drop) == sum(data.manifest["dropped"].get(fault, 0) for fault in drop) > 0


def test_each_target_language_has_its_own_script(tmp_path: Path, logged: list[str]) -> None:
    """The files of Russian are few; only their line in Latin letters is dropped."""
    russian = [(source, f"Предложение {i}.") for i, (source, _) in enumerate(GOOD[:10])]
    config_of(tmp_path, [*russian, ("one", "eins")])
    for name in "t.en", "t.de":
        (tmp_path / name).rename(tmp_path / f"r{name}")
    config_of(tmp_path, [*GOOD, ("two", "Два")])
    files = {"train_source": ("t.en", "rt.en", "t.en"), "train_target": ("t.de", "rt.de", "t.de")}
    corpus = FileCorpus.of(DataConfig(raw=tmp_path, **files, tags=("de", "ru", "de"), filter=("script",)))  # type: ignore[arg-type]
    assert corpus.inspection.drop.nonzero()[0].tolist() == [200, 211, 412]
    twice = f"{tmp_path / 't.en'}:201"
    assert corpus.inspection.dropped["script"].first == [twice, twice, "rt.en:11"]
    assert corpus.inspection.counts["script"] == 3
    assert "training text in ru: script (another script than the rest of the side): 1 of 11 pairs, dropped" in logged
    train = list(corpus.train())
    assert [corpus.file_of(i) for i in range(len(train))] == sorted(corpus.file_of(i) for i in range(len(train)))
    assert len([i for i in range(len(train)) if corpus.file_of(i) == 1]) == 9


def test_validation_files_are_reported_and_never_dropped(tmp_path: Path, logged: list[str]) -> None:
    for name, lines in ("v.en", ["one", "two"]), ("v.de", ["fÃ¼nf", "two"]):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    files: dict[str, Any] = {"validation_source": ("v.en",), "validation_target": ("v.de",)}
    corpus = corpus_of(tmp_path, GOOD, filter=FAULTS[:6], **files)
    assert list(corpus.validation()) == [("one", "fÃ¼nf"), ("two", "two")]
    assert "  v.en:1: 'one' → 'fÃ¼nf'" in logged
    assert "validation text: mojibake (UTF-8 that was read as Latin-1 or Windows-1252): 1 of 2 pairs" in logged


def test_a_text_whose_pairs_are_all_dropped_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"t\.en: 1 pairs \(19 others are dropped by data\.filter\) are too few"):
        corpus_of(tmp_path, [("a", "b")] * 20, filter=("repeated",))


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.filter must be some of \('repeated', .*; got \('typos',\)"):
        DataConfig(filter=("typos",))  # type: ignore[arg-type]


@pytest.mark.skipif(not TELLS_LANGUAGES, reason="py3langid is not installed")
def test_languages_of_a_sample_are_compared_and_those_of_all_pairs_if_they_are_dropped(
    tmp_path: Path, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.data.inspection.N_SAMPLED", 100)
    pairs = PAIRS[:600]
    pairs[:301:300] = [(pairs[0][0], FRENCH[0]), (FRENCH[1], pairs[300][1])]
    pairs[301] = (pairs[301][0], FRENCH[2])
    corpus_of(tmp_path, pairs)
    assert "training text: language (another language than the rest of the side): 2 of 100 pairs" in logged
    corpus = corpus_of(tmp_path, pairs, filter=("language",))
    assert corpus.inspection.drop.nonzero()[0].tolist() == [0, 300, 301]


def test_without_py3langid_languages_cannot_be_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.data.line_languages.find_spec", lambda name: None)
    corpus_of(tmp_path, GOOD)
    with pytest.raises(ConfigError, match=r'data\.filter has "language", which needs the package py3langid: install'):
        corpus_of(tmp_path, GOOD, filter=("language",))


def test_data_of_an_earlier_version_has_no_filter() -> None:
    assert completed("data", {"vocabulary_size": 8})["filter"] == []
    assert json.loads(json.dumps(DataConfig().fingerprint()))["filter"] == ["mojibake", "repetition"]


def test_repetitions_with_blanks_around_them() -> None:
    assert not is_repetition(" a b c d e f")
    assert is_repetition("  - - - - - - - ")
