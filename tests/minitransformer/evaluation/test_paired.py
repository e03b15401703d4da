"""The paired test of two systems' BLEU."""

from __future__ import annotations

import random

import pytest

from minitransformer.evaluation.bleu import bleu
from minitransformer.evaluation.paired import paired_bootstrap

WORDS = ["the", "a", "small", "large", "dog", "house", "sees", "has", "red", "blue", "one", "two", "three", "runs"]


def lines(n: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=8)) for _ in range(n)]


def with_errors(references: list[str], share: float, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join("x" if draw.random() < share else word for word in line.split()) for line in references]


def test_scores_are_bleu_and_a_large_difference_is_significant() -> None:
    references = lines(200, seed=1)
    worse, better = with_errors(references, 0.3, seed=2), with_errors(references, 0.1, seed=3)
    test = paired_bootstrap(worse, better, references)
    assert test.baseline == pytest.approx(bleu(worse, [references]).value)
    assert test.bleu == pytest.approx(bleu(better, [references]).value)
    assert test.p_value == pytest.approx(1 / 1_001)
    assert 0 < test.interval < 10


def test_systems_with_as_many_errors_elsewhere_are_not_significantly_different() -> None:
    references = lines(200, seed=1)
    test = paired_bootstrap(with_errors(references, 0.2, seed=2), with_errors(references, 0.2, seed=3), references)
    assert test.p_value is not None
    assert test.p_value > 0.05


def test_the_same_translations_have_no_p_value() -> None:
    """Of sacrebleu's own 1 / 1,001 a reader would conclude that they differ."""
    references = lines(20, seed=1)
    assert paired_bootstrap(references, references, references).p_value is None
