"""BLEU and chrF: published figures of published translations to their last digit, and what a score says of itself."""

import csv
import gzip
import math
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from shared_data import DATA, needs

from minitransformer.config import DataConfig
from minitransformer.inference.bleu import bleu, bleu_tokenizer, chrf, is_better
from minitransformer.inference.task import TranslationTask, task_of

OUTPUTS, REFERENCES = DATA / "wmt-system-outputs", DATA / "wmt-newstest"
needs_data = needs("wmt-system-outputs", "wmt-newstest")

CAT, MAT = "The cat sat on the mat .", "There is a cat on the mat ."


def published() -> list[dict[str, str]]:
    with (OUTPUTS / "scores.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@cache
def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.removesuffix("\n") for line in file]


def reference_sets(testset: str) -> list[list[str]]:
    """ "newstest2013.en-de" has one set of references; "generaltest2022.en-de ref …" has A, B, or all of them."""
    name, _, wanted = testset.partition(" ref ")
    test, target = name.split(".")[0], name[-2:]
    if not wanted:
        return [lines(REFERENCES / f"{test}.{target}.gz")]
    return [lines(REFERENCES / f"{name}.ref{one}.{target}.gz") for one in ("AB" if wanted == "all" else wanted)]


def rounded_like(value: float, printed: str) -> Decimal:
    """To as many decimals as were printed."""
    return Decimal(value).quantize(Decimal(printed))


@needs_data
@pytest.mark.parametrize("number", range(10))
def test_every_published_score_is_ours_to_its_last_digit(number: int) -> None:
    row = published()[number]
    name = row["testset"].partition(" ref ")[0]
    hypotheses = lines(OUTPUTS / f"{name}.{row['system']}.{name[-2:]}.gz")
    score = bleu(hypotheses, reference_sets(row["testset"]))
    for column in ("published_bleu", "sacrebleu_2.6.0_13a_cased"):
        assert rounded_like(score.value, row[column]) == Decimal(row[column]), (row, column)


def test_bleu_worked_out_by_hand() -> None:
    """They share "cat on the mat .": 5 of 7 words, 3 of 6 pairs, 2 of 5 triples, 1 of 4 fours; 7 words stand for 8."""
    by_hand = 100 * math.exp(1 - 8 / 7) * (5 / 7 * 3 / 6 * 2 / 5 * 1 / 4) ** 0.25
    assert bleu([CAT], [[MAT]]).value == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(("hypothesis", "reference", "options", "value"), [
    (CAT, CAT, {}, 100), ("a b c d e", "v w x y z", {}, 0),
    (CAT.upper(), CAT, {}, 100 * (1 / 7 * 1 / 12 * 1 / 20 * 1 / 32) ** 0.25),  # case counts: only "." is shared
    (CAT.upper(), CAT, {"lowercase": True}, 100),
])  # fmt: skip
def test_simple_scores(hypothesis: str, reference: str, options: dict[str, bool], value: float) -> None:
    assert bleu([hypothesis], [[reference]], **options).value == pytest.approx(value, abs=0.01)
    if not options and value in (0, 100):
        assert chrf([hypothesis], [[reference]]).value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("language", "references", "tokenizer"), [
    ("zh_Hant-TW", "", "zh"), ("ja", "", "ja-mecab"), ("kor", "", "ko-mecab"),
    *((code, "", "char") for code in ("th", "lo", "km", "my", "bo")),
    ("de", "Grüße aus 北京", "13a"), (None, "2 + 2 = 4", "13a"), ("txt", "Ελληνικά και русский", "13a"),
    (None, "请用 Kubernetes 部署。", "zh"), (None, "東京へ行きます。", "ja-mecab"),
    (None, "漫画《ワンピース》在中国也很受欢迎，读者很多，他们每周都等待新的一话，也讨论人物和故事的发展。", "zh"),
    (None, "서울에 갑니다.", "ko-mecab"), (None, "ฉันไปกรุงเทพฯ", "char"), (None, "ខ្ញុំទៅភ្នំពេញ", "char"),
])  # fmt: skip
@pytest.mark.parametrize("is_installed", [True, False])
def test_the_tokenizer_is_that_of_the_language_or_of_the_script(
    language: str | None, references: str, tokenizer: str, is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.inference.bleu.find_spec", lambda module: is_installed or None)
    expected = "char" if "mecab" in tokenizer and not is_installed else tokenizer
    assert bleu_tokenizer(language, [[references], ["1"]]) == expected


@pytest.mark.parametrize(
    ("settings", "language"),
    [
        ({"train_source": ["a.tmx"], "languages": ("en", "zh")}, "zh"),
        ({"train_source": ["a.en", "b.en"], "train_target": ["a.th.gz", "b.th"]}, "th"),
        ({"train_source": ["a.en", "b.en"], "train_target": ["a.th", "b"]}, None),
        ({"train_source": ["a.tmx"]}, None),
        ({}, "de"),
    ],
)
def test_a_validation_scores_in_the_training_texts_language(settings: dict[str, Any], language: str | None) -> None:
    task = task_of(DataConfig(**settings))
    assert isinstance(task, TranslationTask)
    assert task.language == language


def test_words_without_blanks_have_ngrams() -> None:
    """The reference has 5 of 6 characters, 4 of 5 pairs, 3 of 4 triples and 2 of 3 fours."""
    score = bleu(["他今天来了。"], [["她今天来了。"]])
    by_hand = 100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert score.value == pytest.approx(by_hand, rel=1e-12)
    assert "|tok:zh|" in score.signature


def test_a_score_carries_name_signature_and_details() -> None:
    one, two = bleu([CAT], [[CAT]]), bleu([CAT], [[CAT], [MAT]], lowercase=True)
    assert one.name == "BLEU"
    assert one.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.")
    assert two.signature.startswith("nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|version:2.")
    assert chrf([CAT], [[CAT]]).signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.")
    assert str(one) == f"{one.detail}  [{one.signature}]"
    assert one.detail.startswith("BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = 7 ref_len")


ONE_STR = ".*references: expected a list of lines, got one str.*"


@pytest.mark.parametrize("score", [bleu, chrf])
@pytest.mark.parametrize(("hypotheses", "references", "error", "message"), [
    ([CAT, MAT], [[CAT, MAT], [CAT]], ValueError, "reference set 2 has 1 lines, but there are 2 hypotheses"),
    ([], [[]], ValueError, "there are no hypotheses to score"),
    ([CAT], [], ValueError, "there are no references to score against"),
    (CAT, [[CAT]], TypeError, ONE_STR), ([CAT], CAT, TypeError, ONE_STR), ([CAT], [CAT], TypeError, ONE_STR),
])  # fmt: skip
def test_what_cannot_be_scored_is_named(score: Any, hypotheses: Any, references: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        score(hypotheses, references)


@pytest.mark.parametrize(("figure", "kept", "is_greater", "is_lower"), [
    (2.0, 1.0, True, False), (1.0, 2.0, False, True), (1.0, 1.0, False, False), (0.0, -0.0, False, False),
    (math.nan, 1.0, False, False), (1.0, None, True, True), (math.nan, None, False, False),
])  # fmt: skip
def test_only_strictly_better_ones_replace(figure: float, kept: float | None, is_greater: bool, is_lower: bool) -> None:
    assert is_better(figure, kept, greatest=True) == is_greater
    assert is_better(figure, kept, greatest=False) == is_lower
